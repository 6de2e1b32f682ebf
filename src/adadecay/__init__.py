"""Adaptive weight decay: every weight decays at its own rate, at every step."""

__version__ = "0.1.0"
