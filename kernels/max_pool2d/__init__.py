"""Maximum pooling of images."""

from tuner.kernels.max_pool2d.definition import KERNEL as KERNEL
