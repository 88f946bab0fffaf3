"""Stored configs under `torch.compile`, which does not call an autotuner's `run` but traces its pruning function.

Dynamo traces `early_config_prune` with symbolic arguments and passes the returned configs to Inductor, which times them
if there are several. So the function returns only the stored config if there is one. Otherwise, and if a size is
symbolic, it returns the configs that the caller's own pruning leaves.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from triton.runtime.autotuner import Autotuner

NAME = "early_config_prune"
_WRAPPED = "_tuner_prune"
"""Attribute of an autotuner with the caller's own function and the one that replaces it."""


class EarlyPrune:
    """The attribute `early_config_prune` of an autotuner, which also finds stored configs while torch compiles.

    Dynamo copies the autotuners that it traces, without their keys. These copies have no stored configs.
    """

    def __get__(self, autotuner: Any, owner: Any = None) -> Any:
        if autotuner is None:
            return self
        own = autotuner.__dict__.get(NAME)
        if not autotuner.keys and type(autotuner) is Autotuner:
            return own
        kept = autotuner.__dict__.get(_WRAPPED)
        if kept is None or kept[0] is not own:  # guards of compiled code compare it
            kept = autotuner.__dict__[_WRAPPED] = own, _finding(autotuner, own)
        return kept[1]

    def __set__(self, autotuner: Any, value: Any) -> None:
        autotuner.__dict__[NAME] = value


def _finding(autotuner: Autotuner, own: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return the function that prunes as `own` does, and finds a stored config while torch compiles.

    Dynamo traces it, so it calls only functions that dynamo supports, and reads a config from an attribute that dynamo
    can guard.
    """
    names, keys = tuple(autotuner.arg_names), tuple(autotuner.keys)
    stored = SimpleNamespace()
    times = _times(autotuner)

    def find(key: tuple[tuple[str, Any], ...], dtypes: tuple[tuple[str, str | None], ...]) -> str:
        from tuner.triton.served import served_of

        config = served_of(autotuner).stored_config(dict(key), dict(dtypes))
        if config is None:
            return ""
        name = f"config{len(vars(stored))}"
        for known, other in vars(stored).items():
            name = known if other == config else name
        setattr(stored, name, config)
        return name

    find._dynamo_marked_constant = True  # type: ignore[attr-defined]  # called while tracing, with the values

    def early_config_prune(configs: Any, named_args: Mapping[str, Any], /, **kwargs: Any) -> Any:
        import torch

        if torch.compiler.is_dynamo_compiling() or _has_fakes(named_args, kwargs):
            from torch.fx.experimental.symbolic_shapes import has_static_value

            given = {**named_args, **kwargs}
            key = tuple((name, given[name]) for name in keys if name in given)
            if all(
                value is None or isinstance(value, str) or (isinstance(value, int | float) and has_static_value(value))
                for _, value in key
            ):
                optional = [(name, given[name]) for name in names if name in given]
                found = find(
                    key,
                    tuple(
                        (name, None if value is None else str(value.dtype))
                        for name, value in optional
                        if value is None or isinstance(value, torch.Tensor)
                    ),
                )
                if found:
                    return [getattr(stored, found)] * times
        return configs if own is None else own(configs, named_args, **kwargs)

    return early_config_prune


def _has_fakes(named_args: Mapping[str, Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call is traced without dynamo, as `torch.library.wrap_triton` does."""
    fakes = sys.modules.get("torch._subclasses.fake_tensor")
    return fakes is not None and any(
        isinstance(value, fakes.FakeTensor) for value in (*named_args.values(), *kwargs.values())
    )


def _times(autotuner: Autotuner) -> int:
    """Return the number of copies of a config to return, of which dynamo keeps one after applying `top_k`."""
    top_k = autotuner.configs_top_k
    if autotuner.perf_model is None or not isinstance(top_k, float) or not 0 < top_k < 1:
        return 1
    return int(1 / top_k) + 1
