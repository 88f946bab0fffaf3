"""`retune`: measure stored answers again, name what changed, and repair it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from socket import gethostname
from statistics import mean
from typing import Any

from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Kernel
from tuner.records.retune import Retune
from tuner.retuning.place import Place, place_of
from tuner.retuning.retune import How, Retuning
from tuner.retuning.selection import Chosen, Wanted
from tuner.retuning.settings import SETTINGS
from tuner.suites.suite import Entry
from tuner.tuning.api import (
    ProblemLike,
    opened_store,
    shown_progress,
)
from tuner.tuning.effort import Effort, parse_duration, require_search
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import AUTO, HeldGpu, MeasureOptions
from tuner.version import __version__

_ANSWER_S = 1.0
"""Seconds of one answer on a card without earlier retunes. Source: chosen, as the aim is 60 answers in a minute."""
_EARLIER = 3
"""Earlier retunes from which the time of one answer is estimated."""


def retune(
    kernel: str | Path | Kernel | None = None,
    problem: ProblemLike | Sequence[ProblemLike | Entry] | None = None,
    *,
    store: Store | str | Path | None = None,
    gpu: int | str = AUTO,
    replay: str | None = None,
    policy: str = AUTO,
    shared: bool = False,
    stale: bool = False,
    demand: bool = False,
    effort: str = "quick",
    threshold: float = SETTINGS.threshold,
    slower: float = 0.0,
    budget: float | str | None = None,
    check_only: bool = False,
    resume: bool = True,
    on_event: Events | None = None,
    stop: Callable[[], bool] | None = None,
) -> Retune:
    """Measure the answers in service on this card again, and store what is better.

    The config of each answer is timed beside its runner-up, the default and the vendor in interleaved rounds. The
    finding names the cause of a difference. Only if another config is ahead, the config fails or the kernel has new
    choices, a new search follows. It replaces the answer if its config is faster by more than the threshold with
    confidence, or if the answer's fails. A stale answer whose config is still the best is stored again for today's
    kernel and software.

        night = tuner.retune(budget="20m")
        for finding in night.findings:
            print(finding.problem.text, finding.cause, finding.action, finding.text)

    Args:
        kernel: the name of an op, the path of a kernel file, or the `Kernel` of one; None: the answers of all ops.
        problem: one problem of the kernel, or several; without a kernel also entries of a suite; None: all that have
            an answer.
        store: a store, or the path or URL of its database; None is `TUNER_DB`, else the user's data folder.
        gpu: the number of a GPU; `"auto"`, the first one; `"0,1"` or `"all"`.
        replay: the name or file of a recorded space to measure on in place of a GPU, or `"auto"` for those that the
            answers were replayed from.
        policy: `"cold"`, `"warm"` or `"graph"`; `"auto"` is the policy that each answer was timed by.
        shared: measure even while other processes use the GPU.
        stale: only answers that are stale, or whose kernel has new choices.
        demand: only problems whose lookups missed, which the service counts.
        effort: of a new search: `"quick"`, `"normal"` or `"exhaustive"`.
        threshold: gain from which a config replaces an answer, as a share.
        slower: slowdown from which a regression counts in the summary and the exit code, as a share.
        budget: seconds after which no further answer is begun, or a text such as `"20m"`; the most valuable are first.
        check_only: name the causes, and change no answer.
        resume: continue a retune of the same options that was interrupted in the last 24 hours.
        on_event: receives the progress; None shows it on a terminal or in a notebook.
        stop: polled, such as `threading.Event().is_set`; the findings so far are kept.

    Returns:
        The retune with its findings; `left` has the answers that the budget did not reach.

    Raises:
        UsageError: the kernel, a problem or an option is not understood.
        NoDevice: there is no GPU and no `replay`, or other processes use the GPU.
        NothingFound: no answer in service is selected.
        MeasureError: nothing could be measured for several answers in a row.
        StoreError: the database cannot be read or written.
    """
    options = MeasureOptions(str(gpu), replay, policy, shared)
    how = How(
        options,
        Effort.named(effort),
        replace(SETTINGS, threshold=_share("threshold", threshold)),
        check_only,
        parse_duration(budget) if isinstance(budget, str) else budget,
        stop=StopToken() if stop is None else StopToken(stop),
    )
    settings: dict[str, Any] = {
        "stale": stale,
        "demand": demand,
        "check_only": check_only,
        "effort": effort,
        "threshold": threshold,
        "slower": _share("slower", slower),
        "budget_s": how.budget_s,
        "policy": policy,
        "replay": replay,
    }
    if not check_only:
        require_search()
    with opened_store(store) as opened, shown_progress(on_event) as events:
        place = place_of(opened, options, kernel, problem, Wanted(stale=stale, demand=demand))
        for sentence in place.selection.left_out.values():
            events.note(sentence)
        settings |= {"kernel": place.wanted.reference, "problems": sorted(place.wanted.problems or ()) or None}

        def unfinished() -> Retune | None:
            return opened.retunes.unfinished(place.device, settings, gethostname()) if resume else None

        held: AbstractContextManager[list[HeldGpu | None]] = nullcontext([])
        if place.selection.chosen or unfinished() is not None:
            held = place.cards(opened, options, events)
        with held as cards:
            begun = _begun(opened, place, settings, unfinished())  # another may have ended while the cards were awaited
            return Retuning(opened, begun, place.selection, replace(how, events=events)).run(cards)


@dataclass(frozen=True)
class RetunePlan:
    """Plan of a retune: the answers that it would measure again."""

    device: str
    """Device id."""
    chosen: tuple[Chosen, ...]
    """The answers, most valuable first."""
    left_out: Mapping[str, str]
    """Sentence on the answers of an op that cannot be measured, by op."""
    seconds: float
    """Expected wall time, without new searches."""


def plan_retune(
    kernel: str | Path | Kernel | None = None,
    problem: ProblemLike | Sequence[ProblemLike | Entry] | None = None,
    *,
    store: Store | str | Path | None = None,
    gpu: int | str = AUTO,
    replay: str | None = None,
    policy: str = AUTO,
    stale: bool = False,
    demand: bool = False,
) -> RetunePlan:
    """Return the answers that `retune` would measure again with these options; it raises as `retune` does."""
    options = MeasureOptions(str(gpu), replay, policy)
    with opened_store(store) as opened:
        place = place_of(opened, options, kernel, problem, Wanted(stale=stale, demand=demand))
        seconds = [
            finding.seconds
            for retune in opened.retunes.newest(_EARLIER, place.device)
            for finding in retune.findings
            if not finding.searched
        ]
        each = mean(seconds) if seconds else _ANSWER_S
    chosen = place.selection.chosen
    return RetunePlan(place.device, chosen, place.selection.left_out, each * len(chosen) / max(1, len(place.gpus)))


def _begun(store: Store, place: Place, settings: Mapping[str, Any], unfinished: Retune | None) -> Retune:
    """Return the unfinished retune of these settings, or a new one."""
    retunes = store.retunes
    if unfinished is not None:
        retunes.resume(unfinished.id)
        return unfinished
    now = place.environment
    environment = {
        "triton": now.triton,
        "ptxas": now.ptxas,
        "torch": now.torch,
        "driver": now.driver,
        "tuner": __version__,
        "host": gethostname(),
    }
    planned = [chosen.stored.id for chosen in place.selection.chosen]
    begun = retunes.get(retunes.start(place.device, settings, planned, environment))
    assert begun is not None
    return begun


def _share(name: str, value: float) -> float:
    """Return a share. Raises UsageError unless it is from 0 to 10."""
    if not 0 <= value <= 10:
        raise UsageError(f"{name} is a share from 0 to 10, such as 0.02 for 2 %, not {value:g}")
    return value
