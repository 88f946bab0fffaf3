"""Transpose of a matrix."""

from tuner.kernels.transpose.definition import KERNEL as KERNEL
