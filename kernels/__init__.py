"""One op a file: jit code, launch, reference, space and default, ending in `KERNEL`."""
