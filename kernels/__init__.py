"""Ops, each a package that states a `KERNEL`, and the modules that they are written with.

An op's package holds its definition, feasible space, default config, device code (a file for each variant), reference
and, in `call.py`, its function in `tuner.ops`. It imports `spec`, `calling`, `shared`, torch and triton, but no other
op.
"""
