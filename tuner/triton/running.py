"""One call of an autotuned function: find its config, launch it, and repeat the launch when the call recurs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from triton.runtime.autotuner import Autotuner, Config

from tuner.launching.calls import is_refusal
from tuner.triton.choice import Choice
from tuner.triton.fast import FastCalls
from tuner.triton.mode import OFF
from tuner.triton.served import STATE, Served, served_of
from tuner.triton.whole_process import run_of_triton

AsTriton = Callable[..., Any]
"""Triton's own `run`, bound to the autotuner."""


def run(served: Served, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Launch a call with its config. Return what Triton returns."""
    named = dict(kwargs)
    grid, is_warmup = named.pop("grid", None), named.pop("warmup", False)
    if grid is None or is_warmup:
        return serve(served, run_of_triton(served.autotuner), args, kwargs)
    return calls_of(served).call(grid, *args, **named)


def calls_of(served: Served) -> FastCalls:
    """Return the `FastCalls` of a function, made at its first call."""
    if served.calls is None:
        with served.lock:
            if served.calls is None:
                served.calls = FastCalls(served.autotuner, partial(_ordinary, served), chosen=served.settled)
    return served.calls


def at(autotuner: Autotuner, grid: Any) -> Callable[..., Any]:
    """Return the function that launches an autotuned function with this grid."""
    served = autotuner.__dict__.get(STATE)
    if served is None or served.autotuner is not autotuner:
        served = served_of(autotuner)
    return (served.calls or calls_of(served)).at(grid)


def _ordinary(served: Served, /, *args: Any, **kwargs: Any) -> Any:
    return serve(served, run_of_triton(served.autotuner), args, kwargs)


def serve(served: Served, as_triton: AsTriton, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Find the config of a call and launch it. Return what Triton returns.

    Args:
        as_triton: called for a function that is interpreted, in mode `off`, or that is tuned in this process.
    """
    mode = served.mode
    if mode == OFF or served.is_interpreted:
        served.forget()  # else Triton's autotuner would use configs that it has not found
        return as_triton(*args, **kwargs)
    choice = served.choice(args, kwargs, mode)
    if choice is None:
        with served.tuning:
            result = as_triton(*args, **kwargs)
            served.tuned_as_triton(args, kwargs)
        return result
    return _launch_chosen(served, choice, args, kwargs)


def _launch_chosen(served: Served, choice: Choice, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Launch the config of a call. If a stored one is refused and the first one is not, keep the first one instead."""
    autotuner, config = served.autotuner, choice.config
    try:
        result = _launch(autotuner, config, args, kwargs)
    except Exception as error:
        if config is choice.first or not is_refusal(error):
            raise
        result = _launch(autotuner, choice.first, args, kwargs)  # raises what the caller's own functions raise
        served.keep_first(choice, error)
    choice.has_run = True
    return result


def _launch(autotuner: Autotuner, config: Config, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Launch a config as Triton's autotuner launches a cached one."""
    autotuner.best_config = config
    autotuner.nargs = named = dict(zip(autotuner.arg_names, args, strict=False))
    settings = config.all_kwargs()
    if config.pre_hook is not None:
        config.pre_hook({**named, **kwargs, **settings})
    result = autotuner.fn.run(*args, **kwargs, **settings)
    autotuner.nargs = None
    return result
