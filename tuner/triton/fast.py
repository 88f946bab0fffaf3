"""Repeated calls of an autotuned function, at little cost for the host.

`kernel[grid](...)` binds, specializes and hashes all arguments at each call, and the autotuner makes a key of its own
before. Here only the first call of a kind takes that path. Its launch is kept under a key of the properties that Triton
specializes on. Later calls look up the key and call Triton's launcher in C. Unusual calls always take Triton's path:
hooks of launches, tuples, scratch memory, a debugger, launchers of other releases or devices.

The key is at least as fine as Triton's, so that a call launches what Triton would. Numbers are passed through and keyed
by their class, so those that change at each call, such as the length of a sequence, make no new entries.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from threading import RLock
from typing import Any
from weakref import WeakSet

import torch
import triton
from triton import knobs
from triton.compiler import CompiledKernel
from triton.runtime.autotuner import Autotuner, Config

from tuner.kernels.parts import exception_text
from tuner.launching.arguments import make_room
from tuner.launching.launcher import ONE_BY_ONE, fixed_arguments, is_known
from tuner.triton.fast_rules import as_given, changed, computed, jit_function, kind_of, nothing_is_set, widths
from tuner.triton.fast_source import Form, Given, Layout, missing, source
from tuner.triton.grid_calls import evaluated
from tuner.triton.mode import VARIABLE
from tuner.triton.watched import WatchedCache

_log = logging.getLogger("tuner")

_FIXED = 9 if ONE_BY_ONE else 11
"""Number of arguments that `fixed_arguments` returns."""
_ENVIRONMENT: Mapping[bytes, bytes] = getattr(os.environ, "_data", {})
"""The environment as bytes, which takes a tenth of the time of `os.environ` to read."""
_MODE = VARIABLE.encode()
_RUNTIME, _COMPILATION = vars(knobs.runtime), vars(knobs.compilation)
"""Settings and hooks of Triton; one is absent until it is changed."""
_Ordinary = Callable[..., Any]
"""The autotuner's own `run`: `ordinary(*args, grid=grid, warmup=False, **kwargs)`."""


@dataclass(frozen=True)
class FastSettings:
    """Limits of what is kept for one autotuned function."""

    most_forms: int = 16
    """Number of forms: ways to write a call, with the types of its arguments. Other calls take Triton's path."""
    most_launches: int = 1024
    """Number of launches that are kept for one form; then the oldest is dropped."""
    most_unusual: int = 256
    """Number of kinds of calls that are known to be unusual."""


@dataclass(frozen=True)
class _Known:
    """A form with its generated functions."""

    names: dict[str, Any]
    """Global names of its functions."""
    kept: dict[object, tuple[Any, ...]]
    """Launches by key; with heuristics, the config's values and launches by the heuristics' values."""
    layout: Layout


class FastCalls:
    """Calls of one autotuned function.

    `call(grid, *args, **kwargs)` launches, as `tuner[grid](*args, **kwargs)` does. A call is kept if a config is known
    for it afterwards: in the autotuner's `cache` under Triton's key, or as its only one.

    Args:
        tuner: the autotuned function. Its `cache` is replaced by one that is watched.
        ordinary: its `run`, which finds a config and launches it.
        settings: limits of what is kept.
        runs_on: type of the devices whose memory the kernel can use.
        chosen: returns the config of a call that was launched, or None if the call is not to be kept; None looks in
            the autotuner's `cache`.
    """

    def __init__(
        self,
        tuner: Autotuner,
        ordinary: _Ordinary,
        settings: FastSettings = FastSettings(),
        runs_on: str = "cuda",
        chosen: Callable[[tuple[Any, ...], Mapping[str, Any]], Config | None] | None = None,
    ) -> None:
        self.tuner, self._ordinary, self._settings, self._runs_on = tuner, ordinary, settings, runs_on
        self._config = self._in_cache if chosen is None else chosen
        self._forms: dict[Form, _Known] = {}
        self._unusual: set[object] = set()
        self._changes = 0
        self._lock = RLock()
        self._fn, self._heuristics = jit_function(tuner)
        self._its_run = getattr(type(self._fn), "run", None)  # which others may replace later
        self.cache = tuner.cache = WatchedCache(tuner.cache, self.forget)
        self._basis = self._basis_now()
        self.call: Callable[..., Any] = self._first
        if self._fn is None:
            self.call = lambda grid, /, *args, **kwargs: ordinary(*args, grid=grid, warmup=False, **kwargs)
        self.at: Callable[[Any], Callable[..., Any]] = partial(partial, self._later)
        """Returns `call` with a grid."""
        _all.add(self)

    def _later(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call the current `call`, for a caller that got this method before the first call."""
        return self.call(grid, *args, **kwargs)

    def _restart(self) -> None:
        """Drop all forms, which were generated for another list of configs or another mode."""
        self._basis = self._basis_now()
        self.forget()  # since callers may still have functions of the old forms
        self._forms.clear()
        self.call, self.at = self._first, partial(partial, self._later)

    def _basis_now(self) -> tuple[object, ...]:
        """Return what all forms depend on: the list of configs, its length, the mode, and Triton's settings."""
        configs = self.tuner.configs
        return id(configs), len(configs), _ENVIRONMENT.get(_MODE), dict(_RUNTIME), dict(_COMPILATION)

    def forget(self) -> None:
        """Drop all launches; later calls ask the autotuner again."""
        with self._lock:
            self._changes += 1
            for known in self._forms.values():
                known.kept.clear()
            self._unusual.clear()

    @property
    def kept(self) -> int:
        """Number of launches that are kept."""
        return sum(len(known.kept) for known in self._forms.values())

    def _first(self, grid: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Launch by the autotuner's `run`, and keep the launch."""
        changes = self._changes
        before = as_given(args), dict(zip(kwargs, as_given(kwargs.values()), strict=True))
        compiled = self._ordinary(*args, grid=grid, warmup=False, **kwargs)
        if type(compiled) is CompiledKernel and nothing_is_set(self._fn):
            kind = (len(args), *kwargs, *map(type, args), *map(type, kwargs.values()))
            if kind not in self._unusual:
                try:
                    self._keep(kind, changes, compiled, grid, *before)
                except Exception as error:  # noqa: BLE001  nothing of ours may stop a model
                    self._unusual.add(kind)
                    name = self.tuner.base_fn.__name__
                    _log.warning("calls of %s go through Triton: %s", name, exception_text(error))
        return compiled

    def _keep(
        self, kind: object, changes: int, compiled: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        form = self._form_of(args, kwargs)
        with self._lock:
            if form is None or (form not in self._forms and len(self._forms) >= self._settings.most_forms):
                if len(self._unusual) < self._settings.most_unusual:
                    self._unusual.add(kind)
                return
            config = self._config(args, kwargs)
            if config is None or changes != self._changes:
                return
            if self._basis != self._basis_now():
                self._restart()
            known = self._forms.get(form) or self._new(form)
            key = known.names["key_of"](args, kwargs)
            values = {**dict(zip(self.tuner.arg_names, args, strict=False)), **kwargs}
            launch = self._launch(form, known, config, compiled, values)
            if launch is None:
                return
            if not self._heuristics:
                make_room(known.kept, self._settings.most_launches)
                known.kept[key] = launch
                return
            settled = config.all_kwargs()
            if key not in known.kept:
                make_room(known.kept, self._settings.most_launches)
                known.kept[key] = settled, {}
            variants = known.kept[key][1]
            found = computed(self._heuristics, {**values, "grid": grid, "warmup": False, **settled})
            make_room(variants, self._settings.most_launches)
            variants[found] = launch

    def _form_of(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Form | None:
        """Return the form of a call, or None if it has an unusual argument."""
        assert self._fn is not None
        constant = {param.name: param.is_constexpr for param in self._fn.params}
        given = []
        for name, value in (*zip(self.tuner.arg_names, args, strict=False), *kwargs.items()):
            is_option = name not in constant
            by_value = is_option or constant[name] or name in self.tuner.keys
            kind = kind_of(value, by_value, not is_option and constant[name])
            if kind is None:
                return None
            given.append(Given(name, kind, torch.Tensor if kind == "tensor" else type(value), is_option))
        return Form(tuple(given[: len(args)]), tuple(given[len(args) :]))

    def _in_cache(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Config | None:
        """Return the config that the autotuner has for a call, or None if it has none."""
        if len(self.tuner.configs) == 1:
            return self.tuner.configs[0]
        if self.tuner.cache is not self.cache:
            return None
        names = self.tuner.arg_names
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        own = {name: value for name, value in given.items() if name in names}
        key = [own[name] for name in self.tuner.keys if name in own]
        key += [str(value.dtype) for value in own.values() if hasattr(value, "dtype")]
        return self.cache.get(tuple(key))

    def _launch(
        self, form: Form, known: _Known, config: Config, compiled: Any, values: Mapping[str, Any]
    ) -> tuple[Any, ...] | None:
        """Return the values that the generated `call` needs, with None as the launcher of an unusual call.

        Return None if another config was launched.
        """
        fn = self._fn
        assert fn is not None
        device = known.names["current_device"]()
        absent = missing(form, known.layout)
        tensors = [values[each.name] for each in form.given if each.kind == "tensor"]
        tensors += [values[each.name].base for each in form.given if each.kind == "descriptor"]
        hook = config.pre_hook
        usual = (
            (hook is None or not self._heuristics)
            and all(tensor.device.type == self._runs_on for tensor in tensors)
            and is_known(compiled.run)
        )
        if not usual:
            return None, None, config, None, None, None, compiled, (), *(None,) * (_FIXED + len(absent))
        constants = []
        for name in absent:
            place = fn.arg_names.index(name)
            compiled_for = compiled.src.constants.get((place,))
            if name in known.layout.heuristics:
                constants.append(compiled_for)
                continue
            constants.append(config.kwargs[name] if name in config.kwargs else fn.params[place].default)
            if fn.params[place].is_constexpr and constants[-1] is not compiled_for and constants[-1] != compiled_for:
                return None
        objects = [values[each.name] for each in form.given if each.kind == "object"]  # or their ids could recur
        launch, held, only = compiled.run.launch, fn.device_caches[device], self.tuner.configs[0]
        settled = None if hook is None else config.all_kwargs()
        return launch, held, config, only, hook, settled, compiled, objects, *fixed_arguments(compiled), *constants

    def _new(self, form: Form) -> _Known:
        """Generate the functions of a form, and try it after all others."""
        fn, active = self._fn, triton.runtime.driver.active
        assert fn is not None
        layout = Layout(
            parameters=tuple(fn.arg_names),
            heuristics=tuple(self._heuristics),
            runs_on=self._runs_on,
            one_by_one=ONE_BY_ONE,
            fixed=_FIXED,
            reads_globals=bool(fn.used_global_vals),
            configs=len(self.tuner.configs),
        )
        own_device = active.get_current_device is torch.cuda.current_device  # which asks first whether torch is ready
        kept: dict[object, tuple[Any, ...]] = {}
        names: dict[str, Any] = {
            "tuner": self.tuner, "state": self.tuner.__dict__, "cache": self.cache, "configs": self.tuner.configs,
            "fn": fn, "Function": type(fn), "its_run": self._its_run, "device_caches": fn.device_caches,
            "kept": kept, "widths": widths, "changed": changed,
            "evaluated": evaluated,
            "environment": _ENVIRONMENT, "variable": _MODE, "setting": _ENVIRONMENT.get(_MODE),
            "runtime": _RUNTIME, "runtime_before": dict(_RUNTIME),
            "compilation": _COMPILATION, "compilation_before": dict(_COMPILATION),
            "enter": knobs.runtime.launch_enter_hook, "leave": knobs.runtime.launch_exit_hook,
            "current_device": torch._C._cuda_getDevice if own_device else active.get_current_device,
            "stream_of": active.get_current_stream,
            "Tensor": torch.Tensor, "Parameter": torch.nn.Parameter,
            "otherwise": self._first, "ordinary": self._ordinary,
            **{f"t{place}": each.type for place, each in enumerate(form.given)},
            **{f"heuristic{number}": each for number, each in enumerate(self._heuristics.values())},
        }  # fmt: skip
        exec(compile(source(form, layout), f"<calls of {fn.__name__}>", "exec"), names)
        known = _Known(names, kept, layout)
        if self._forms:
            list(self._forms.values())[-1].names["otherwise"] = names["call"]
        else:
            self.call, self.at = names["call"], partial(partial, names["call"])
        self._forms[form] = known
        return known


_all: WeakSet[FastCalls] = WeakSet()


def forget_all() -> None:
    """Drop all launches of all functions."""
    for calls in list(_all):
        calls.forget()


def _after_fork() -> None:
    for calls in list(_all):
        calls._lock = RLock()  # another thread of the parent may have held it
    forget_all()


os.register_at_fork(after_in_child=_after_fork)  # a child does not share its parent's card
