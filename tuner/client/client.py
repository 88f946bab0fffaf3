"""`best_config`: what model code asks before it launches a kernel.

The table of an op on a device is read once; after that an answer is a dictionary hit. What was answered stays for the
life of the process, so that captured graphs stay true and ranks agree. Nothing here raises into a model or tunes, and a
service that keeps its tables is waited for once: where there is no answer the kernel's default is given, and a line is
logged once.

Who wants newer answers says so: `refresh()`, or `TUNER_REFRESH_S` for a thread that does it every so many seconds.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock, Thread
from time import sleep

from tuner.client.pinned import Best, Pinned, say_once
from tuner.errors import TunerError

_log = logging.getLogger("tuner")

_MOST = 65_536
"""Questions whose answers are at hand, about 1 kB each. Then the oldest goes, and is answered anew, and alike, when it
comes again: tables stay."""

_answered: dict[object, Best] = {}


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
        best = _first(key, op, device, problem)
    return best


def refresh() -> None:
    """Takes up what was answered since this process first asked: whoever asks next is answered from that.

    It is read first, and compiled where `tuner.ops` has launched something, while other threads go on with what they
    have. Graphs that are captured already keep theirs.

    Raises:
        TunerError: it cannot be read or compiled; then all stays as it is.
    """
    _refresh(in_background=False)


Prepare = Callable[[Pinned, bool], object]
"""Is given what will be answered from, and whether that happens in the background, where nobody waits for it."""


def on_refresh(prepare: Prepare, done: Callable[[], object]) -> None:
    """Has `prepare` called before newer answers are handed out, and `done` after."""
    _now.listeners.append((prepare, done))


def current() -> Pinned:
    """What is answered from now."""
    return _now.pinned


@dataclass
class _State:
    pinned: Pinned
    listeners: list[tuple[Prepare, Callable[[], object]]]
    changing: Lock
    """Held for moments: no question waits."""
    refreshing: Lock
    refresher: Thread | None = None


_now = _State(Pinned(), [], Lock(), Lock())


def _after_fork() -> None:
    """A child has its parent's answers and none of its threads: it goes on refreshing with one of its own."""
    refreshed = _now.refresher is not None
    _now.changing, _now.refreshing, _now.refresher = Lock(), Lock(), None
    _now.pinned.after_fork()
    if refreshed:
        _start_refreshing()


os.register_at_fork(after_in_child=_after_fork)


def _first(key: object, op: str, device: int | str, problem: dict[str, object]) -> Best:
    """Answers what is not at hand, and keeps it."""
    pinned = _now.pinned
    try:
        best, for_good = pinned.best(op, device, problem)
        _start_refreshing()
    except Exception:  # noqa: BLE001  whatever it is, a model must not stop for it
        _log.exception("best_config(%.80r) failed, and a model goes on without a config", op)
        return Best(None, "none")
    if not for_good:
        return best
    with _now.changing:
        if pinned is not _now.pinned:  # refreshed meanwhile
            return best
        if len(_answered) >= _MOST:
            _answered.pop(next(iter(_answered)), None)
        return _answered.setdefault(key, best)


def _refresh(in_background: bool) -> None:
    with _now.refreshing:
        new = _now.pinned.renewed()
        if new is _now.pinned or (in_background and new.empty):
            return
        for prepare, _ in _now.listeners:
            prepare(new, in_background)
        with _now.changing:
            _now.pinned = new
            _answered.clear()
        for _, done in _now.listeners:
            done()


def _start_refreshing() -> None:
    if _now.refresher is not None or not (told := os.environ.get("TUNER_REFRESH_S")):
        return
    try:
        seconds = float(told)
        if not 0 < seconds <= 1e6:
            raise ValueError
    except ValueError:
        say_once(f"TUNER_REFRESH_S is a number of seconds, not {told[:40]!r}; nothing is refreshed")
        return
    with _now.changing:
        if _now.refresher is None:
            _now.refresher = Thread(target=_refresh_every, args=(seconds,), name="tuner-refresh", daemon=True)
            _now.refresher.start()


def _refresh_every(seconds: float) -> None:
    while True:
        sleep(seconds)
        try:
            _refresh(in_background=True)
        except TunerError as error:
            say_once(f"answers stay as they are, since newer ones cannot be taken up: {error}")
        except Exception:  # noqa: BLE001  the thread goes on, as what failed may work the next time
            _log.exception("refreshing failed; answers stay as they are")
