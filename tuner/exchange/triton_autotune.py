"""The cache of `triton.autotune`: `KERNEL.autotune.json` holds one problem with the timings of all configs.

Triton writes it with TRITON_CACHE_AUTOTUNING=1. Its key holds the values that the kernel was tuned by, without their
names, then the dtypes of the tensors. The card and Triton's version are not in the file: both are part of the hash
that names its folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.imported import UNKNOWN_FORMAT, ImportedConfig, ImportFile, ImportOptions
from tuner.kernels.spec import Value, dtype_name
from tuner.records.strict import LARGEST

_SUFFIX = ".autotune.json"
_POLICY = "triton-autotune"


def imported_config(file: ImportFile, options: ImportOptions) -> ImportedConfig | None:
    """Return the fastest config of such a file, or None if the file is another.

    Raises:
        UsageError: The file lacks a field, no config ran, or the options do not state the card.
    """
    document = file.document
    if not file.name.endswith(_SUFFIX) or not isinstance(document, dict):
        return None
    key, timings = document.get("key"), document.get("configs_timings")
    if not isinstance(key, list) or not isinstance(timings, list):
        raise UsageError(f"{UNKNOWN_FORMAT}: a cache of triton.autotune has the lists key and configs_timings")
    if options.device is None:
        raise UsageError("a cache of triton.autotune does not state its card; give --device ID")
    config, milliseconds = _fastest(timings)
    values, dtypes = _split(key)
    named = _named(values, list(options.problem))
    return ImportedConfig(
        file=file.shown,
        op=options.op or file.name.removesuffix(_SUFFIX).lower().lstrip("_"),
        dims={name: value for name, value in named.items() if type(value) is int},
        config=config,
        device=options.device,
        dtype=dtypes[0],
        attributes={name: _attribute(value) for name, value in named.items() if type(value) is not int}
        | ({} if len(set(dtypes)) == 1 else {"tensors": "-".join(dtypes)}),
        triton=options.triton,
        policy=_POLICY,
        latency_us=1000 * milliseconds,
    )


def _fastest(timings: Sequence[Any]) -> tuple[dict[str, Any], float]:
    """Return the config with the lowest median latency, and that latency in milliseconds."""
    best, least = None, LARGEST
    for entry in timings:
        match entry:
            case [dict(config), [int() | float() as median, *_]] | [dict(config), int() | float() as median]:
                if type(median) is not bool and 0 < median < least:
                    best, least = config, float(median)
            case _:
                raise UsageError(f"{UNKNOWN_FORMAT}: an entry of configs_timings is a config with its timings")
    if best is None:
        raise UsageError("no config of it ran")
    return _config(best), least


def _config(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the knobs of a stored `triton.Config`, without launch options that are left to Triton."""
    knobs = stored.get("kwargs")
    if not isinstance(knobs, dict):
        raise UsageError(f"{UNKNOWN_FORMAT}: a config of triton.autotune has kwargs")
    if stored.get("ir_override") or stored.get("pre_hook"):
        raise UsageError("a config is imported if it is knobs only, and the fastest one has an ir_override or a hook")
    launch = {name: stored.get(name) for name in ("num_warps", "num_stages", "num_ctas", "maxnreg")}
    stated = {name: value for name, value in launch.items() if value is not None and (name, value) != ("num_ctas", 1)}
    return {**knobs, **stated}


def _split(key: Sequence[Any]) -> tuple[list[Any], list[str]]:
    """Return the values of a key and the dtypes of its tensors."""
    tensors = [value for value in key if isinstance(value, str) and value.startswith("torch.")]
    if not tensors:
        raise UsageError(f"{UNKNOWN_FORMAT}: a key of triton.autotune ends with the dtypes of its tensors")
    return [value for value in key if value not in tensors], [dtype_name(tensor) for tensor in tensors]


def _named(values: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    names = names or [f"key{number}" for number in range(len(values))]
    if len(names) != len(values):
        raise UsageError(f"its key has {len(values)} values, and --problem names {len(names)}; name each value")
    return dict(zip(names, values, strict=True))


def _attribute(value: Any) -> Value:
    """Return a value of the key that is not a size, as an attribute's value."""
    if isinstance(value, bool):
        return value
    return "none" if value is None else re.sub(r"\s", "", str(value)) or "empty"
