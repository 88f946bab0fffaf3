"""Rules of repeated calls: which functions, arguments and settings are usual, and how an argument is keyed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from typing import Any

import torch
import triton.language as tl
from triton import knobs
from triton.runtime.autotuner import Autotuner, Heuristics
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.triton.fast_source import Kind

_PLAIN = {bool, int, float, str, torch.dtype}
"""Types of values that are keyed by themselves."""


def jit_function(tuner: Autotuner) -> tuple[JITFunction[Any] | None, dict[str, Callable[[Any], Any]]]:
    """Return the function under the decorators and what its heuristics compute, or None if others are among them."""
    heuristics: dict[str, Callable[[Any], Any]] = {}
    fn = tuner.fn
    while type(fn) is Heuristics:
        heuristics |= fn.values
        fn = fn.fn
    if not isinstance(fn, JITFunction) or "run" in vars(fn):
        return None, {}
    its_run = type(fn).run
    if (its_run.__module__, its_run.__qualname__) != ("triton.runtime.jit", "JITFunction.run"):  # as profilers patch it
        return None, {}
    simple = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    if any(param.kind not in simple for param in fn.signature.parameters.values()):
        return None, {}
    constant = {param.name for param in fn.params if param.is_constexpr}
    return (fn, heuristics) if constant.issuperset(heuristics) else (None, {})


def as_given(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return arguments with copies of the descriptors, whose block shapes a hook may set."""
    return tuple(copy(value) if type(value) is TensorDescriptor else value for value in values)


def kind_of(value: Any, by_value: bool, is_constant: bool) -> Kind | None:
    """Return how an argument is keyed, or None if it is unusual."""
    if value is None:
        return "none"
    if by_value:
        if type(value) in _PLAIN:
            return "value"
        return "object" if is_constant and isinstance(value, tl.dtype | JITFunction) else None
    if type(value) in (torch.Tensor, torch.nn.Parameter):
        return "tensor"
    if type(value) is TensorDescriptor:
        return "descriptor" if type(value.base) in (torch.Tensor, torch.nn.Parameter) else None
    if type(value) is int:
        return "number"
    return "passed" if type(value) in (float, bool) else None


def nothing_is_set(fn: Any) -> bool:
    """Return whether no hook and no instrumentation is in use, and the hooks are chains as Triton's are."""
    hooks = knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook
    return (
        all(isinstance(hook, knobs.HookChain) and not hook.calls for hook in hooks)
        and not fn.pre_run_hooks
        and not knobs.runtime.debug
        and not knobs.compilation.instrumentation_mode
        and knobs.runtime.add_stages_inspection_hook is None
    )


def computed(heuristics: Mapping[str, Callable[[Any], Any]], named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the types and values that heuristics compute, each with those before it."""
    found: list[Any] = []
    for name, heuristic in heuristics.items():
        named[name] = heuristic(named)
        found += [type(named[name]), named[name]]
    return tuple(found)


def widths(*numbers: int) -> tuple[int, ...]:
    """Return the class of each number: of 32 bits, of 64, of 64 without a sign, or larger."""
    return tuple(
        0 if -(2**31) <= n < 2**31 else 1 if -(2**63) <= n < 2**63 else 2 if 0 <= n < 2**64 else 3 for n in numbers
    )


def changed(fn: Any) -> bool:
    """Return whether a global variable differs from when the function was compiled. Triton then raises."""
    return any(
        name not in its_globals or its_globals[name] != value
        for (name, _), (value, its_globals) in fn.used_global_vals.items()
    )
