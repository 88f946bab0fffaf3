"""FlagGems: its kernels under `libtuner` launch stored configs.

`install()` in a program that uses FlagGems, before or after its import; `tuner run` does it too. It replaces
`LibTuner.run`. `LibTuner.register_policy` is no alternative: a policy does not get the kernel and is called only if
FlagGems's own database has no config, and the database keeps every config that it returns, also a fallback.

A problem has the values in the key as the kernel's strategy makes them, such as sizes rounded up to a multiple of 32.
Without a stored answer the config is the one that FlagGems measured earlier, else the first. Except in mode `off`,
nothing is measured and nothing is written to FlagGems's database.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, update_wrapper
from threading import RLock
from types import ModuleType
from typing import Any

from triton.runtime.autotuner import Autotuner, Config

from tuner.captured.call import CapturedCall
from tuner.engines.after_import import after_import
from tuner.triton.choice import PLAIN, Choice, Given
from tuner.triton.configs import plain_value
from tuner.triton.context import CONTEXT, Context
from tuner.triton.running import serve
from tuner.triton.served import STATE, Served

_MODULE = "flag_gems.utils.libentry"


@dataclass
class _State:
    """State of `install`."""

    is_asked: bool = False
    """True if `LibTuner.run` is replaced, or will be once FlagGems is imported."""
    is_on: bool = False


_state = _State()
_lock = RLock()


def install() -> None:
    """Launch stored configs from FlagGems's kernels, once it is imported."""
    with _lock:
        _state.is_on = True
        if not _state.is_asked:
            _state.is_asked = True
            after_import(_MODULE, _replace_run)


def uninstall() -> None:
    """Let FlagGems choose and measure configs by itself again."""
    with _lock:
        _state.is_on = False


def _replace_run(module: ModuleType) -> None:
    original = module.LibTuner.run

    def run(self: Autotuner, *args: Any, **kwargs: Any) -> Any:
        if not _state.is_on:
            return original(self, *args, **kwargs)
        served = _served_of(self)
        return serve(served, partial(served.as_flaggems, original), args, kwargs)

    module.LibTuner.run = update_wrapper(run, original)


def _served_of(tuner: Autotuner) -> _ServedByFlagGems:
    """Return the state of a `LibTuner`, made at the first call."""
    served = tuner.__dict__.get(STATE)
    if not isinstance(served, _ServedByFlagGems):
        with _lock:
            served = tuner.__dict__.get(STATE)
            if not isinstance(served, _ServedByFlagGems):
                served = tuner.__dict__[STATE] = _ServedByFlagGems(tuner)
    return served


class _ServedByFlagGems(Served):
    """The configs of one `LibTuner`.

    Its `cache` is FlagGems's database. A dictionary replaces it, so that served configs are not kept there.
    """

    def __init__(self, tuner: Autotuner, context: Context = CONTEXT) -> None:
        self._measured, tuner.cache = tuner.cache, {}
        super().__init__(tuner, PLAIN, context)

    def key(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a call as FlagGems makes it."""
        given = {name: value for name, value in {**named, **kwargs}.items() if name in self._names}
        return tuple(self.autotuner.get_key(given))

    def as_flaggems(self, original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Run a call as FlagGems does, which measures configs and keeps the best one in its database."""
        tuner = self.autotuner
        with self.tuning:
            tuner.cache, served = self._measured, tuner.cache
            try:
                result = original(tuner, *args, **kwargs)
            finally:
                tuner.cache = served
            served[self._given(args, kwargs).key] = tuner.best_config
        return result

    def _described(self, pruned: Sequence[Config], given: Given) -> CapturedCall:
        call = super()._described(pruned, given)
        strategies = dict(zip(self.autotuner.keys, self.autotuner.strategy, strict=True))
        key = {
            name: plain_value(strategies[name](value), f"the key {name} by its strategy")
            for name, value in call.key.items()
        }
        return replace(call, key=key)

    def _looked_up(self, pruned: Sequence[Config], given: Given) -> Choice:
        found = super()._looked_up(pruned, given)
        if found.match == "none":
            found.config = self._measured_before(given.key) or found.config
        return found

    def _measured_before(self, key: tuple[Any, ...]) -> Config | None:
        """Return the config that FlagGems has measured to be the best in an earlier run, or None."""
        try:
            kept = self._measured.get(key)
        except Exception as error:  # noqa: BLE001  no error of a database may stop a model
            self.context.warn(f"{self.name}: FlagGems's database cannot be read: {type(error).__name__}: {error}")
            return None
        listed = self.autotuner.configs  # those have the pre_hook, which the database has not
        return None if kept is None else next((each for each in listed if each.all_kwargs() == kept.all_kwargs()), None)
