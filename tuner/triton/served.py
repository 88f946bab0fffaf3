"""The configs of one autotuned function: found for each key on first use, then kept."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import RLock
from typing import Any

from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.interpreter import InterpretedFunction

from tuner.captured.call import CapturedCall, Function, TensorArgument
from tuner.captured.kernel import kernel_of
from tuner.captured.problem import dtypes_of, problem_of_call, problem_values
from tuner.client import run_report
from tuner.client.best import Best
from tuner.errors import unraised
from tuner.kernels.dtypes import dtype_name
from tuner.kernels.spec import Value
from tuner.triton.capture import store_call
from tuner.triton.choice import FINAL, PLAIN, Choice, Given, Stated
from tuner.triton.configs import config_of, plain_value, values_of
from tuner.triton.context import CONTEXT, Context
from tuner.triton.describe import describe, pruned_configs
from tuner.triton.fast import FastCalls
from tuner.triton.mode import CAPTURE, OFF, SERVE, TUNE, Mode, from_environment
from tuner.triton.notices import innermost, notify_served
from tuner.triton.place import function_of, op_of
from tuner.triton.refusal import CannotCapture
from tuner.triton.search_now import search_now
from tuner.triton.whole_process import installed_mode

_log = logging.getLogger("tuner")

STATE = "_tuner"
"""Attribute of an autotuner that has its `Served`."""


class Served:
    """The configs of one autotuned function.

    Args:
        autotuner: the function.
        stated: what its decorator states.
        context: the shared part.
    """

    def __init__(self, autotuner: Autotuner, stated: Stated, context: Context = CONTEXT) -> None:
        self.stated, self.context = stated, context
        self.lock, self.tuning = RLock(), RLock()
        self.is_interpreted = isinstance(innermost(autotuner), InterpretedFunction)
        self.autotuner = autotuner
        self.calls: FastCalls | None = None
        """Its `FastCalls`; None before the first call."""
        self._names = frozenset(autotuner.arg_names)
        self._choices: dict[tuple[int, tuple[Any, ...]], Choice] = {}
        self._of_single: dict[tuple[Any, ...], Config] = {}
        """Configs of a function with a single config, which Triton does not keep in `cache`."""
        self._ours: dict[tuple[Any, ...], Config] = {}
        """Configs that this object has put into the autotuner's `cache`, by their keys there."""
        self._configs: tuple[Mapping[str, Value], ...] = ()
        """Configs of the last call that was described."""
        self._function: Function | CannotCapture | None = None
        context.enter(self)

    @property
    def mode(self) -> Mode:
        """The mode now: of the decorator, else of `install`, else of the environment."""
        return self.stated.mode or installed_mode() or from_environment(self.context.warn)

    @property
    def name(self) -> str:
        """Name of the function in messages."""
        return str(self.autotuner.base_fn.__name__)

    def choice(self, args: Sequence[Any], kwargs: Mapping[str, Any], mode: Mode) -> Choice | None:
        """Return the config of a call, or None if Triton's autotuner has to tune it in this process.

        Raises:
            ValueError: the call passes an argument that the configs set.
            AutotunerError: no config is left after pruning.
        """
        autotuner = self.autotuner
        if mode == TUNE and self._has_no_choice:
            return Choice(autotuner.configs[0], autotuner.configs[0], "given", has_run=True)
        given = self._given(args, kwargs)
        found = self._choices.get((given.card, given.key))
        if found is not None and (set_by_caller := self._set_by_caller(given.key, found.config)) is not None:
            return self._keep(given, Choice(set_by_caller, set_by_caller, "given", has_run=True))
        if found is None:
            found = self._first(given)
            if mode == SERVE and found.match == "none" and found.call is not None and not self._has_no_choice:
                self.context.warn(
                    f"{found.call.op}: the first config is launched for problems without an answer; "
                    "TUNER_AUTOTUNE=capture stores their calls, and tuner search --captured tunes them"
                )
        if mode == SERVE or mode in found.tried or found.match in FINAL:
            return found
        return self._more(found, given, mode)

    def key(self, named: Mapping[str, Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the key of a call, as Triton's autotuner makes it."""
        given = {name: value for name, value in {**named, **kwargs}.items() if name in self._names}
        key = [given[name] for name in self.autotuner.keys if name in given]
        key += [str(value.dtype) for value in given.values() if hasattr(value, "dtype")]
        return tuple(key)

    def stored_config(self, key: Mapping[str, Value], dtypes: Mapping[str, str | None]) -> Config | None:
        """Return the stored config of a problem, or None without one. Never raises.

        Args:
            key: arguments in the key.
            dtypes: dtype of each tensor argument, and None of each argument that is None, in their order.
        """
        autotuner = self.autotuner
        if self.mode == OFF:
            return None
        try:
            arguments = {
                name: None if dtype is None else TensorArgument((), (), dtype_name(dtype))
                for name, dtype in dtypes.items()
            }
            given = {name: plain_value(value, name) for name, value in key.items()}
            call = self._named(CapturedCall(self._place(), "", given, arguments, values_of(autotuner.configs)))
            best, _ = self._best(call, self.context.card())
            if best.config is None or best.match in ("none", "disabled"):
                return None
            config = config_of(best.config, autotuner)
        except CannotCapture:
            return None
        except Exception as error:  # noqa: BLE001  no error of ours may stop a model
            self._failed(error)
            return None
        is_listed = any(config is each for each in autotuner.configs)
        return config if is_listed or not isinstance(autotuner.fn, Heuristics) else None

    def settled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Config | None:
        """Return the config of a launched call, or None if the next such call may get another one."""
        mode, autotuner = self.mode, self.autotuner
        if mode == OFF:
            return None
        if mode == TUNE and self._has_no_choice:
            return autotuner.configs[0]
        given = self._given(args, kwargs)
        found = self._choices.get((given.card, given.key))
        if found is None or not found.has_run:
            return None
        return found.config if mode == SERVE or mode in found.tried or found.match in FINAL else None

    def tuned_as_triton(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Keep the config that Triton's autotuner found in this process. No refresh drops it."""
        given = self._given(args, kwargs)
        config = self._cache.get(given.key)
        if config is not None:
            self._keep(given, Choice(config, config, "given", has_run=True))

    def keep_first(self, refused: Choice, error: Exception) -> None:
        """Keep the first config in place of one that the card or the compiler refuses."""
        reason = " ".join(str(error).split())[:200]
        self.context.warn(
            f"{self.name}: the stored config {refused.config} cannot be launched ({type(error).__name__}: {reason}); "
            "the first config is launched"
        )
        with self.lock:
            refused.config, refused.match = refused.first, "none"
            for (_, key), choice in list(self._choices.items()):
                if choice is refused:
                    self._ours[key] = self._cache[key] = refused.config

    def forget(self) -> None:
        """Look up each config again."""
        with self.lock:
            self._choices.clear()
            for key in self._ours:
                self._cache.pop(key, None)
            self._ours.clear()

    @property
    def _cache(self) -> dict[tuple[Any, ...], Config]:
        return self._of_single if len(self.autotuner.configs) == 1 else self.autotuner.cache

    @property
    def _has_no_choice(self) -> bool:
        """True if only a widened search could find another config than the one that is listed."""
        return len(self.autotuner.configs) == 1 and not self.stated.widen

    def _given(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Given:
        named = dict(zip(self.autotuner.arg_names, args, strict=False))
        return Given(args, kwargs, named, self.context.card(), self.key(named, kwargs))

    def _first(self, given: Given) -> Choice:
        """Look up the config of a key, and keep it."""
        autotuner, generation = self.autotuner, self.context.generation
        if (set_by_caller := self._set_by_caller(given.key)) is not None:
            return self._keep(given, Choice(set_by_caller, set_by_caller, "given", has_run=True))
        if len(autotuner.configs) == 1:  # which Triton neither prunes nor keeps in its cache
            pruned = autotuner.configs
        else:
            pruned = pruned_configs(autotuner, given.named, given.kwargs)
            _refuse_conflicts(pruned, given.kwargs)
        found = self._looked_up(pruned, given)
        if not found.is_final or generation != self.context.generation:  # not read yet, or refreshed meanwhile
            return found
        if found.match in ("exact", "stale", "neighbour"):
            notify_served(autotuner, given.key, found.config)
        return self._keep(given, found)

    def _set_by_caller(self, key: tuple[Any, ...], usual: Config | None = None) -> Config | None:
        """Return the config that the caller or Triton has put into the autotuner's `cache`, or None without one.

        Args:
            usual: the config that is kept for the key.
        """
        config = self._cache.get(key)
        if config is None or config is usual:
            return None
        with self.lock:  # as another thread may be keeping the config of another card
            config = self._cache.get(key)
            return None if config is self._ours.get(key) else config

    def _looked_up(self, pruned: Sequence[Config], given: Given) -> Choice:
        """Return the stored config of a call, else the first one. An internal error gives the first one, too."""
        first = pruned[0]
        try:
            call = self._described(pruned, given)
            best, is_final = self._best(call, given.card)
        except CannotCapture as error:
            return Choice(first, first, refusal=str(error))
        except Exception as error:  # noqa: BLE001  no error of ours may stop a model
            return Choice(first, first, refusal=self._failed(error))
        if os.environ.get(run_report.VARIABLE):
            run_report.note(best.match, call.op, problem_of_call(call).text)
        if best.config is None or best.match in ("none", "disabled"):
            return Choice(first, first, best.match, call, is_final=is_final)
        try:
            return Choice(config_of(best.config, self.autotuner), first, best.match, call)
        except CannotCapture as error:
            return Choice(first, first, refusal=str(error))

    def _described(self, pruned: Sequence[Config], given: Given) -> CapturedCall:
        call = describe(self.autotuner, given.args, given.kwargs, pruned=pruned, function=self._place())
        configs = self._configs
        if call.configs != configs:
            configs = self._configs = call.configs
        return self._named(replace(call, configs=configs))  # those of all keys are mostly equal, and large

    def _place(self) -> Function:
        """Return the place of the function. Raises CannotCapture if it has none."""
        if self._function is None:
            try:
                self._function = function_of(self.autotuner)
            except CannotCapture as error:
                self._function = unraised(error)
        if isinstance(self._function, CannotCapture):
            raise unraised(self._function)
        return self._function

    def _named(self, call: CapturedCall) -> CapturedCall:
        return replace(call, op=self.stated.op or op_of(call.function))

    def _failed(self, error: Exception) -> str:
        """Log an internal error once. Return it on one line."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        _log.debug("looking up %s failed", self.name, exc_info=True)
        self.context.warn(f"{self.name}: the first config is launched, since {text}")
        return text

    def _best(self, call: CapturedCall, card: int) -> tuple[Best, bool]:
        kernel = kernel_of(call, widen=True, function=self.autotuner)
        return self.context.client.look_up(kernel, card, problem_values(call.key, dtypes_of(call.arguments)))

    def _more(self, found: Choice, given: Given, mode: Mode) -> Choice | None:
        """Capture or tune a call without a stored config of its own."""
        if self.context.is_recording():
            return found  # which forbids reading the device; a later call does it
        if mode == CAPTURE:
            found.tried.add(CAPTURE)
            store_call(self, found, given)
            return found
        with self.tuning:
            if TUNE in found.tried:
                return self._choices.get((given.card, given.key), found)
            found.tried.add(TUNE)
            searched = search_now(self, found, given)
            if searched.config is not None:
                return self._keep(given, Choice(searched.config, found.first, "tuned", found.call, tried={TUNE}))
            if searched.as_triton:
                self.autotuner.cache.pop(given.key, None)
                return None
            return found

    def _keep(self, given: Given, choice: Choice) -> Choice:
        """Keep a config, for its card here and in the autotuner's `cache` as Triton does."""
        at, cache = (given.card, given.key), self._cache
        with self.lock:
            if at not in self._choices and len(self._choices) >= self.context.settings.max_choices:
                oldest = next(iter(self._choices))
                del self._choices[oldest]
                self._ours.pop(oldest[1], None)
                cache.pop(oldest[1], None)
            self._choices[at] = choice
            if choice.match == "given":
                self._ours.pop(given.key, None)
            else:
                self._ours[given.key] = choice.config
            if cache.get(given.key) is not choice.config:
                cache[given.key] = choice.config
        return choice


def served_of(autotuner: Autotuner, stated: Stated = PLAIN, context: Context = CONTEXT) -> Served:
    """Return the `Served` of an autotuner, made at the first call."""
    served = autotuner.__dict__.get(STATE)
    if served is None:
        served = autotuner.__dict__.setdefault(STATE, Served(autotuner, stated, context))
    elif served.autotuner is not autotuner:  # a copy of an autotuner has the attributes of the original
        served = autotuner.__dict__[STATE] = Served(autotuner, served.stated, served.context)
    return served  # type: ignore[no-any-return]


def _refuse_conflicts(pruned: Sequence[Config], kwargs: Mapping[str, Any]) -> None:
    """Raise Triton's error if a call passes an argument that a config sets."""
    for config in pruned:
        if conflicts := kwargs.keys() & config.kwargs.keys():
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}."
                " Make sure that you don't re-define auto-tuned symbols."
            )
