"""Tuned configs for kernels under `@triton.autotune`, without rewriting them.

`from tuner.triton import autotune` in place of Triton's, or `install()` for every autotuned function of the process.
Nothing is patched unless `install` is called. Importing this package imports neither torch nor triton, since Triton may
import it before its own import is complete.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tuner.triton.autotuner import Autotuner, autotune
    from tuner.triton.cache_manager import CacheManager
    from tuner.triton.whole_process import install, uninstall

__all__ = ["Autotuner", "CacheManager", "autotune", "install", "uninstall"]

_MODULES = {
    "Autotuner": "tuner.triton.autotuner",
    "CacheManager": "tuner.triton.cache_manager",
    "autotune": "tuner.triton.autotuner",
    "install": "tuner.triton.whole_process",
    "uninstall": "tuner.triton.whole_process",
}


def __getattr__(name: str) -> Any:
    """Import a name on its first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
