"""Benchmarks: each measures one cost and returns it; the command prints."""
