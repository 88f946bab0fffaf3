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
    Cost,
    Dim,
    HostCall,
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
    from tuner.launching.launch import launch
    from tuner.retuning.api import retune
    from tuner.tuning import Events, JointAnswer, Tuned, tune

__all__ = [
    "Attribute",
    "Best",
    "Client",
    "Config",
    "Cost",
    "Dim",
    "Events",
    "HostCall",
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
    "launch",
    "precompile",
    "refresh",
    "retune",
    "sync_ranks",
    "tune",
]


_LAZY = {
    "Events": "tuner.tuning",
    "JointAnswer": "tuner.tuning",
    "Tuned": "tuner.tuning",
    "launch": "tuner.launching.launch",
    "retune": "tuner.retuning.api",
    "tune": "tuner.tuning",
}
"""Modules of names that need Optuna, torch or Triton."""


def __getattr__(name: str) -> typing.Any:
    """Import a name on its first use, and keep it."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(importlib.import_module(_LAZY[name]), name)
    return found
