"""Sum of two tensors."""

from tuner.kernels.add.definition import KERNEL as KERNEL
