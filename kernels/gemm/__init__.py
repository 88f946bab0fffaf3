"""Matrix product with bias and activation."""

from tuner.kernels.gemm.definition import KERNEL as KERNEL
