"""`best_config`: what model code asks before it launches a kernel.

The table of an op on a device is read once; after that an answer is a dictionary hit. What was answered stays for the
life of the process, so that captured graphs stay true and ranks agree. Nothing here raises into a model, tunes or
waits: where there is no answer the kernel's default is given, and a line is logged once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Generic, TypeVar

from tuner import catalog, device
from tuner.cards import aliases
from tuner.errors import TunerError, UnknownName, UsageError
from tuner.kernels.spec import Config, Kernel, Problem, Signature
from tuner.lookup import Asked, Table
from tuner.neighbours import Neighbour, fits
from tuner.records import Answer, StoredAnswer

if TYPE_CHECKING:
    from tuner.db.store import Store

T = TypeVar("T")

_log = logging.getLogger("tuner")


@dataclass(frozen=True)
class Best:
    """The config to launch with, and where it comes from."""

    config: Config | None
    """None only where nothing is stored and there is no default either: the kernel cannot be loaded here, or the
    question is about a card elsewhere."""
    match: str
    """`exact`, `stale`, `neighbour` (another problem's), `none` (the default) or `disabled` (the default, because
    `TUNER_DISABLE=1`)."""
    stale: tuple[str, ...] = ()
    """Why an answer is not exactly what was asked for."""
    answer: Answer | None = None
    """The evidence; None where the config is the default for want of an answer."""
    neighbour: Neighbour | None = None
    """Which other problem the config was tuned for, and what that should cost."""


_answered: dict[object, Best] = {}
_said: set[str] = set()


def best_config(op: str, /, *, device: int | str = 0, **problem: object) -> Best:
    """The best known config of a problem: `best_config("gemm", M=4096, dtype="bf16").config`.

    Never raises: a question that makes no sense is logged and answered with the default or with None.

    Args:
        op: a kernel's name.
        device: the index of a GPU here, or the `Device.id` of one elsewhere.
        problem: dims, `dtype` and attributes; what is left out takes the signature's default.
    """
    key: object = (op, device, *problem.items())
    try:
        best = _answered.get(key)
    except TypeError:  # a value that is no number, name or dtype
        key = repr(key)
        best = _answered.get(key)
    if best is None:
        best = _answered[key] = _answer(op, device, problem)
    return best


def refresh() -> None:
    """Forgets what was read and answered: whoever asks next is answered from what is stored then."""
    _table.cache_clear()
    _signature.cache_clear()
    _answered.clear()


def answered(op: str, device: int | str = 0) -> list[StoredAnswer]:
    """The answers of an op on a device, of which `best_config` gives the one that serves a problem.

    Raises:
        TunerError: they cannot be read, or there is no such device.
    """
    return list(_table(op, _device_id(device)))


def _answer(op: str, asked_device: int | str, values: dict[str, object]) -> Best:
    kernel = _kernel(op)
    disabled = os.environ.get("TUNER_DISABLE") == "1"
    if disabled and kernel is None:
        return Best(None, "disabled")
    try:
        problem = _signature(op).problem(values)
    except TunerError as error:
        _say(str(error))
        return Best(None, "disabled" if disabled else "none")
    if disabled:
        return Best(_default(kernel, problem, asked_device), "disabled")
    try:
        table = _table(problem.op, _device_id(asked_device))
        found = table.find(_question(kernel, problem, asked_device), lambda stored: _fits(kernel, problem, stored))
    except TunerError as error:
        return _miss(kernel, problem, asked_device, f"nothing can be looked up: {error}")
    if found.stored is None:
        return _miss(kernel, problem, asked_device, f"nothing is tuned on {found.device}; {found.command}")
    answer = found.stored.answer
    try:
        config = answer.config if kernel is None else kernel.signature.config(answer.config)
    except UsageError:  # its knobs were others once
        return _miss(
            kernel, problem, asked_device, f"the stored config has the knobs of another kernel; {found.command}"
        )
    if found.stale:
        _say(f"{problem.text}: the config is stale ({'; '.join(found.stale)}); {found.command}")
    if found.neighbour is not None:
        _say(f"{problem.text}: the config is {found.neighbour.text}; {found.command}")
    return Best(config, found.match, found.stale, answer, found.neighbour)


def _miss(kernel: Kernel | None, problem: Problem, asked_device: int | str, why: str) -> Best:
    default = _default(kernel, problem, asked_device)
    instead = "the default is used" if default is not None else "there is no default here either"
    _say(f"{problem.text}: {instead}, since {why}")
    return Best(default, "none")


def _say(line: str) -> None:
    """Logs a line once in the life of the process."""
    if line not in _said:
        _said.add(line)
        _log.warning("%s", line)


def _question(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Asked:
    """Everything known here is compared, unless the question is about a card elsewhere."""
    if isinstance(asked_device, str):
        return Asked(problem)
    source = None if kernel is None else kernel.source
    return Asked.here(problem, device.environment(asked_device), source)


def _default(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Config | None:
    if kernel is None or isinstance(asked_device, str):
        return None
    try:
        return kernel.default_config(problem, device.describe(asked_device).limits)
    except TunerError:
        return None
    except Exception as error:  # noqa: BLE001  a kernel's rule is its author's code, and a model must not stop for it
        _say(f"{problem.text}: the default cannot be computed: {type(error).__name__}: {error}")
        return None


def _fits(kernel: Kernel | None, problem: Problem, stored: StoredAnswer) -> bool:
    """Whether another problem's config may be launched for this one; without the kernel nobody knows."""
    if kernel is None:
        return False
    try:
        return fits(kernel, problem, stored)
    except Exception as error:  # noqa: BLE001  as for the default
        _say(f"{problem.text}: no neighbour's config can be checked: {type(error).__name__}: {error}")
        return False


def _device_id(asked_device: int | str) -> str:
    return asked_device if isinstance(asked_device, str) else device.describe(asked_device).id


class _ForLife(Generic[T]):
    """Calls a function once for each argument list, and keeps what it returned or the error it raised."""

    def __init__(self, function: Callable[..., T]) -> None:
        self._function = function
        self._outcomes: dict[tuple[object, ...], T | TunerError] = {}

    def __call__(self, *arguments: object) -> T:
        if arguments not in self._outcomes:
            try:
                self._outcomes[arguments] = self._function(*arguments)
            except TunerError as error:
                self._outcomes[arguments] = error
        outcome = self._outcomes[arguments]
        if isinstance(outcome, TunerError):
            raise outcome.with_traceback(None)
        return outcome

    def cache_clear(self) -> None:
        """Forgets everything."""
        self._outcomes.clear()


@_ForLife
def _table(op: str, device_id: str) -> Table:
    with _store() as store:
        if store is None:
            return Table(device_id, ())
        here = [device.describe(index) for index in range(device.count())]
        stored_as = aliases(store.devices(), [*store.cards(), *here]).get(device_id, device_id)
        if stored_as != device_id:
            _say(f"{device_id} is the same card as {stored_as}, where it was tuned")
        transfers = store.transfers(op=op, device=stored_as).get((op, stored_as), ())
        return Table(stored_as, store.answers(op=op, device=stored_as), transfers)


@_ForLife
def _signature(op: str) -> Signature:
    """Of the kernel's code where that can be loaded, else as the store has it."""
    kernel = _kernel(op)
    if kernel is not None:
        return kernel.signature
    with _store() as store:
        stored = {} if store is None else store.signatures()
    if op not in stored:
        raise UnknownName(f"no kernel is called {op[:80]!r}, and nothing is stored under that name")
    return stored[op]


@cache
def _kernel(op: str) -> Kernel | None:
    try:
        return catalog.load(op)
    except TunerError:
        return None
    except Exception as error:  # noqa: BLE001  as for the default: loading runs its author's code
        _say(f"the code of {op} cannot be loaded: {type(error).__name__}: {error}")
        return None


@contextmanager
def _store() -> Iterator[Store | None]:
    """The store, for as long as it is read; None where there is none."""
    from tuner.db.store import Store, default_database

    database = default_database()
    store = Store.open(database, create=False) if database.exists() else None
    try:
        yield store
    finally:
        if store is not None:
            store.close()
