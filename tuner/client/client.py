"""`best_config`: the lookup that model code calls before it launches a kernel.

The table of an op on a device is read once; after that an answer is a dictionary lookup. Answers stay the same, so that
captured graphs stay valid and ranks agree, until `refresh()` is called or the refresh interval is over. A lookup never
tunes and never raises into a model, and a service that does not respond is waited for once: without an answer the
kernel's default is returned, and a line is logged once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from threading import Event, Lock, Thread
from weakref import WeakSet

from tuner.client import environment
from tuner.client.best import Best
from tuner.client.kernels import GuardedKernels, Named
from tuner.client.settings import ClientSettings
from tuner.client.sources import AnswerSource
from tuner.client.tables import TableCache
from tuner.client.warn import WarnOnce
from tuner.errors import TunerError, UsageError
from tuner.records import StoredAnswer

_log = logging.getLogger("tuner")

_SETTINGS = ClientSettings()

Prepare = Callable[[TableCache, bool], object]
"""Called with the new tables before they are used, and with True if no caller waits for the call."""


class Client:
    """Best configs from one answer source, for model code.

    Args:
        source: source of the answers; None is the one that the environment names (TUNER_SNAPSHOT, TUNER_URL or
            TUNER_DB), else the database in the user's data folder.
        refresh_s: interval in seconds at which a thread refreshes the answers, from the first query on; None is that of
            TUNER_REFRESH_S, or no refresh without it.
        settings: limits of what is kept.

    Raises:
        UsageError: `refresh_s` is not a positive number of seconds.
    """

    def __init__(
        self,
        source: AnswerSource | None = None,
        *,
        refresh_s: float | None = None,
        settings: ClientSettings = _SETTINGS,
    ) -> None:
        if refresh_s is not None and not 0 < refresh_s <= environment.LONGEST_INTERVAL_S:
            raise UsageError(
                f"refresh_s is a number of seconds above 0, not {refresh_s!r}; leave it out for no refresh"
            )
        self._source, self._refresh_s, self._settings = source, refresh_s, settings
        self._warn = WarnOnce(settings.max_warnings)
        self._kernels = GuardedKernels(self._warn, settings.max_tables)
        self._answered: dict[object, Best] = {}
        self._listeners: list[tuple[Prepare, Callable[[], object]]] = []
        self._changing, self._refreshing = Lock(), Lock()  # the first is held for moments, so that no query waits
        self._refresher: Thread | None = None
        self._closed = Event()
        self._tables = self._no_tables()
        _clients.add(self)

    def best_config(self, op: Named, /, *, device: int | str = 0, **problem: object) -> Best:
        """Return the best known config of a problem: `best_config("gemm", M=4096, dtype="bf16").config`.

        Never raises: a problem that is not understood is logged, and its config is the default or None.

        Args:
            op: name of a kernel, path of a kernel file, or the `Kernel` itself.
            device: index of a GPU here, or the `Device.id` of another one.
            problem: dims, `dtype` and attributes; what is left out takes the signature's default.
        """
        key: object = (op, device, *problem.items())
        try:
            best = self._answered.get(key)
        except TypeError:  # an unhashable value, which is not understood
            key = repr(key)
            best = self._answered.get(key)
        if best is None:
            best = self._first(key, op, device, problem)
        return best

    def look_up(self, op: Named, device: int | str, problem: Mapping[str, object]) -> tuple[Best, bool]:
        """Return the result of `best_config` without keeping it, and whether a later query returns the same.

        It may not if a CUDA graph is being captured and the answers were not read before.
        """
        found = self._tables.best(op, device, problem)
        self._start_refresher()
        return found

    def answers(self, op: str, /, *, device: int | str = 0) -> list[StoredAnswer]:
        """Return all answers of an op on a device, with their evidence.

        Raises:
            TunerError: they cannot be read, or there is no such GPU.
        """
        return self._tables.answers(op, device)

    def refresh(self, *, in_background: bool = False) -> None:
        """Read the answers again; later queries are answered from what they are now.

        They are read first, and compiled if `tuner.ops` has launched something, while other threads go on with the
        old ones. Captured graphs keep their configs.

        Args:
            in_background: do nothing before the first query, and pass True to the listeners, as no caller waits.

        Raises:
            TunerError: the answers cannot be read or compiled; then the old ones stay.
        """
        with self._refreshing:
            self._renew(None, in_background)

    def read_from(self, source: AnswerSource) -> None:
        """Switch to the answers of another source, as `refresh` switches to newer answers.

        Raises:
            TunerError: its answers cannot be read or compiled; then the source stays as it is.
        """
        with self._refreshing:
            self._renew(source, False)
            self._source = source

    def on_refresh(self, prepare: Prepare, done: Callable[[], object]) -> None:
        """Call `prepare` before newer answers are handed out, and `done` after."""
        self._listeners.append((prepare, done))

    def current(self) -> TableCache:
        """Return the tables that queries are answered from now."""
        return self._tables

    def clear(self) -> None:
        """Forget all tables, answers, loaded kernels and logged warnings, as in a new process. Listeners stay."""
        with self._refreshing, self._changing:
            self._answered.clear()
            self._warn.clear()
            self._kernels.clear()
            source = self._source
            self._source = None if source is None else source.reopened()
            self._tables = self._no_tables()

    def close(self) -> None:
        """Stop the thread that refreshes the answers. Queries are still answered."""
        self._closed.set()

    @property
    def kept(self) -> int:
        """Number of queries whose answers are kept."""
        return len(self._answered)

    @property
    def is_refreshing(self) -> bool:
        """True if a thread refreshes the answers at an interval."""
        return self._refresher is not None and not self._closed.is_set()

    def _renew(self, source: AnswerSource | None, in_background: bool) -> None:
        new = self._tables.renewed(source)
        if new is self._tables or (in_background and not len(new)):
            return
        for prepare, _ in self._listeners:
            prepare(new, in_background)
        with self._changing:
            self._tables = new
            self._answered.clear()
        for _, done in self._listeners:
            done()

    def _no_tables(self) -> TableCache:
        return TableCache(self._source, kernels=self._kernels, warn=self._warn, settings=self._settings)

    def _first(self, key: object, op: Named, device: int | str, problem: dict[str, object]) -> Best:
        """Look up a query and keep its answer."""
        tables = self._tables
        try:
            best, final = self.look_up(op, device, problem)
        except Exception:  # noqa: BLE001  no error may stop a model
            _log.exception("best_config(%.80r) failed; no config is given", op)
            return Best(None, "none")
        if not final:
            return best
        with self._changing:
            if tables is not self._tables:  # refreshed meanwhile
                return best
            if len(self._answered) >= self._settings.max_answers:
                self._answered.pop(next(iter(self._answered)), None)
            return self._answered.setdefault(key, best)

    def _start_refresher(self) -> None:
        if self._refresher is not None or self._closed.is_set():
            return
        seconds = self._interval_s()
        if seconds is None:
            return
        with self._changing:
            if self._refresher is None:
                self._refresher = Thread(
                    target=self._refresh_every, args=(seconds, self._closed), name="tuner-refresh", daemon=True
                )
                self._refresher.start()

    def _interval_s(self) -> float | None:
        """Return the refresh interval, or None if there is no refresh."""
        return environment.refresh_s(self._warn) if self._refresh_s is None else self._refresh_s

    def _refresh_every(self, seconds: float, closed: Event) -> None:
        while not closed.wait(seconds):
            try:
                self.refresh(in_background=True)
            except TunerError as error:
                self._warn(f"the answers stay as they are, since newer ones cannot be read: {error}")
            except Exception:  # noqa: BLE001  the next refresh may succeed
                _log.exception("refreshing failed; the answers stay as they are")

    def _after_fork(self) -> None:
        """Replace locks and thread in a child process, which has its parent's answers and none of its threads."""
        refreshed, closed = self._refresher is not None, self._closed.is_set()
        self._changing, self._refreshing, self._refresher, self._closed = Lock(), Lock(), None, Event()
        self._tables.after_fork()
        if closed:
            self._closed.set()
        if refreshed:
            self._start_refresher()


_clients: WeakSet[Client] = WeakSet()


def _after_fork() -> None:
    for client in list(_clients):
        client._after_fork()


os.register_at_fork(after_in_child=_after_fork)

_default = Client()
best_config = _default.best_config
refresh = _default.refresh
on_refresh = _default.on_refresh
current = _default.current


def default_client() -> Client:
    """Return the client whose methods `tuner.best_config` and `tuner.refresh` are."""
    return _default
