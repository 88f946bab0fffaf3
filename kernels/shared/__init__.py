"""Code of several ops: device functions, and rules over tiles."""
