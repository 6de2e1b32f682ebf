"""One optimization step, several ways: each a pure function on lists of tensors."""
