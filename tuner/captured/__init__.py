"""Calls of autotuned kernels that are defined elsewhere, as values, and the kernels that searches make of them."""
