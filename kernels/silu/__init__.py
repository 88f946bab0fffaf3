"""SiLU."""

from tuner.kernels.silu.definition import KERNEL as KERNEL
