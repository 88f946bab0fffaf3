"""Conversion of Triton's configs to values by knob, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import triton.language as tl
from triton.runtime.autotuner import Autotuner, Config

from tuner.captured.autotuned import taken_apart
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Value
from tuner.triton.refusal import CannotCapture

LAUNCH_OPTIONS: Mapping[str, Value] = {"num_ctas": 1, "maxnreg": None}
"""Options of a config beside `num_warps` and `num_stages`, with Triton's defaults."""
_DTYPES: dict[str, str] = {
    value.name: name for name in dir(tl) if isinstance(value := getattr(tl, name), tl.dtype) and name != "void"
}
"""Names in `triton.language` by Triton's short names."""


def dtype_in_triton(dtype: tl.dtype) -> str:
    """Return the name of a dtype in `triton.language`: `float16`. Raises CannotCapture if it has none."""
    name = _DTYPES.get(dtype.name)
    if name is None or getattr(tl, name) != dtype:
        raise CannotCapture(f"a dtype among the arguments has a name in triton.language, not {shown(str(dtype))}")
    return name


def plain_value(value: Any, owner: str) -> Value:
    """Return a value as a plain number, bool, text or None, also that of a `constexpr` or a numpy scalar.

    Args:
        owner: subject of the error, such as `the argument N`.

    Raises:
        CannotCapture: it is another object.
    """
    if isinstance(value, tl.constexpr):
        value = value.value
    if value is None or type(value) in (bool, int, float, str):
        return value  # type: ignore[no-any-return]
    if type(value).__module__ == "numpy" and getattr(value, "ndim", 1) == 0:
        return plain_value(value.item(), owner)
    for kind in (bool, int, float, str):
        if isinstance(value, kind):  # a subclass, such as a number of numpy or an IntEnum
            return kind(value)
    raise CannotCapture(f"{owner} is a number, a text, a bool, None or a dtype, not {shown(value)}; pass one of these")


def knob_value(value: Any, name: str) -> Value:
    """Return the value of a knob; a dtype is its name in `triton.language`. Raises CannotCapture as `plain_value`."""
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tl.dtype):
        return dtype_in_triton(value)
    found = plain_value(value, f"the value of {name} in a config")
    if type(found) is float and not math.isfinite(found):
        raise CannotCapture(f"the value of {name} in a config is finite, not {found}; choose another")
    return found


def values_of(configs: Sequence[Config], every: Iterable[Config] | None = None) -> tuple[Mapping[str, Value], ...]:
    """Return configs as values by knob, each with the same knobs.

    Args:
        configs: the configs, after pruning.
        every: all configs of the function, which decide the knobs; None is `configs`.

    Raises:
        CannotCapture: a value is no plain data, or a config overrides the compiler's intermediate code.
    """
    known = list(configs if every is None else every)
    names = list(dict.fromkeys(name for config in known for name in config.kwargs))
    stated = [name for name, usual in LAUNCH_OPTIONS.items() if any(getattr(each, name) != usual for each in known)]
    found = []
    for config in configs:
        if getattr(config, "ir_override", None) is not None or "ir_override" in config.kwargs:
            raise CannotCapture("a config of a captured function has no ir_override, and one has; remove it")
        for name in ("num_warps", "num_stages"):
            if type(getattr(config, name)) is not int:
                raise CannotCapture(f"a config states {name} as a number, not {shown(getattr(config, name))}; add it")
        values = {name: knob_value(config.kwargs[name], name) if name in config.kwargs else None for name in names}
        more = {name: getattr(config, name) for name in ("num_warps", "num_stages", *stated)}
        found.append({**values, **more})
    return tuple(found)


def config_of(values: Mapping[str, Value], autotuner: Autotuner) -> Config:
    """Return the config of Triton with such values: one of the function's configs, else a new one.

    A new one has the `pre_hook` of the config that shares the most values with it.

    Raises:
        CannotCapture: as `values_of`.
    """
    for config, own in zip(autotuner.configs, values_of(autotuner.configs), strict=True):
        if _equal(own, values):
            return config
    parts = taken_apart(autotuner)
    given = parts.chosen(values)
    options = {name: given.pop(name) for name in ("num_warps", "num_stages", *LAUNCH_OPTIONS) if name in given}
    return Config(given, **options, pre_hook=parts.pre_hook(values))


def _equal(own: Mapping[str, Value], values: Mapping[str, Value]) -> bool:
    """Return whether a config has these values; options that one of them leaves out are at Triton's default."""
    names = {**own, **values}
    return all(
        (own.get(name, LAUNCH_OPTIONS.get(name)), type(own.get(name, LAUNCH_OPTIONS.get(name))))
        == (values.get(name, LAUNCH_OPTIONS.get(name)), type(values.get(name, LAUNCH_OPTIONS.get(name))))
        for name in names
    )
