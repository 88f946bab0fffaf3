"""`autotune` in place of Triton's: the same decorator, whose configs come from the store."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from triton.runtime import autotuner as triton_autotuner

from tuner.errors import UsageError
from tuner.kernels.dtypes import shown
from tuner.triton.choice import PLAIN, Stated
from tuner.triton.compiled import EarlyPrune
from tuner.triton.context import CONTEXT, Context
from tuner.triton.mode import checked
from tuner.triton.running import at, run
from tuner.triton.served import STATE, Served, served_of


class Autotuner(triton_autotuner.Autotuner):  # type: ignore[misc]
    """An autotuned function whose configs come from the store. Made by `autotune`.

    Args:
        args: arguments of Triton's class, positional and named.
        stated: keywords of `autotune` beside Triton's.
        reference: the author's reference.
        context: state that the autotuned functions of this process share.
    """

    early_config_prune = EarlyPrune()

    def __init__(
        self,
        *args: Any,
        stated: Stated = PLAIN,
        reference: Callable[..., Any] | None = None,
        context: Context = CONTEXT,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.reference = reference
        self.__dict__[STATE] = Served(self, stated, context)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Launch the function with the config of this call. Return what Triton returns."""
        return run(served_of(self), args, kwargs)

    __getitem__ = at


def autotune(
    configs: list[Any],
    key: list[str],
    prune_configs_by: dict[str, Any] | None = None,
    reset_to_zero: list[str] | None = None,
    restore_value: list[str] | None = None,
    pre_hook: Callable[..., Any] | None = None,
    post_hook: Callable[..., Any] | None = None,
    warmup: int | None = None,
    rep: int | None = None,
    use_cuda_graph: bool = False,
    do_bench: Callable[..., Any] | None = None,
    cache_results: bool = False,
    *,
    mode: str | None = None,
    reference: Callable[..., Any] | None = None,
    op: str | None = None,
    widen: bool = False,
    values: bool | None = None,
) -> Callable[[Any], Autotuner]:
    """Decorate a function under `@triton.jit` so that its stored config is launched.

    The arguments up to `cache_results` are those of `triton.autotune`.

    Args:
        configs: values of `triton.Config`.
        key: names of the arguments whose values select a config.
        prune_configs_by: dict with `early_config_prune`, `perf_model` and `top_k`, as Triton takes it.
        reset_to_zero: arguments that are set to zero before a config is timed.
        restore_value: arguments that are restored after a config is timed.
        pre_hook: called before each launch that is timed; such a function is tuned in this process.
        post_hook: called after each launch that is timed; such a function is tuned in this process.
        warmup: deprecated by Triton.
        rep: deprecated by Triton.
        use_cuda_graph: deprecated by Triton.
        do_bench: benchmark of the caller; such a function is tuned in this process.
        cache_results: whether Triton keeps what it times on disk.
        mode: `"serve"` launches the stored config, a neighbour's or the first one; `"capture"` also stores calls that
            have no config; `"tune"` searches at their first call; `"off"` does as Triton does. None uses
            `TUNER_AUTOTUNE`, or serve if that is not set.
        reference: plain PyTorch code that computes the results in higher precision. It takes arguments of the kernel by
            name and returns the written tensor, or a dict of several by name. None compares configs with each other.
        op: name under which answers are stored; None makes it of the names of module and function.
        widen: search the neighbours of the configs too.
        values: capture the elements of small integer tensors; None uses `TUNER_CAPTURE_VALUES`, by default 1.

    Raises:
        UsageError: `mode`, `op` or `reference` is not valid.
    """
    stated = Stated(checked(mode), _checked_op(op), widen, values)
    if reference is not None and not callable(reference):
        raise UsageError(f"reference is a function of the kernel's arguments, not {shown(reference)}; define it")
    options: dict[str, Any] = {
        "pre_hook": pre_hook, "post_hook": post_hook, "prune_configs_by": prune_configs_by,
        "warmup": warmup, "rep": rep, "use_cuda_graph": use_cuda_graph, "do_bench": do_bench,
        "cache_results": cache_results,
    }  # fmt: skip
    known = {name: value for name, value in options.items() if name in _parameters()}

    def decorate(fn: Any) -> Autotuner:
        return Autotuner(
            fn, fn.arg_names, configs, key, reset_to_zero, restore_value, stated=stated, reference=reference, **known
        )

    return decorate


@cache
def _parameters() -> frozenset[str]:
    """Return the parameters of Triton's class in the installed version."""
    return frozenset(inspect.signature(triton_autotuner.Autotuner.__init__).parameters)


def _checked_op(op: str | None) -> str | None:
    if op is not None and (not isinstance(op, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", op)):
        raise UsageError(f"an op's name is lower-case letters, digits and _, up to 64, not {shown(op)}; rename it")
    return op
