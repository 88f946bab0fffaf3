"""SiLU of a gate, times what it lets through."""

from tuner.kernels.silu_mul.definition import KERNEL as KERNEL
