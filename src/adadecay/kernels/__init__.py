"""The native CPU kernel behind the fused path."""
