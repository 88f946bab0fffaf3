"""A run of re-tuning: the answers of a plan, one after the other on each card.

Two problems are under way on a card: one measures, and the next compiles. Each finding is stored when it is made, an
answer together with its finding, so that a run that was killed goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from time import monotonic

from tuner.db.store import Store
from tuner.errors import Interrupted, KernelFault, MeasureError, StoreError, TunerError
from tuner.kernels.spec import Config
from tuner.records import Measurement, Outcome, median
from tuner.records.readings import machine_factor
from tuner.records.retune import Action, Cause, Finding, Retune
from tuner.report.vendor import stored_vendor
from tuner.retuning.cause import is_same, spread_of
from tuner.retuning.check import Check, Known, Subject, broken, check, not_measured, rechecked
from tuner.retuning.checked import Checked
from tuner.retuning.repair import Repair
from tuner.retuning.retired import retire
from tuner.retuning.selection import Chosen, Selection
from tuner.retuning.settings import SETTINGS, RetuneSettings
from tuner.tuning.captured import CallTuning
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import HeldGpu, MeasureOptions
from tuner.tuning.lanes import spread
from tuner.tuning.target import Target, gpu_target, recorded_target

_A_CARD = 2
"""Problems under way on a card: one measures, and the next compiles meanwhile."""
_BROKEN = 3
"""Problems in a row for which no worker process ran, after which the retune ends as failed."""


@dataclass(frozen=True)
class How:
    """The way in which answers are measured again and repaired."""

    options: MeasureOptions
    effort: Effort
    """Effort of a new search."""
    settings: RetuneSettings = SETTINGS
    check_only: bool = False
    """Change no answer."""
    budget_s: float | None = None
    """Seconds after which no further answer is begun; None: no limit."""
    events: Events = field(default_factory=Events)
    stop: StopToken = field(default_factory=StopToken)


class Retuning:
    """One run of re-tuning on the cards of a host, of a retune that was started or goes on."""

    def __init__(self, store: Store, retune: Retune, selection: Selection, how: How) -> None:
        self._store, self._retune, self._how = store, retune, how
        self._chosen: Mapping[int, Chosen] = {chosen.stored.id: chosen for chosen in selection.chosen}
        self._done = len(retune.findings)
        self._started = self._last_end = monotonic()
        self._lock = Lock()
        self._factors = [
            factor for each in retune.findings if (factor := machine_factor(each.then, each.now)) is not None
        ]
        self._failed = 0
        """Problems in a row for which no worker process ran."""

    def run(self, cards: Sequence[HeldGpu | None]) -> Retune:
        """Measure the answers again that are left, and return the retune with all findings.

        Args:
            cards: None stands for recorded spaces in place of a card.

        Raises:
            MeasureError: Nothing could be measured for several answers in a row.
        """
        how, store = self._how, self._store
        how.events.retune_started(self._retune)
        with self._ended():
            retire(store, self._retune.findings)  # if it was killed in between
            workers = [partial(self._measure, card) for card in cards for _ in range(1 if card is None else _A_CARD)]
            spread(self._retune.left, workers, self._on_finding, how.stop)
        found = store.retunes.get(self._retune.id)
        assert found is not None
        return found

    @contextmanager
    def _ended(self) -> Iterator[None]:
        """Write the status of the retune at its end."""
        end = partial(self._store.retunes.end, self._retune.id)
        try:
            yield
        except BaseException as error:
            end("interrupted" if isinstance(error, KeyboardInterrupt | Interrupted) else "failed")
            raise
        end("interrupted" if self._how.stop() else "done")

    def _on_finding(self, finding: Finding) -> None:
        self._done += 1
        self._how.events.found(finding, self._done, len(self._retune.planned))

    def _measure(self, card: HeldGpu | None, answer: int) -> Finding | None:
        """Return the finding of an answer, which is stored; None if it was stopped or the budget is spent."""
        if self._how.budget_s is not None and monotonic() - self._started >= self._how.budget_s:
            return None
        chosen = self._chosen.get(answer)
        if chosen is None:
            return self._gone(answer)
        try:
            finding = self._checked(card, chosen)
        except Interrupted:
            return None
        except StoreError:
            raise
        except TunerError as error:
            self._count_failure(error)
            finding = self._not_measured(chosen, str(error))
        else:
            self._failed = 0
        return finding

    def _count_failure(self, error: TunerError) -> None:
        """Raise the error if several in a row say that no worker process runs here."""
        with self._lock:
            self._failed += isinstance(error, MeasureError) and not isinstance(error, KernelFault)
            if self._failed >= _BROKEN:
                raise error

    def _checked(self, card: HeldGpu | None, chosen: Chosen) -> Finding | None:
        """Check an answer, and do what the check calls for; return None if it was stopped."""
        known = Known.of(chosen.stored, self._store, chosen.entry.signature)
        keeps = self._how.check_only or chosen.is_pinned
        whole = not keeps and (chosen.is_stale or bool(chosen.added))
        target = self._target(card, chosen, None if whole else known.configs)
        subject = Subject.of(known, target)
        found = self._check(chosen, subject, target)
        if found is None:
            return None
        factor = machine_factor(found.then, found.now)
        if factor is not None:
            self._factors.append(factor)
        checked = Checked(chosen, subject, target, found)
        return self._repair().act(checked, lambda: target if whole else self._target(card, chosen, None))

    def _check(self, chosen: Chosen, subject: Subject, target: Target) -> Check | None:
        """Return the check of an answer; None if it was stopped."""
        how, config = self._how, subject.config
        if config not in target.space:
            why = Measurement(config, Outcome.INFEASIBLE, error=f"now {target.why_not(config)}")
            return broken(why, subject.then)
        machine = median(self._factors) if len(self._factors) >= how.settings.few else None
        measurer = target.measurer()
        try:
            found = check(
                subject,
                measurer,
                settings=self._settings(subject),
                machine=machine,
                is_shared=how.options.shared,
                seed=self._retune.id * how.settings.max_rounds,
                stop=how.stop,
            )
            keeps = how.check_only or chosen.is_pinned or not chosen.is_stale
            if found is not None and found.now is not None and not keeps:
                found = rechecked(found, config, measurer)
        finally:
            measurer.close()
        return found

    def _settings(self, subject: Subject) -> RetuneSettings:
        """Return the settings of a check, with the spread of the answer's earlier readings of the same code."""
        then, stored, settings = subject.then, subject.stored, self._how.settings
        if then is None:
            return settings
        earlier = self._store.retunes.of_problem(stored.answer.problem.text, stored.provenance.device.id)
        readings = [found.now for _, found in earlier if found.config == subject.config and found.now is not None]
        alike = [then, *(each for each in readings if is_same(then, each))]
        return replace(settings, spread=max(settings.spread, spread_of(alike)))

    def _target(self, card: HeldGpu | None, chosen: Chosen, among: Sequence[Config] | None) -> Target:
        """Return the target of an answer.

        Args:
            among: the configs that are of interest; None: all.
        """
        how = self._how
        options = replace(how.options, policy=chosen.policy, vendors=stored_vendor(chosen.stored))
        if card is None:
            assert chosen.space is not None
            return recorded_target(chosen.space, chosen.problem, how.options.policy)
        if chosen.call is not None:
            tuning = CallTuning(self._store, options, how.events, how.stop)
            return tuning.target(chosen.call.call, chosen.call.id, card, spare=False)[1]
        return gpu_target(
            chosen.entry,
            self._store,
            card,
            options=options,
            events=how.events,
            spare=False,
            among=among,
        )

    def _repair(self) -> Repair:
        how, effort = self._how, self._how.effort
        if how.budget_s is not None:
            left = max(1.0, how.budget_s - (monotonic() - self._started))
            seconds = min(left, effort.budget.seconds or left)
            effort = replace(effort, budget=replace(effort.budget, seconds=seconds))
        return Repair(
            store=self._store,
            retune=self._retune.id,
            settings=how.settings,
            effort=effort,
            events=how.events,
            stop=how.stop,
            check_only=how.check_only,
            is_shared=how.options.shared,
            finish=self._timed,
        )

    def _timed(self, finding: Finding) -> Finding:
        """Return a finding with the wall time since the one before."""
        with self._lock:
            now = monotonic()
            seconds, self._last_end = now - self._last_end, now
        return replace(finding, seconds=round(seconds, 3))

    def _not_measured(self, chosen: Chosen, error: str) -> Finding:
        stored = chosen.stored
        found = not_measured(error)
        finding = Finding(
            problem=chosen.problem,
            answer_id=stored.id,
            config=stored.answer.config,
            cause=found.cause,
            action=Action.KEPT,
            text=found.judgement.text,
            reasons=chosen.reasons,
            pinned=chosen.is_pinned,
            error=error,
        )
        return self._added(finding)

    def _gone(self, answer: int) -> Finding | None:
        """Return the finding of a planned answer that serves no longer; None if it cannot be read."""
        stored = self._store.answer(answer)
        if stored is None:
            return None
        text = "another answer serves its problem now" if stored.forgotten_at is None else "it was forgotten"
        text += ", so it was not measured"
        finding = Finding(stored.answer.problem, answer, stored.answer.config, Cause.UNCHANGED, Action.KEPT, text)
        return self._added(finding)

    def _added(self, finding: Finding) -> Finding:
        finding = self._timed(finding)
        self._store.retunes.add(self._retune.id, finding)
        return finding
