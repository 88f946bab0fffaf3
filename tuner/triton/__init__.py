"""Tuned configs for kernels under `@triton.autotune`, without rewriting them."""
