"""Prepared launches: from tensors to a compiled kernel with as little host time as possible."""
