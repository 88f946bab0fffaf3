"""GELU."""

from tuner.kernels.gelu.definition import KERNEL as KERNEL
