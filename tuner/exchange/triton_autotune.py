"""What `triton.autotune` keeps with TRITON_CACHE_AUTOTUNING=1: `KERNEL.autotune.json`, one problem and all its timings.

The key holds the values that the kernel was tuned by, without their names, then the dtypes of its tensors. Neither the
card nor Triton's version is in it: both went into the hash that names the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import inf, isfinite
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.claim import NOT_KNOWN, Claim, Given, TunedFile
from tuner.kernels.spec import Value, dtype_name

_SUFFIX = ".autotune.json"
_POLICY = "triton-autotune"


def claim(file: TunedFile, given: Given) -> Claim | None:
    """The fastest config of such a file; None if it is none.

    Raises:
        UsageError: it does not say enough, or no config ran.
    """
    document = file.document
    if not file.name.endswith(_SUFFIX) or not isinstance(document, dict):
        return None
    key, timings = document.get("key"), document.get("configs_timings")
    if not isinstance(key, list) or not isinstance(timings, list):
        raise UsageError(f"{NOT_KNOWN}: it has no key with configs_timings")
    if given.device is None:
        raise UsageError("it does not say which card it was timed on; give --device ID")
    config, milliseconds = _fastest(timings)
    values, dtypes = _split(key)
    named = _named(values, list(given.problem))
    return Claim(
        file=file.name,
        op=given.op or file.name.removesuffix(_SUFFIX).lower().lstrip("_"),
        dims={name: value for name, value in named.items() if type(value) is int},
        config=config,
        device=given.device,
        dtype=dtypes[0],
        attributes={name: _attribute(value) for name, value in named.items() if type(value) is not int}
        | ({} if len(set(dtypes)) == 1 else {"tensors": "-".join(dtypes)}),
        triton=given.triton,
        policy=_POLICY,
        latency_us=1000 * milliseconds,
    )


def _fastest(timings: Sequence[Any]) -> tuple[dict[str, Any], float]:
    """The config with the least median, and that, in milliseconds."""
    best, least = None, inf
    for entry in timings:
        match entry:
            case [dict(config), [int() | float() as median, *_]] | [dict(config), int() | float() as median]:
                if 0 < median < least:
                    best, least = config, float(median)
            case _:
                raise UsageError(f"{NOT_KNOWN}: an entry of configs_timings has no timings")
    if best is None or not isfinite(least):
        raise UsageError("no config of it ran")
    return _config(best), least


def _config(stored: Mapping[str, Any]) -> dict[str, Any]:
    """What a launch of it takes, what is at Triton's default left out."""
    knobs = stored.get("kwargs")
    if not isinstance(knobs, dict):
        raise UsageError(f"{NOT_KNOWN}: a config has no kwargs")
    if stored.get("ir_override") or stored.get("pre_hook"):
        raise UsageError("its fastest config is more than knobs: it overrides code or has a hook")
    launch = {name: stored.get(name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    return {**knobs, **{name: value for name, value in launch.items() if (name, value) != ("num_ctas", 1) and value}}


def _split(key: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """The values, and the dtypes of the tensors behind them."""
    tensors = [value for value in key if isinstance(value, str) and value.startswith("torch.")]
    if not tensors:
        raise UsageError("its key names no dtype of a tensor")
    return [value for value in key if value not in tensors], [dtype_name(tensor) for tensor in tensors]


def _named(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    names = names or [f"key{number}" for number in range(len(values))]
    if len(names) != len(values):
        raise UsageError(f"its key has {len(values)} values, and --problem names {len(names)}")
    return dict(zip(names, values, strict=True))


def _attribute(value: Any) -> Value:
    """A value of the key that is no size."""
    if isinstance(value, bool):
        return value
    return "none" if value is None else re.sub(r"\s", "", str(value)) or "empty"
