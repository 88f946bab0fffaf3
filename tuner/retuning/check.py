"""The check of one answer: its config beside its runner-up, the default and the vendor, in the same rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

from tuner.db.rows import utc_now
from tuner.db.store import Store
from tuner.kernels.spec import Config, Signature
from tuner.lookup.neighbours import with_current_knobs
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR_NAME, Comparison, Evidence, Measurement, Provenance, StoredAnswer
from tuner.records.retune import Cause, Reading
from tuner.report.default import failure_text
from tuner.retuning.cause import Judgement, cause_of, is_decided
from tuner.retuning.reading import next_best, reading_of, roles_of, stored_reading
from tuner.retuning.settings import SETTINGS, RetuneSettings
from tuner.search.comparison import COMPARISON
from tuner.search.verdict import VERDICT
from tuner.tuning.bench import RoundLimits, compare_configs, measure_configs
from tuner.tuning.target import Target


@dataclass(frozen=True)
class Known:
    """Facts in a store about an answer's config and the next best ones."""

    stored: StoredAnswer
    comparison: Comparison | None
    """Stored rounds of the run that measured it."""
    candidates: Sequence[Config]
    """The first few configs that come next, the best first."""

    @staticmethod
    def of(stored: StoredAnswer, store: Store, signature: Signature) -> Known:
        """Return what a store knows about an answer. Knobs that the signature has since got take their default."""
        comparison = store.comparison(stored.measured_in)
        next_ones = islice(next_best(stored, comparison, store), SETTINGS.candidates)
        several = dict.fromkeys(with_current_knobs(signature, config) for config in next_ones)
        config = with_current_knobs(signature, stored.answer.config) or stored.answer.config
        stored = replace(stored, answer=replace(stored.answer, config=config))
        return Known(stored, comparison, [each for each in several if each is not None and each != config])

    @property
    def configs(self) -> list[Config]:
        """The answer's config and the candidates."""
        return [self.stored.answer.config, *self.candidates]


@dataclass(frozen=True)
class Subject:
    """An answer to be checked, with the configs that are measured beside its own."""

    stored: StoredAnswer
    provenance: Provenance
    """Provenance of what is measured now."""
    default: Config | None
    """The kernel's default; None if it is not feasible."""
    runner_up: Config | None = None
    comparison: Comparison | None = None
    """Stored rounds of the answer's run."""
    vendor_name: str = VENDOR_NAME
    is_own_vendor: bool = True
    """True if that is the kernel's own vendor."""

    @staticmethod
    def of(known: Known, target: Target) -> Subject:
        """Return an answer with the default of a target, and the first candidate that is feasible as its runner-up."""
        feasible = (each for each in known.candidates if each in target.space and each != target.default)
        return Subject(
            known.stored,
            target.provenance,
            default=target.default,
            runner_up=next(feasible, None),
            comparison=known.comparison,
            vendor_name=target.vendor_name,
            is_own_vendor=target.is_own_vendor,
        )

    @property
    def config(self) -> Config:
        """The answer's config."""
        return self.stored.answer.config

    @cached_property
    def roles(self) -> Mapping[str, Config]:
        """The other configs by their roles."""
        return roles_of(self.default, self.runner_up)

    @cached_property
    def then(self) -> Reading | None:
        """The reading of the stored rounds; None if there are none."""
        return stored_reading(self.stored, self.comparison, self.roles, self.vendor)

    @property
    def vendor(self) -> str:
        """Name of the vendor; empty if it is the kernel's own."""
        return "" if self.is_own_vendor else self.vendor_name

    def reading(self, comparison: Comparison, at: str) -> Reading:
        """Return the reading of rounds of now."""
        return reading_of(comparison, self.config, self.roles, self.provenance, at, self.vendor)


@dataclass(frozen=True)
class Check:
    """The outcome of checking an answer."""

    judgement: Judgement
    then: Reading | None = None
    now: Reading | None = None
    """None if the config is broken or was not measured."""
    error: str = ""
    """Failure of the config, or the reason for which it was not measured."""
    measured: tuple[Measurement, ...] = ()
    comparison: Comparison | None = None
    evidence: Evidence = field(default=Evidence())
    """Result of its correctness check."""

    @property
    def cause(self) -> Cause:
        """The cause of the difference."""
        return self.judgement.cause


def check(
    subject: Subject,
    measurer: Measurer,
    *,
    settings: RetuneSettings = SETTINGS,
    machine: float | None = None,
    is_shared: bool = False,
    seed: int = 0,
    stop: Callable[[], bool] = lambda: False,
) -> Check | None:
    """Check an answer's config for correctness, and time it beside the others; return None if it was stopped.

    Args:
        measurer: Times by the policy of `subject.provenance`. It is settled and not closed.
        machine: As for `cause_of`.
        is_shared: Rounds count even if other processes used the card meanwhile.

    Raises:
        MeasureError: The worker processes cannot be kept alive.
    """
    config = subject.config
    contenders = list(dict.fromkeys([config, *subject.roles.values()]))
    measuring = _Measuring(subject, measurer, settings, is_shared, seed, stop)
    measured = measuring.each_alone(contenders)
    if measured is None:
        return None
    measurer.settle(0.0)
    then, all_measured = subject.then, tuple(measured.values())
    own = measured[config]
    if not own.ok:
        return broken(own, then, all_measured)
    right = [each for each in contenders if measured[each].ok]
    found = measuring.beside_each_other(right)
    if found is None:
        return None
    if isinstance(found, Measurement):
        return broken(found, then, (*(m for m in all_measured if m.config != config), found))
    if "contended" in found.marks and not is_shared:
        return not_measured("other processes used the card; run it again, or measure beside them with --shared", then)
    if len(found.rounds) < VERDICT.first_look:
        return not_measured(f"too few rounds to decide within the time limit: {len(found.rounds)}", then)
    now = subject.reading(found, utc_now())
    judgement = cause_of(then, now, settings=settings, machine=machine, vendor=subject.vendor_name)
    evidence = Evidence(own.max_error, own.tolerance, ("normal",), 1)
    return Check(judgement, then, now, "", all_measured, found, evidence)


def rechecked(found: Check, config: Config, measurer: Measurer) -> Check:
    """Return a check after a second correctness check on other inputs, as a search makes of its finalists."""
    (evidence,) = measurer.recheck([config], COMPARISON.recheck_seed)
    if isinstance(evidence, Measurement):
        others = tuple(m for m in found.measured if m.config != config)
        return broken(evidence, found.then, (*others, evidence))
    return replace(found, evidence=evidence)


def not_measured(error: str, then: Reading | None = None) -> Check:
    """Return the outcome of an answer that could not be measured."""
    return Check(Judgement(Cause.NOT_MEASURED, error), then, error=error)


def broken(failed: Measurement, then: Reading | None, measured: tuple[Measurement, ...] = ()) -> Check:
    """Return the outcome of an answer whose config failed."""
    error = failure_text(failed)
    return Check(Judgement(Cause.BROKEN, error), then, error=error, measured=measured)


@dataclass(frozen=True)
class _Measuring:
    """The measuring of one check. The arguments are those of `check`."""

    subject: Subject
    measurer: Measurer
    settings: RetuneSettings
    is_shared: bool
    seed: int
    stop: Callable[[], bool]

    def each_alone(self, contenders: Sequence[Config]) -> dict[Config, Measurement] | None:
        """Measure each config alone, and the answer's again if its failure may not be its own; None if stopped."""
        own = self.subject.config
        measured = measure_configs(contenders, self.measurer, self.stop)
        for _ in range(self.settings.tries - 1):
            if measured is None or measured[own].outcome.permanent:
                break
            again = measure_configs([own], self.measurer, self.stop)
            measured = None if again is None else measured | again
        return measured

    def beside_each_other(self, configs: Sequence[Config]) -> Comparison | Measurement | None:
        """Return the rounds; the failed measurement of the answer's config; or None if it was stopped.

        Another config that fails leaves the comparison. Rounds during which others used the card are repeated.
        """
        limits = RoundLimits(self.settings.max_rounds, self.settings.check_s, self.settings.first_look_s)
        seed, disturbed = self.seed, 0
        while True:
            found = compare_configs(configs, self.measurer, seed, self.stop, is_enough=self._is_enough, limits=limits)
            if isinstance(found, Measurement) and found.config != self.subject.config:
                configs = [config for config in configs if config != found.config]
            elif isinstance(found, Comparison) and "contended" in found.marks and not self.is_shared:
                disturbed += 1
                if disturbed >= self.settings.tries:
                    return found
            else:
                return found
            seed += self.settings.max_rounds

    def _is_enough(self, comparison: Comparison) -> bool:
        return is_decided(self.subject.then, self.subject.reading(comparison, ""), self.settings)
