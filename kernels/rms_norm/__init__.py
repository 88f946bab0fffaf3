"""RMS norm over rows."""

from tuner.kernels.rms_norm.definition import KERNEL as KERNEL
