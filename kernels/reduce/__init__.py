"""Reductions of a matrix: sum, mean, max, min and logsumexp over rows, columns or everything."""

from tuner.kernels.reduce.definition import KERNEL as KERNEL
