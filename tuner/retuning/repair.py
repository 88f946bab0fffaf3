"""Repair of checked answers: they are kept, confirmed for today's key, replaced by a new search, or retired."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.db.store import Store
from tuner.errors import StoreError
from tuner.kernels.spec import Config
from tuner.records import Answer
from tuner.records.retune import Action, Cause, Finding
from tuner.report.default import failure_text
from tuner.report.text import interval_text
from tuner.retuning.cause import is_same
from tuner.retuning.checked import Checked, answer_about
from tuner.retuning.gain import is_gain
from tuner.retuning.retired import retire
from tuner.retuning.settings import RetuneSettings
from tuner.search import Result
from tuner.search.space import ListedSpace
from tuner.search.verdict import ratio
from tuner.tuning.covered import space_hash
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.run import Decided, SearchAgain, run_search
from tuner.tuning.target import Target

RETUNE = "retune"
"""Setting of a run that a retune made: its id."""
_BESIDE = "other processes used the card during the search, so what it found is not stored"


@dataclass(frozen=True)
class Repair:
    """The repair of answers in one retune.

    Args:
        finish: completes a finding, such as with its wall time.
    """

    store: Store
    retune: int
    settings: RetuneSettings
    effort: Effort
    events: Events
    stop: StopToken
    check_only: bool
    is_shared: bool
    finish: Callable[[Finding], Finding]

    def act(self, checked: Checked, whole: Callable[[], Target]) -> Finding | None:
        """Do what a check calls for, and return the finding, which is stored; None if it was stopped.

        Args:
            whole: returns the target with all feasible configs.
        """
        chosen, check = checked.chosen, checked.check
        if (held := self._held(checked)) is not None:
            return self._written(held)
        if check.cause is Cause.NOT_MEASURED or self.check_only:
            return self._written(checked.finding(Action.KEPT))
        if checked.is_broken or check.judgement.ahead is not None or chosen.added:
            return self._search(replace(checked, target=whole()))
        if chosen.is_stale:
            return self._confirm(replace(checked, target=whole()))
        return self._written(checked.finding(Action.KEPT))

    def _held(self, checked: Checked) -> Finding | None:
        """Return the finding of an answer that is kept whatever its check found; None if it may be changed.

        It is pinned, or it was forgotten or followed by another answer since it was chosen.
        """
        chosen, stored = checked.chosen, checked.chosen.stored
        if chosen.is_pinned or self.store.pins.holding(chosen.problem, stored.provenance) is not None:
            return checked.finding(Action.KEPT, pinned=True)
        history = self.store.history(chosen.problem, stored.provenance.device.id)
        alike = [each for each in history if each.provenance.recorded == stored.provenance.recorded]
        if any(each.id > chosen.newest and each.forgotten_at is None for each in alike):
            why = "another answer was stored meanwhile"
        elif any(each.id == stored.id and each.forgotten_at is not None for each in alike):
            why = "it was forgotten meanwhile"
        else:
            return None
        return checked.finding(Action.KEPT, text=f"{checked.check.judgement.text}; {why}, so nothing is stored")

    def _written(self, finding: Finding) -> Finding:
        finding = self.finish(finding)
        self.store.retunes.add(self.retune, finding)
        return finding

    def _confirm(self, checked: Checked) -> Finding:
        """Store the same config under today's key, with the rounds that were just measured."""
        target, check = checked.target, checked.check
        assert check.comparison is not None
        answer = answer_about(checked, check.comparison, [m.config for m in check.measured], check.evidence)
        settings = {
            "sampler": "retune",
            "seed": 0,
            "trials": len(check.measured),
            "budget_s": self.settings.check_s,
            "space": len(target.space),
            "space_hash": space_hash(target.space),
            "known": 0,
            "default": None if target.default is None else target.default.text,
            **target.settings,
            **self._about_run(checked),
        }
        entry = checked.chosen.entry
        run = self.store.start_run(target.signature_of(entry), entry.problem, target.provenance, settings)
        for measurement in check.measured:
            self.store.add_trial(run, measurement)
        outcome = _Outcome()
        decided = self._stored(checked, answer, Action.CONFIRMED, {}, outcome)
        try:
            self.store.add_answer(
                run,
                answer,
                target.provenance,
                stopped="confirmed",
                seconds={},
                comparison=check.comparison,
                retune=decided.retune,
                finding=decided.finding,
            )
        except StoreError:
            outcome.finding = self._found_elsewhere(checked)
            if outcome.finding is None:
                raise
        assert outcome.finding is not None
        return outcome.finding

    def _search(self, checked: Checked) -> Finding | None:
        """Search again, from what is known, and store what `_decide` returns."""
        chosen, target, check = checked.chosen, checked.target, checked.check
        config, outcome, entry = checked.subject.config, _Outcome(), chosen.entry
        known = {measurement.config for measurement in check.measured}
        if not checked.is_broken:  # else earlier measurements are in doubt too
            known |= {m.config for m in self.store.known(target.signature_of(entry), entry.problem, target.provenance)}

        def searched(result: Result) -> int:
            return sum(measurement.config not in known for measurement in result.measurements)

        def decided(result: Result, answer: Answer) -> Decided | None:
            return self._decide(checked, result, answer, {"searched": searched(result)}, outcome)

        again = SearchAgain(
            decided,
            measured=check.measured,
            first=[each for each in (config, *checked.subject.roles.values()) if each in target.space],
            kept=[] if checked.is_broken else [config],
            among=self._among(checked, known),
            settings=self._about_run(checked),
        )
        effort = self.effort.exhausting() if target.is_exhausted else self.effort
        try:
            result = run_search(
                target,
                self.store,
                entry,
                effort,
                reuse=lambda measurement: not checked.is_broken,
                again=again,
                events=self.events,
                stop=self.stop,
            )
        except StoreError:
            existing = self._found_elsewhere(checked)
            if existing is None:
                raise
            return existing
        if outcome.finding is not None:
            return outcome.finding
        if outcome.kept is not None:
            return self._written(outcome.kept)
        if result.stopped == "interrupted":
            return None
        if result.verdict is not None:  # it was pinned during the search
            return self._written(checked.finding(Action.KEPT, pinned=True, searched=searched(result)))
        return self._without_answer(checked, searched(result))

    def _decide(
        self, checked: Checked, result: Result, answer: Answer, facts: dict[str, Any], outcome: _Outcome
    ) -> Decided | None:
        """Return what to store for the result of a search: a config that is faster enough, or the old one.

        Args:
            facts: fields of the finding.
        """
        comparison, config, new = result.comparison, checked.subject.config, answer.config
        assert comparison is not None
        if (held := self._held(checked)) is not None:
            outcome.kept = replace(held, **facts)
            return None
        if "contended" in comparison.marks and not self.is_shared:
            text = f"{checked.check.judgement.text}; {_BESIDE}"
            outcome.kept = checked.finding(Action.KEPT, text=text, **facts)
            return None
        if config.text not in comparison.contenders:
            error = checked.check.error or _failure(result, config)
            facts |= {"cause": Cause.BROKEN, "text": error, "error": error, "new_config": new}
            return self._stored(checked, answer, Action.REPLACED, facts, outcome)
        if new != config:
            gain, interval = ratio(comparison, config.text, new.text)
            facts |= {"new_config": new, "gain": gain, "gain_interval": interval}
            if is_gain(interval[0], self._stored_gain(checked, new), self.settings.threshold):
                return self._stored(checked, answer, Action.REPLACED, facts, outcome)
            facts["text"] = (
                f"{checked.check.judgement.text}; the fastest config of a new search is {gain:.3f} x as fast "
                f"({interval_text(interval, 3)}), which does not show a gain of {self.settings.threshold:.1%}"
            )
        if checked.is_outdated:
            evidence = result.evidence[config]
            configs = [measurement.config for measurement in result.measurements]
            old = answer if new == config else answer_about(checked, comparison, configs, evidence)
            return self._stored(checked, old, Action.CONFIRMED, facts, outcome)
        outcome.kept = checked.finding(Action.KEPT, **facts)
        return None

    def _stored_gain(self, checked: Checked, new: Config) -> float | None:
        """Return the gain of a config in the stored rounds of the answer; None if something changed since then."""
        stored, check, config = checked.subject.comparison, checked.check, checked.subject.config
        if stored is None or check.then is None or check.now is None or not is_same(check.then, check.now):
            return None
        return ratio(stored, config.text, new.text)[0] if {config.text, new.text} <= {*stored.timed} else None

    def _stored(
        self, checked: Checked, answer: Answer, action: Action, facts: dict[str, Any], outcome: _Outcome
    ) -> Decided:
        def finding(id: int) -> Finding:
            return outcome.keep(self.finish(checked.finding(action, new_answer_id=id, **facts)))

        return Decided(answer, self.retune, finding)

    def _without_answer(self, checked: Checked, searched: int) -> Finding:
        """Return the finding of a search in which no config worked.

        An answer that is exact for today's kernel and compiler is retired. One of another version is kept, since it may
        be right for those that still have that version.
        """
        if (held := self._held(checked)) is not None:
            return self._written(replace(held, searched=searched))
        if checked.is_broken and checked.chosen.is_exact:
            finding = self._written(checked.finding(Action.RETIRED, searched=searched))
            retire(self.store, [finding])
            return finding
        text = f"{checked.check.judgement.text}; no other config works"
        if checked.is_broken:
            text += ", and the answer is kept for the version that it was stored with"
        return self._written(checked.finding(Action.KEPT, text=text, searched=searched))

    def _among(self, checked: Checked, known: Collection[Config]) -> Sequence[Config] | None:
        """Return the known configs and those with choices that were added, if only these are new; None: all."""
        chosen, target = checked.chosen, checked.target
        if not chosen.added or not chosen.is_exact or checked.is_broken or checked.check.judgement.ahead is not None:
            return None
        return ListedSpace([config for config in target.space if config in known or chosen.is_new(config)])

    def _about_run(self, checked: Checked) -> dict[str, Any]:
        return {RETUNE: self.retune, "about": checked.chosen.stored.id}

    def _found_elsewhere(self, checked: Checked) -> Finding | None:
        """Return the finding of another process that goes on with this retune and was first; None if there is none."""
        retune = self.store.retunes.get(self.retune)
        findings = () if retune is None else retune.findings
        return next((each for each in findings if each.answer_id == checked.chosen.stored.id), None)


class _Outcome:
    """Result of a search, as the finding of its answer is made while the store writes it."""

    def __init__(self) -> None:
        self.finding: Finding | None = None
        """The finding that was stored with an answer."""
        self.kept: Finding | None = None
        """The finding of an answer that is kept, which is not stored yet."""

    def keep(self, finding: Finding) -> Finding:
        self.finding = finding
        return finding


def _failure(result: Result, config: Config) -> str:
    """Return the failure of a config in a search; an empty text if it is not known."""
    return next((failure_text(m) for m in result.measurements if m.config == config and not m.ok), "")
