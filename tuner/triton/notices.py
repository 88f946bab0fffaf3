"""Notices of a chosen config as Triton gives them: to its listener, in versions that have one, and on stdout."""

from __future__ import annotations

from typing import Any

from triton import knobs
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import JITFunction


def innermost(autotuner: Autotuner) -> Any:
    """Return the function under `@triton.jit` that an autotuner wraps."""
    inner = autotuner.fn
    while not isinstance(inner, JITFunction | InterpretedFunction) and hasattr(inner, "fn"):
        inner = inner.fn
    return inner


def notify_served(autotuner: Autotuner, key: tuple[Any, ...], config: Config) -> None:
    """Notify Triton's listener of a stored config."""
    _notify(autotuner, key, config, {}, None)


def notify_tuned(autotuner: Autotuner, key: tuple[Any, ...], config: Config) -> None:
    """Notify Triton's listener of a config that was just found, with the autotuner's timings; print it if asked."""
    _notify(autotuner, key, config, autotuner.configs_timings, autotuner.bench_time)
    if knobs.autotuning.print:
        print(  # noqa: T201  as Triton does
            f"Triton autotuning for function {autotuner.base_fn.__name__},\nwith key as {key},\n"
            f"finished after {autotuner.bench_time:.2f}s,\nbest config selected: {config};"
        )


def _notify(
    autotuner: Autotuner,
    key: tuple[Any, ...],
    config: Config,
    timings: dict[Config, list[float]],
    seconds: float | None,
) -> None:
    listener = getattr(knobs.autotuning, "listener", None)
    if listener is not None:
        listener(
            fn=innermost(autotuner),
            key=key,
            best_config=config,
            configs_timings=timings,
            duration=seconds,
            cache_hit=seconds is None,
        )
