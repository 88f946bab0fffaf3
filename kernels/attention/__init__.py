"""Attention: softmax(q k^T) v for each head."""

from tuner.kernels.attention.definition import KERNEL as KERNEL
