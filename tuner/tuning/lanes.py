"""Work that is spread over several lanes, one a GPU: whichever is free takes the next piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar

from tuner.cli.interrupt import Interrupt

Work = TypeVar("Work")
Result = TypeVar("Result")
Stop = Callable[[], bool]
"""Asked now and then; once it is True, a lane shall come to its end."""


@dataclass(frozen=True)
class _Done(Generic[Result]):
    """What came of a piece of work: a result, an error, or nothing, as it was stopped; or the end of a lane."""

    result: Result | None = None
    error: BaseException | None = None
    last: bool = False


def spread(
    work: Sequence[Work],
    lanes: Sequence[Callable[[Work, Stop], Result | None]],
    on_result: Callable[[Result], None],
) -> None:
    """Does all work, each lane one piece at a time.

    Ctrl-C stops the lanes, which may take a moment; a second one does not wait. An error in a lane stops the others,
    and is raised.

    Args:
        lanes: called in threads of their own, one a lane, until there is no work left; None is no result.
        on_result: called in this thread, in the order in which results come.
    """
    todo: SimpleQueue[Work] = SimpleQueue()
    done: SimpleQueue[_Done[Result]] = SimpleQueue()
    over, all_ended = Event(), Event()
    for piece in work:
        todo.put(piece)

    def run(lane: Callable[[Work, Stop], Result | None], stop: Stop) -> None:
        try:
            while not stop():
                try:
                    piece = todo.get_nowait()
                except Empty:
                    break
                done.put(_Done(lane(piece, stop)))
        except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
            done.put(_Done(error=error))
        finally:
            done.put(_Done(last=True))
            all_ended.wait()  # a helper dies with the thread that started it, and may work for another lane by now

    running, errors = len(lanes), list[BaseException]()
    with Interrupt() as interrupted:
        for lane in lanes:
            # The helpers that a lane starts die with its thread at the latest, and that dies with this process.
            Thread(target=run, args=[lane, lambda: interrupted() or over.is_set()], daemon=True).start()
        try:
            while running:
                ended = done.get()
                running -= ended.last
                if ended.error is not None:
                    errors.append(ended.error)
                    over.set()
                elif ended.result is not None:
                    on_result(ended.result)
        finally:
            over.set()
            all_ended.set()
    if errors:
        raise errors[0]
