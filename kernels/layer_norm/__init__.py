"""Layer norm over rows."""

from tuner.kernels.layer_norm.definition import KERNEL as KERNEL
