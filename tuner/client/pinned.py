"""What a process goes by: tables that are read once and kept, and the best config that they have for a question.

Nothing here raises into a model: where there is no answer, or one that does not fit, the kernel's default is given, and
a line is logged once.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import RLock, Thread

from tuner import catalog
from tuner.client import sources
from tuner.client.sources import AnswerSource, Loaded
from tuner.errors import NoDevice, TunerError, UsageError
from tuner.kernels.spec import Config, Kernel, Limits, Problem, Signature
from tuner.lookup.neighbours import Neighbour, fits
from tuner.lookup.table import Query, Table
from tuner.measure import device
from tuner.records import Answer, StoredAnswer
from tuner.records.codec import checked_config

_log = logging.getLogger("tuner")

_MOST_TABLES, _MOST_LINES = 1024, 10_000
"""Of ops on devices in a process, and of different warnings: names and sizes may come from a request."""
_said: set[str] = set()


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


class Pinned:
    """Tables of one source, each read when it is first asked for and kept; what could not be read then is kept too.

    Args:
        source: None is what the environment names when something is first read.
    """

    def __init__(self, source: AnswerSource | None = None) -> None:
        self._source = source
        self._tables: dict[tuple[str, str], Loaded | TunerError] = {}
        self._on_their_way: set[tuple[str, str]] = set()
        self.after_fork()

    def after_fork(self) -> None:
        """A child has none of the threads that its parent had, so nobody gives back what they held."""
        self._reading = RLock()
        self._on_their_way.clear()

    @property
    def source(self) -> AnswerSource:
        if self._source is None:
            self._source = sources.chosen()
        return self._source

    @property
    def empty(self) -> bool:
        """Whether nothing was read yet."""
        return not self._tables

    def answers(self, op: str, asked_device: int | str) -> list[StoredAnswer]:
        """All answers of an op on a device.

        Raises:
            TunerError: they cannot be read, or there is no such device.
        """
        return list(self._loaded(op, _device_id(asked_device)).table)

    def renewed(self) -> Pinned:
        """The same tables as they are now, of the source that the environment names now; itself where nothing changed.

        Raises:
            TunerError: one of them cannot be read.
        """
        new = Pinned()
        for (op, device_id), before in list(self._tables.items()):
            known = before if isinstance(before, Loaded) else None
            now = new.source.load(op, device_id, known)
            same = known is not None and _alike(now.table, known.table)
            new._tables[op, device_id] = replace(now, table=known.table) if known is not None and same else now
        if new._tables != self._tables or self.empty:
            return new
        self._tables.update(new._tables)  # of newer versions, for what others were answered
        self._source = new._source
        return self

    def best(self, op: str, asked_device: int | str, values: Mapping[str, object]) -> tuple[Best, bool]:
        """The best config of a problem, and whether it is so for good."""
        kernel = _kernel(op)
        disabled = os.environ.get("TUNER_DISABLE") == "1"
        if disabled and kernel is None:
            return Best(None, "disabled"), True
        at_hand = disabled or self._at_hand(op, asked_device)
        signature = None if kernel is None else kernel.signature
        if signature is None and at_hand:
            signature = self._signature(op, asked_device)
        if signature is None:
            return Best(None, "none"), at_hand
        try:
            problem = signature.problem(values)
        except UsageError as error:
            say_once(str(error))
            return Best(None, "disabled" if disabled else "none"), True
        if disabled or not at_hand:
            return Best(_default(kernel, problem, asked_device), "disabled" if disabled else "none"), at_hand
        return self._looked_up(kernel, problem, asked_device), True

    def _looked_up(self, kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Best:
        try:
            device_id, question = _device_id(asked_device), _question(kernel, problem, asked_device)
        except NoDevice as error:
            return _miss(kernel, problem, asked_device, f"nothing can be looked up: {error}")
        loaded = self._readable(problem.op, device_id)
        if loaded is None:
            return Best(_default(kernel, problem, asked_device), "none")
        found = loaded.table.find(question, lambda stored: _serves_too(kernel, problem, stored))
        if found.stored is None:
            return _miss(kernel, problem, asked_device, f"it is not tuned on {found.device}; {found.command}")
        try:
            config = _fitting(kernel, found.stored, asked_device)
        except UsageError as error:
            return _miss(kernel, problem, asked_device, f"{error}; {found.command}")
        if found.stale:
            say_once(f"{problem.text}: the config is stale ({'; '.join(found.stale)}); {found.command}")
        if found.neighbour is not None:
            say_once(f"{problem.text}: the config is {found.neighbour.text}; {found.command}")
        return Best(config, found.match, found.stale, found.stored.answer, found.neighbour)

    def _signature(self, op: str, asked_device: int | str) -> Signature | None:
        """As it comes with the answers; None where there is none, which is said."""
        try:
            loaded = self._readable(op, _device_id(asked_device))
        except NoDevice as error:
            say_once(f"{op[:80]}: nothing can be looked up: {error}")
            return None
        if loaded is not None and loaded.signature is None:
            say_once(f"no kernel is called {op[:80]!r}, and nothing is stored under that name")
        return None if loaded is None else loaded.signature

    def _readable(self, op: str, device_id: str) -> Loaded | None:
        """What is loaded; None where that failed, which is said once and not for every question."""
        try:
            return self._loaded(op, device_id)
        except TunerError as error:
            say_once(f"the kernels' defaults are used until tuner.refresh(), since nothing can be looked up: {error}")
            return None

    def _loaded(self, op: str, device_id: str) -> Loaded:
        key = (op, device_id)
        outcome = self._tables.get(key)
        if outcome is None:
            with self._reading:
                outcome = self._tables.get(key) or self._read(key)
        if isinstance(outcome, TunerError):
            raise outcome.with_traceback(None)
        return outcome

    def _read(self, key: tuple[str, str]) -> Loaded | TunerError:
        if len(self._tables) >= _MOST_TABLES:
            return UsageError(f"a process asks for {_MOST_TABLES:,} ops on devices, and not for {key[0][:80]!r} too")
        outcome: Loaded | TunerError
        try:
            outcome = self.source.load(*key)
        except TunerError as error:
            outcome = error
        else:
            if outcome.skipped:
                skipped = f"{len(outcome.skipped):,} answers are passed over; the first, since {outcome.skipped[0]}"
                say_once(f"{self.source.origin}: {skipped}")
        self._tables[key] = outcome
        return outcome

    def _at_hand(self, op: str, asked_device: int | str) -> bool:
        """Whether a question is answered without waiting for others, as it must be while a graph is captured.

        If not, a thread goes to get what it takes.
        """
        try:
            key = (op, _device_id(asked_device))
        except NoDevice:
            return True
        if key in self._tables or not self.source.waits or not _capturing():
            return True
        if key not in self._on_their_way:
            self._on_their_way.add(key)
            Thread(target=self._fetch, args=key, name="tuner-fetch", daemon=True).start()
        return False

    def _fetch(self, op: str, device_id: str) -> None:
        try:
            self._loaded(op, device_id)
        except TunerError:
            pass  # whoever asks next says so
        finally:
            self._on_their_way.discard((op, device_id))


def _alike(one: Table, other: Table) -> bool:
    """Whether both answer every question alike."""
    return [*one] == [*other] and [*one.transfers] == [*other.transfers]


def say_once(line: str) -> None:
    """Logs a line once in the life of the process."""
    if line not in _said and len(_said) < _MOST_LINES:
        _said.add(line)
        _log.warning("%s", line)


def _miss(kernel: Kernel | None, problem: Problem, asked_device: int | str, why: str) -> Best:
    default = _default(kernel, problem, asked_device)
    given = (
        "the default is used" if default is not None else f"no config is given ({_no_default(kernel, asked_device)})"
    )
    say_once(f"{problem.text}: {given}, since {why}")
    return Best(default, "none")


def _no_default(kernel: Kernel | None, asked_device: int | str) -> str:
    if kernel is None:
        return "its code cannot be loaded here, so there is no default"
    if isinstance(asked_device, str):
        return "the limits of a card that is only named are not known, so there is no default"
    return "its default cannot be computed here"


def _question(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Query:
    """Everything known here is compared, unless the question is about a card elsewhere."""
    if isinstance(asked_device, str):
        return Query(problem)
    source = None if kernel is None else kernel.source
    return Query.here(problem, device.environment(asked_device), source)


def _fitting(kernel: Kernel | None, stored: StoredAnswer, asked_device: int | str) -> Config:
    """A stored config, if today's kernel takes it: it may be of an older one, of a larger card, or be made up.

    Raises:
        UsageError: it does not.
    """
    config, problem = stored.answer.config, stored.answer.problem
    if kernel is None:
        return config
    try:
        config = checked_config(kernel.signature, config)
    except UsageError as error:  # its knobs were others once
        raise UsageError(f"the stored config has the knobs of another kernel: {error}") from error
    if isinstance(asked_device, int) and not _valid(kernel, problem, config, device.describe(asked_device).limits):
        raise UsageError(f"today's rules refuse {config.text}")
    return config


def _serves_too(kernel: Kernel | None, problem: Problem, stored: StoredAnswer) -> bool:
    """Whether another problem's config may be launched for this one; without the kernel nobody knows."""
    return kernel is not None and _holds(lambda: fits(kernel, problem, stored), problem, stored.answer.config)


def _valid(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> bool:
    return _holds(lambda: kernel.valid(problem, config, limits), problem, config)


def _holds(rule: Callable[[], bool], problem: Problem, config: Config) -> bool:
    try:
        return rule()
    except Exception as error:  # noqa: BLE001  a kernel's rule is its author's code, and was not written for such values
        say_once(f"{problem.text}: whether {config.text} fits raises {type(error).__name__}: {error}")
        return False


def _default(kernel: Kernel | None, problem: Problem, asked_device: int | str) -> Config | None:
    if kernel is None or isinstance(asked_device, str):
        return None
    try:
        return kernel.default_config(problem, device.describe(asked_device).limits)
    except TunerError:
        return None
    except Exception as error:  # noqa: BLE001  a kernel's rule is its author's code, and a model must not stop for it
        say_once(f"{problem.text}: the default cannot be computed: {type(error).__name__}: {error}")
        return None


def _device_id(asked_device: int | str) -> str:
    return asked_device if isinstance(asked_device, str) else device.describe(asked_device).id


def _capturing() -> bool:
    """Whether the current stream records a CUDA graph. Who has not loaded torch records none."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    initialized = getattr(cuda, "is_initialized", bool)  # it may be half imported
    return cuda is not None and initialized() and bool(cuda.is_current_stream_capturing())


@lru_cache(_MOST_TABLES)
def _kernel(op: str) -> Kernel | None:
    try:
        return catalog.load(op)
    except TunerError:
        return None
    except Exception as error:  # noqa: BLE001  as for the default: loading runs its author's code
        say_once(f"the code of {op} cannot be loaded: {type(error).__name__}: {error}")
        return None
