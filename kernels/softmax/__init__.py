"""Softmax over rows."""

from tuner.kernels.softmax.definition import KERNEL as KERNEL
