"""One search of one problem, written to the store as it goes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from tuner.db.store import Store
from tuner.kernels.spec import Config, Problem, Signature
from tuner.lookup.neighbours import with_current_knobs
from tuner.lookup.table import LookupResult, Table
from tuner.measure.measurer import Measurer
from tuner.records import (
    IMPORTED,
    NOT_INSTALLED,
    NOT_TAKEN,
    VENDOR,
    Answer,
    Comparison,
    Evidence,
    Measurement,
    StoredAnswer,
)
from tuner.records.retune import Finding
from tuner.search import COMPARISON, Budget, ComparisonSettings, Finalists, Result, close_to_best, search
from tuner.search.verdict import Verdict
from tuner.suites.suite import Entry
from tuner.tuning.covered import Covered, space_hash
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.heartbeat import Heartbeat
from tuner.tuning.pinned import pinned_answer
from tuner.tuning.target import Target
from tuner.tuning.warm_start import near_winners, transfer_losses
from tuner.tuning.winners import Winner


@dataclass(frozen=True)
class Decided:
    """An answer that a retune stores for the result of a search, with its finding."""

    answer: Answer
    retune: int
    """Id of the retune."""
    finding: Callable[[int], Finding]
    """Return the finding, given the answer's id."""


@dataclass(frozen=True)
class SearchAgain:
    """A search of a problem whose answer was just measured again."""

    decide: Callable[[Result, Answer], Decided | None]
    """Return what is stored for a result, given the answer of its verdict; None stores none."""
    measured: Sequence[Measurement] = ()
    """Measurements of today, in place of those of earlier runs."""
    first: Sequence[Config] = ()
    """Configs that are measured first."""
    kept: Sequence[Config] = ()
    """Configs that stay in the comparison to its end."""
    among: Sequence[Config] | None = None
    """The configs that are searched; None: all of the target."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of the run."""


def run_search(
    target: Target,
    store: Store,
    entry: Entry,
    effort: Effort,
    *,
    reuse: Callable[[Measurement], bool] = lambda measurement: True,
    finalists: Finalists = close_to_best,
    comparison: ComparisonSettings = COMPARISON,
    again: SearchAgain | None = None,
    events: Events | None = None,
    stop: StopToken | None = None,
) -> Result:
    """Search the target, and write each trial, the end of the run and its answer to the store.

    Args:
        reuse: whether a measurement of an earlier run is good enough not to be repeated; none is if the effort forces.
        finalists: as for `search`.
        comparison: limits of the interleaved comparison.
        again: what a retune knows, and its decision on the result.

    Raises:
        TunerError: the GPU is in use, or its processes cannot be started; then no run is stored.
    """
    measurer = target.measurer()  # first, since it may wait for another search or refuse
    try:
        run = _Run(target, store, entry, effort, reuse, again, events or Events(), stop or StopToken())
        result = run.search(measurer, finalists, comparison)
    finally:
        measurer.close()
    run.end(result)
    return result


class _Run:
    """A run in the store, from its start to its answer."""

    def __init__(
        self,
        target: Target,
        store: Store,
        entry: Entry,
        effort: Effort,
        reuse: Callable[[Measurement], bool],
        again: SearchAgain | None,
        events: Events,
        stop: StopToken,
    ) -> None:
        self._target, self._store, self._entry, self._effort = target, store, entry, effort
        self._events, self._stop, self._again = events, stop, again
        self._space = target.space if again is None or again.among is None else again.among
        self._measured = () if again is None else [m for m in again.measured if m.config in self._space]
        today = {m.config for m in self._measured}
        measured = [] if effort.force else store.known(target.signature_of(entry), entry.problem, target.provenance)
        self._known = [m for m in measured if m.config in self._space and m.config not in today and reuse(m)]
        earlier = store.earlier_searches(entry.problem, target.provenance)
        self._covered = Covered.of(self._known, earlier, target.space)
        self._winners = self._near_winners()
        self._id = store.start_run(target.signature_of(entry), entry.problem, target.provenance, self._settings())
        for measurement in self._measured:
            store.add_trial(self._id, measurement)

    def search(self, measurer: Measurer, finalists: Finalists, comparison: ComparisonSettings) -> Result:
        """Search, and write each trial the moment it ends."""
        problem, space, effort = self._entry.problem, self._space, self._effort
        budget, known = self._budget, [*self._known, *self._measured]
        first, kept = ((), ()) if self._again is None else (self._again.first, self._again.kept)
        try:
            self._events.search_started(problem, min(budget.trials or len(space), len(space)), len(known))
            with self._stop.watched(), Heartbeat(self._store, [self._id], measurer) as heartbeat:
                return search(
                    space,
                    self._target.default,
                    measurer,
                    sampler=effort.sampler,
                    seed=effort.seed,
                    budget=budget,
                    known=known,
                    winners=[*first, *self._winners],
                    late_winners=self._late_winners,
                    estimate=self._target.estimate,
                    on_trial=self._on_trial,
                    on_round=partial(self._on_round, heartbeat),
                    finalists=finalists,
                    kept=kept,
                    comparison=comparison,
                    stop=self._stop,
                )
        except BaseException as error:
            self._store.end_run(self._id, *status_after(error), {})
            raise
        finally:
            self._events.search_ended(problem)

    @property
    def _budget(self) -> Budget:
        """The limits of the effort, to which configs that were chosen for other problems or spaces do not count.

        If an earlier search was finished before the space changed, all of what was added is measured.
        """
        budget, added = self._effort.budget, len(self._space) - len(self._known) - len(self._measured)
        if budget.trials is None:
            return budget
        all_added = (self._covered.continues or self._space is not self._target.space) and added <= budget.trials
        probability = None if all_added else budget.min_improvement_probability
        return replace(budget, trials=budget.trials + self._covered.free, min_improvement_probability=probability)

    def end(self, result: Result) -> None:
        """Close the run, with its answer if it has one."""
        store, target = self._store, self._target
        self._note_vendors(result)
        if result.verdict is None or result.comparison is None:
            status = "interrupted" if result.stopped == "interrupted" else "failed"
            store.end_run(self._id, status, result.stopped, result.seconds)
        elif self._again is None and self._is_worse(result.comparison):
            self._events.note("Other processes used the card; the stored answer, measured on an idle card, is kept.")
            store.end_run(self._id, "done", "contended", result.seconds, result.comparison)
        elif pinned_answer(store, target, self._entry, self._events, "what was found here is not stored") is not None:
            store.end_run(self._id, "done", "pinned", result.seconds, result.comparison)
        else:
            self._keep(result, result.verdict, result.comparison)

    def _note_vendors(self, result: Result) -> None:
        """Note the vendors left out; one that is not installed, or not for the problem, only if none was timed."""
        found = result.comparison or Comparison((), ())
        if result.vendor_left_out:
            vendor = found.vendor or self._target.vendor_name
            self._events.note(f"{vendor} is left out: in some round its latency was not finite and above 0.")
        for name, why in found.left_out.items():
            if VENDOR not in found.contenders or not why.startswith((NOT_INSTALLED, NOT_TAKEN)):
                self._events.note(f"{name} is left out: {why}")

    def _is_worse(self, comparison: Comparison) -> bool:
        """Return whether others used the card meanwhile, and an exact answer was measured on an idle one."""
        return "contended" in comparison.marks and _is_clean(stored_answer(self._store, self._target, self._entry))

    def _keep(self, result: Result, verdict: Verdict, comparison: Comparison) -> None:
        """Store the answer of the verdict, or what the retune decides."""
        problem, target = self._entry.problem, self._target
        losses = [*transfer_losses(self._winners, problem, result)]
        answer = answer_of(problem, target, verdict, comparison, result.evidence[verdict.config])
        stopped, seconds = result.stopped, result.seconds
        decided = None if self._again is None else self._again.decide(result, answer)
        if self._again is not None and decided is None:
            self._store.end_run(self._id, "done", stopped, seconds, comparison)
            return
        self._store.add_answer(
            self._id,
            answer if decided is None else decided.answer,
            target.provenance,
            stopped,
            seconds,
            comparison,
            losses,
            retune=None if decided is None else decided.retune,
            finding=None if decided is None else decided.finding,
        )

    def _settings(self) -> Mapping[str, Any]:
        """Return the settings of the run, as `Effort.accepts` and `tuner show` read them."""
        target = self._target
        winners = [{"config": config.text, "answer": winner.answer} for config, winner in self._winners.items()]
        return {
            **self._effort.settings,
            "space": len(target.space),
            "space_hash": space_hash(target.space),
            "known": len(self._known),
            **self._covered.settings,
            "default": None if target.default is None else target.default.text,
            **target.settings,
            "winners": winners,
            **({} if self._again is None else self._again.settings),
        }

    def _near_winners(self) -> dict[Config, Winner]:
        if not self._effort.warm_start:
            return {}
        return near_winners(self._store, self._target, self._entry)

    def _late_winners(self) -> list[Config]:
        """Return the winners once more: the problem before on this card may have got its answer meanwhile."""
        later = self._near_winners()
        self._winners.update({config: winner for config, winner in later.items() if config not in self._winners})
        return [*later]

    def _on_trial(self, measurement: Measurement) -> None:
        self._store.add_trial(self._id, measurement)
        self._events.trial(self._entry.problem, measurement)

    def _on_round(self, heartbeat: Heartbeat, rounds: int, contenders: int) -> None:
        heartbeat.round(rounds, contenders)
        self._events.round(self._entry.problem, rounds, contenders)


def status_after(error: BaseException) -> tuple[str, str]:
    """Return the status of a run that an error ended, and what stopped it."""
    return ("interrupted", "interrupted") if isinstance(error, KeyboardInterrupt) else ("failed", "error")


def stored_answer(store: Store, target: Target, entry: Entry) -> LookupResult:
    """Return what the store answers for a problem on this target; a config that is not feasible is no answer."""
    device, problem = target.provenance.device.id, entry.problem
    answers = [
        stored
        for stored in store.answers(op=problem.op, device=device)
        if stored.provenance.recorded == target.provenance.recorded and stored.answer.problem.text == problem.text
    ]
    return Table(device, feasible_answers(answers, target.signature_of(entry), target.space)).find(
        target.query(problem)
    )


def feasible_answers(
    answers: Iterable[StoredAnswer], signature: Signature, feasible: Collection[Config]
) -> list[StoredAnswer]:
    """Return the answers whose config is feasible, and those that were imported, which state values of their own."""
    return [
        stored
        for stored in answers
        if stored.answer.kind == IMPORTED or with_current_knobs(signature, stored.answer.config) in feasible
    ]


def _is_clean(found: LookupResult) -> bool:
    """Return whether there is an exact answer that was measured while no other process used the card."""
    stored = found.stored
    return stored is not None and not found.differences and "contended" not in stored.answer.marks


def answer_of(problem: Problem, target: Target, verdict: Verdict, comparison: Comparison, evidence: Evidence) -> Answer:
    """Return the answer that a verdict gives.

    Args:
        evidence: of the verdict's config.
    """
    return Answer(
        problem=problem,
        kind=verdict.kind,
        config=verdict.config,
        latency_us=verdict.latency_us,
        interval_us=verdict.interval_us,
        speedup=verdict.speedup,
        speedup_interval=verdict.speedup_interval,
        default_latency_us=verdict.default_latency_us,
        vendor_latency_us=verdict.vendor_latency_us,
        ties=verdict.ties,
        unresolved=verdict.unresolved,
        evidence=evidence,
        marks=target.marks(verdict.latency_us, comparison),
        basis=target.basis,
        flops=target.flops,
        bytes=target.bytes,
    )
