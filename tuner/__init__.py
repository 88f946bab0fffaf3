"""Autotuning for Triton kernels: find the fastest launch configuration, keep it with the evidence, serve it.

Light: neither torch, triton nor optuna is imported until something needs them.
"""

from tuner.client.client import best_config, refresh
from tuner.client.pinned import Best
from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
)
from tuner.launching.warm import Precompiled, precompile

__version__ = "0.1.0"
__all__ = [
    "Attribute",
    "Best",
    "Config",
    "Dim",
    "Kernel",
    "Knob",
    "Launch",
    "Limits",
    "Operand",
    "Precompiled",
    "Problem",
    "Signature",
    "__version__",
    "best_config",
    "precompile",
    "refresh",
]
