"""Matrix product of 8-bit floats with scales."""

from tuner.kernels.scaled_gemm.definition import KERNEL as KERNEL
