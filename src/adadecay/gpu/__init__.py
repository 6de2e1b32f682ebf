"""The GPU engine: Triton kernels for the step, their tables and launches."""
