"""Convolution of images."""

from tuner.kernels.conv2d.definition import KERNEL as KERNEL
