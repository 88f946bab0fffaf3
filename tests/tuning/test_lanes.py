"""Work spread over lanes: all of it is done once, and an error or Ctrl-C ends all lanes."""

from __future__ import annotations

import os
import signal
from functools import partial
from threading import Barrier, Event, Thread, current_thread
from time import sleep

import pytest
from helpers import until

from tuner.cli.interrupt import Interrupt
from tuner.tuning.events import StopToken
from tuner.tuning.lanes import spread


def test_lanes_work_side_by_side_and_do_everything_once() -> None:
    together = Barrier(2, timeout=20)
    names = {0: "a", 1: "b"}
    found: list[tuple[str, int]] = []

    def lane(number: int, piece: int) -> tuple[str, int]:
        if piece < 2:
            together.wait()  # so each lane has one of the first two
        return names[number], piece

    spread(range(7), [partial(lane, 0), partial(lane, 1)], found.append, StopToken())
    assert sorted(piece for _, piece in found) == [*range(7)]
    assert {name for name, piece in found if piece < 2} == {"a", "b"}


def test_an_error_in_a_lane_stops_the_others_and_is_raised() -> None:
    def fails(piece: int) -> int:
        raise ValueError("no good")

    def works(piece: int) -> None:
        until(stop)

    stop = StopToken()
    with pytest.raises(ValueError, match="no good"):
        spread(range(100), [fails, works], lambda result: None, stop)


def test_a_lane_that_has_nothing_left_to_do_stays_until_all_have_ended() -> None:
    """A GPU's worker is asked to die with the thread that started it, and lanes hand workers to each other."""
    together = Barrier(2, timeout=20)
    lanes: list[Thread] = []

    def first(piece: int) -> None:
        lanes.append(current_thread())
        together.wait()

    def second(piece: int) -> bool:
        together.wait()
        sleep(0.3)
        return lanes[0].is_alive()

    found: list[bool] = []
    spread([1, 2], [first, second], found.append, StopToken())
    assert found == [True]
    lanes[0].join(20)
    assert not lanes[0].is_alive()


def test_an_error_in_the_caller_waits_until_the_lanes_have_ended() -> None:
    """The caller then closes what they use, such as the store that a stopped search is written to."""
    ended: list[int] = []

    def lane(piece: int) -> int:
        if piece:
            until(stop)
            sleep(0.3)
            ended.append(piece)
        return piece

    def on_result(piece: int) -> None:
        raise KeyboardInterrupt

    stop = StopToken()
    with pytest.raises(KeyboardInterrupt):
        spread([0, 1], [lane, lane], on_result, stop)
    assert ended == [1]


def test_a_second_ctrl_c_does_not_wait_for_the_lanes() -> None:
    entered, released = Event(), Event()

    def lane(piece: int) -> None:
        entered.set()
        os.kill(os.getpid(), signal.SIGINT)
        until(interrupt.token)
        os.kill(os.getpid(), signal.SIGINT)
        assert released.wait(20)

    with Interrupt() as interrupt, pytest.raises(KeyboardInterrupt):
        spread([1], [lane], lambda result: None, interrupt.token)
    assert entered.is_set()
    released.set()


def test_ctrl_c_keeps_what_was_done() -> None:
    found: list[int] = []

    def lane(piece: int) -> int | None:
        if piece < 2:
            return piece
        os.kill(os.getpid(), signal.SIGINT)
        until(interrupt.token)
        return None

    with Interrupt() as interrupt:
        spread(range(100), [lane], found.append, interrupt.token)
    assert found == [0, 1]
