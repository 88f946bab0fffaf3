"""Recorded spaces that stand in for a GPU: the note about what is replayed, and the error if nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tuner import catalog, recorded
from tuner.errors import NoDevice, UnknownName
from tuner.kernels.spec import Problem
from tuner.tuning.events import Events
from tuner.tuning.other_gpus import Machine, gpu_here


def note_what_stands_in(
    found: Sequence[Sequence[recorded.RecordedSpace]],
    events: Events,
    left_out: int = 0,
    machine: Machine | None = None,
) -> None:
    """Report what is replayed.

    Args:
        found: for each problem the space that is replayed, then those that --replay could name instead.
        left_out: number of problems that were not recorded.
        machine: the machine without a GPU; None is this one.
    """
    names = ", ".join(sorted(first.name for first, *_ in found))
    others = [space for _, *rest in found for space in rest]
    also = ""
    if others:
        cards = ", ".join(sorted({space.device.name for space in others}))
        alone = len(found) + left_out == 1
        given = " or ".join(space.name for space in others) if alone else "NAME, one problem at a time"
        also = f" (also recorded on {cards}: --replay {given})"
    were, are = ("was", "is") if left_out == 1 else ("were", "are")
    others_left = f"; {left_out} of {left_out + len(found)} {were} not recorded and {are} left out" if left_out else ""
    events.note(
        f"No {gpu_here(machine)}: replaying {names}{also}{others_left}{_changed(first for first, *_ in found)}."
    )


def _changed(spaces: Iterable[recorded.RecordedSpace]) -> str:
    """Return the end of the note that names the ops whose source has changed since they were recorded, if any has."""
    sources = {(space.problem.op, space.source) for space in spaces}
    changed = sorted({op for op, source in sources if _source(op) not in (None, source)})
    has, was = ("has", "it was") if len(changed) == 1 else ("have", "they were")
    return f"; {' and '.join(changed)} {has} changed since {was} recorded" if changed else ""


def _source(op: str) -> str | None:
    """Return the source hash of a kernel of today; None if its code cannot be loaded."""
    try:
        return catalog.load(op).source
    except (NoDevice, UnknownName):
        return None


def none_recorded(problems: Sequence[Problem], machine: Machine | None = None) -> NoDevice:
    """Return the error if there is no GPU and no problem was recorded; it names the spaces of their ops."""
    what = f"no recorded space of {problems[0].text}"
    if len(problems) > 1:
        what = f"none of these {len(problems)} problems was recorded"
    ops = sorted({problem.op for problem in problems})
    known = [name for op in ops for name in recorded.names(op)]
    replayable = f"recorded spaces to replay: {', '.join(known)}"
    way_out = replayable if known else "run it on a machine with an NVIDIA GPU"
    return NoDevice(f"there is no {gpu_here(machine)} and {what}; {way_out}")
