"""Captured calls of autotuned kernels as values, and the kernel that a search makes of each."""
