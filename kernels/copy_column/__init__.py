"""Copy of a column of a matrix, on the device or from the host."""

from tuner.kernels.copy_column.definition import KERNEL as KERNEL
