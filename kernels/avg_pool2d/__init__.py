"""Average pooling of images."""

from tuner.kernels.avg_pool2d.definition import KERNEL as KERNEL
