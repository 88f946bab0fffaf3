"""The parts of an autotuned function: its heuristics, its configs and the jit function under them.

Triton nests them: each decorator holds the one below as `fn`. They are recognised by their attributes, so that
subclasses and wrappers of other libraries are recognised too.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import FunctionType
from typing import Any

from tuner.errors import KernelFault
from tuner.kernels.dtypes import shown
from tuner.kernels.values import Value, equal

Heuristic = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Autotuned:
    """The parts of an autotuned function."""

    jit: Any
    """The jit function."""
    outer: Mapping[str, Heuristic] = field(default_factory=dict)
    """Heuristics around the autotuner, in the order in which they are evaluated, by the argument that they set."""
    inner: Mapping[str, Heuristic] = field(default_factory=dict)
    """Heuristics below the autotuner, which also depend on the config."""
    configs: tuple[Any, ...] = ()
    """Values of `triton.Config`."""
    reference: Callable[..., Any] | None = None
    """The author's reference, as given to `tuner.triton.autotune`."""

    @property
    def name(self) -> str:
        """Name of the jit function."""
        return str(self.jit.fn.__qualname__)

    @property
    def place(self) -> str:
        """File and line of the jit function."""
        code = self.jit.fn.__code__
        return f"{code.co_filename} line {code.co_firstlineno}"

    @cached_property
    def parameters(self) -> Mapping[str, bool]:
        """Parameters of the jit function in their order; True for one that has a default."""
        found = inspect.signature(self.jit.fn).parameters
        return {name: parameter.default is not inspect.Parameter.empty for name, parameter in found.items()}

    def chosen(self, config: Mapping[str, Value]) -> dict[str, Any]:
        """Return the arguments and options that a config sets. Options that are None are left to the compiler."""
        given = {}
        for name, value in config.items():
            if value is not None:
                given[name] = self._listed(name, value)
            elif name not in self.inner and self.parameters.get(name) is False:
                given[name] = None
        return given

    def pre_hook(self, config: Mapping[str, Value]) -> Callable[[dict[str, Any]], object] | None:
        """Return the `pre_hook` of the listed config that shares the most values with a config."""
        if not any(listed.pre_hook for listed in self.configs):
            return None

        def common(listed: Any) -> int:
            values = listed.all_kwargs()
            return sum(name in values and _is(values[name], value) for name, value in config.items())

        nearest = max(self.configs, key=common)
        hook: Callable[[dict[str, Any]], object] | None = nearest.pre_hook
        return hook

    def _listed(self, name: str, value: Value) -> Any:
        """Return the object of a listed config for a plain value, such as the dtype for its name."""
        if isinstance(value, str):
            for listed in self.configs:
                if name in listed.kwargs and _is(listed.kwargs[name], value):
                    return listed.kwargs[name]
        return value


def taken_apart(function: Any) -> Autotuned:
    """Return the parts of an autotuned function, of heuristics or of a plain jit function.

    Raises:
        KernelFault: it is none of them.
    """
    outer: dict[str, Heuristic] = {}
    inner: dict[str, Heuristic] = {}
    tuner, layer, seen = None, function, 0
    while not _is_jit(layer):
        if isinstance(values := getattr(layer, "values", None), Mapping):
            (outer if tuner is None else inner).update(values)
        elif isinstance(getattr(layer, "configs", None), list | tuple) and tuner is None:
            tuner = layer
        layer, seen = getattr(layer, "fn", None), seen + 1
        if layer is None or seen > _DEEPEST:
            raise KernelFault(
                f"a captured call has a function under @triton.autotune or @triton.jit, not {shown(function)}; "
                "capture it again"
            )
    configs = () if tuner is None else tuple(tuner.configs)
    return Autotuned(layer, outer, inner, configs, getattr(tuner, "reference", None))


_DEEPEST = 32
"""Most decorators around a jit function."""


def _is_jit(layer: Any) -> bool:
    return hasattr(layer, "arg_names") and isinstance(getattr(layer, "fn", None), FunctionType)


def _is(listed: Any, value: Value) -> bool:
    """Return whether an object of a listed config equals the plain value of a captured config."""
    listed = getattr(listed, "value", listed)  # of a constexpr
    if listed is None or isinstance(listed, bool | int | float | str):
        return equal(listed, value)
    if not isinstance(value, str):
        return False
    import triton.language as tl

    return value == str(listed) or bool(getattr(tl, value, None) == listed)


__all__ = ["Autotuned", "Heuristic", "taken_apart"]
