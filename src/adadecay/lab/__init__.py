"""The lab: the paper's experiments, and the same experiment on a user's own model.

Data flows one way: spec → plan → trial → events → store → statistics → report.
"""
