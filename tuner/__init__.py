"""Autotuning for Triton kernels: find the fastest launch configuration, store it with its evidence, serve it.

Light: neither torch, triton nor optuna is imported until something needs them.
"""

import importlib
import typing

from tuner.client.best import Best
from tuner.client.client import Client, best_config, refresh
from tuner.client.ranks import sync_ranks
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
    SizeLimit,
)
from tuner.launching.warm import Precompiled, precompile
from tuner.version import __version__

if typing.TYPE_CHECKING:
    from tuner.tuning import Events, JointAnswer, Tuned, tune

__all__ = [
    "Attribute",
    "Best",
    "Client",
    "Config",
    "Dim",
    "Events",
    "JointAnswer",
    "Kernel",
    "Knob",
    "Launch",
    "Limits",
    "Operand",
    "Precompiled",
    "Problem",
    "Signature",
    "SizeLimit",
    "Tuned",
    "__version__",
    "best_config",
    "precompile",
    "refresh",
    "sync_ranks",
    "tune",
]


_LAZY = ("Events", "JointAnswer", "Tuned", "tune")
"""Names of `tuner.tuning`, which needs Optuna."""


def __getattr__(name: str) -> typing.Any:
    """Import a name of `tuner.tuning` on its first use."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("tuner.tuning"), name)
