"""The interleaved comparison of the finalists: rounds, early elimination, recheck, verdict."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome, median
from tuner.search.finalists import Finalists
from tuner.search.trials import Trials
from tuner.search.verdict import VERDICT, Verdict, decide, ratio, rounds_wanted


@dataclass(frozen=True)
class ComparisonSettings:
    """Limits of the interleaved comparison. docs/studies/search.md has their measurements."""

    elimination_s: float | None = 4.0
    """Time limit in seconds once every contender has its minimum of rounds. Slower contenders leave early.

    None: no contender leaves, and the comparison takes as many rounds as the verdict needs.
    """
    limit_s: float = 30.0
    """Time limit in seconds if the search has no time budget."""
    min_s: float = 1.0
    """Time in seconds that the comparison has even if the time budget is spent."""
    far: float = 1.02
    """Slowdown, relative to the leader, above which a contender leaves at the first look."""
    confirmed: float = 1.05
    """Highest latency of the fastest contender, relative to the fastest measurement, that confirms this measurement."""
    contender_s: float = 0.15
    """Estimated time of one contender's rounds and recheck, in seconds. It limits contenders by the time left."""
    min_contenders: int = 5
    """Minimum number of contenders when the time budget is nearly spent."""
    recheck_seed: int = 1_000_001
    """Seed of the inputs for the contenders' second correctness check."""


COMPARISON = ComparisonSettings()
_NO_LATENCY = "in some round its latency was not finite and above 0"


class ComparisonLoop:
    """The interleaved comparison of one search, from the choice of contenders to the verdict.

    Args:
        trials: the search's measurements. A contender that fails becomes a failed trial.
        default: always a contender if it ran; None if the card cannot run it.
        measurer: compares and rechecks configs.
        finalists: chooses the contenders.
        kept: configs that are contenders if they ran, and stay to the end of the comparison.
        end: monotonic time at which the time budget is spent; infinite without one.
        seed: seed of the order within the rounds.
        on_round: called after each batch of rounds with the number of rounds done and of contenders left.
        stop: polled between batches of rounds; True ends the comparison without a verdict.
    """

    def __init__(
        self,
        trials: Trials,
        default: Config | None,
        measurer: Measurer,
        finalists: Finalists,
        *,
        kept: Collection[Config] = (),
        end: float,
        seed: int,
        settings: ComparisonSettings,
        on_round: Callable[[int, int], None],
        stop: Callable[[], bool],
    ) -> None:
        self.evidence: dict[Config, Evidence] = {}
        """Correctness evidence of the contenders that were rechecked."""
        self.opening: Comparison | None = None
        """First batch of rounds, with the contenders that left after it."""
        self.vendor_left_out = False
        """True if the vendor had no latency in some round."""
        self._trials, self._default, self._measurer, self._finalists = trials, default, measurer, finalists
        self._kept = {*kept} if default is None else {*kept, default}
        self._end, self._seed, self._settings = end, seed, settings
        self._on_round, self._stop = on_round, stop
        self._compared_us: dict[Config, float] = {}
        """Latencies, in us, in rounds that did not confirm the fastest measurement."""

    def run(self) -> tuple[Comparison, Verdict] | None:
        """Compare until no contender fails; return None if none is left or the search was stopped."""
        while not self._stop() and (contenders := self._contenders()):
            comparison = self._compare(contenders)
            if comparison is not None:
                return comparison, self._verdict(comparison)
        return None

    def _compare(self, contenders: Sequence[Config]) -> Comparison | None:
        """Return as many rounds as the verdict needs, within limits; None if a contender fails or it was stopped."""
        settings, started = self._settings, monotonic()
        end = max(started + settings.min_s, min(self._end, started + settings.limit_s))
        comparison: Comparison | None = None
        verdict: Verdict | None = None
        while (wanted := rounds_wanted(verdict)) and not self._stop():
            done = 0 if comparison is None else len(comparison.rounds)
            more = self._rounds(contenders, wanted, max(0.0, end - monotonic()), self._seed + done)
            if isinstance(more, Measurement):
                self._trials.add(more)
                return None
            started, end = started + more.ahead_s, end + more.ahead_s
            if not more.rounds:  # a recorded space has no more
                break
            if comparison is None and monotonic() < end and (others := self._contenders_after(more)):
                contenders = others
                continue
            if comparison is None:
                self.opening = more
            comparison = joined(comparison, more)
            verdict = self._verdict(comparison)
            if settings.elimination_s is not None:
                contenders = self._remaining(contenders, comparison, verdict)
                vendor = [VENDOR] if VENDOR in comparison.contenders else []
                comparison = comparison.among([*(config.text for config in contenders), *vendor])
            self._on_round(len(comparison.rounds), len(contenders))
            if len(comparison.rounds) >= VERDICT.min_rounds:
                if not self._recheck(contenders):
                    return None
                if settings.elimination_s is not None:
                    end = min(end, started + settings.elimination_s)
            if monotonic() >= end:
                break
        if self._stop():
            return None
        if comparison is None:
            raise MeasureError("an interleaved comparison needs at least one round, and the measurer gave none")
        return comparison if self._recheck(contenders) else None

    def _rounds(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        """Return the measurer's rounds, without a vendor that they do not time, or a config's failed measurement."""
        more = self._measurer.compare(configs, rounds, seconds, seed)
        timed = only_timed(configs, more)
        if isinstance(more, Comparison) and isinstance(timed, Comparison):
            self.vendor_left_out = self.vendor_left_out or timed.contenders != more.contenders
        return timed

    def _contenders(self) -> list[Config]:
        """Return the finalists, the default and the kept configs, fastest first, as many as there is time for."""
        ranked = self._ranked()
        left = self._end - monotonic()
        most = None if left == inf else max(self._settings.min_contenders, int(left / self._settings.contender_s))
        chosen = {measurement.config for measurement in self._finalists(ranked)[:most]}
        return [m.config for m in ranked if m.config in chosen or m.config in self._kept]

    def _ranked(self) -> list[Measurement]:
        """Return the measurements that are ok, fastest first, by their latencies in earlier rounds if they have any."""
        compared = self._compared_us
        right = [m for m in self._trials.by_config.values() if m.ok]
        seen = [replace(m, samples=(compared[m.config],)) if m.config in compared else m for m in right]
        return sorted(seen, key=lambda m: m.latency_us)

    def _contenders_after(self, comparison: Comparison) -> list[Config]:
        """Return new contenders if the first rounds do not confirm the fastest measurement, else []."""
        compared = {config: median(comparison.of(config.text)) for config in self._configs(comparison)}
        if min(compared.values()) <= self._settings.confirmed * self._ranked()[0].latency_us:
            return []
        self._compared_us |= compared
        others = self._contenders()
        return others if set(others) - set(compared) else []

    def _remaining(self, contenders: Sequence[Config], comparison: Comparison, verdict: Verdict) -> list[Config]:
        """Return the contenders that are not shown to be slower; winner, default and kept ones always remain."""
        remaining = {verdict.config, *self._kept, *(tie.config for tie in verdict.ties)}
        if len(comparison.rounds) < VERDICT.min_rounds:
            lower = {config: ratio(comparison, config.text, verdict.config.text)[1][0] for config in contenders}
            remaining |= {config for config in contenders if lower[config] <= self._settings.far}
        return [config for config in contenders if config in remaining]

    def _recheck(self, contenders: Sequence[Config]) -> bool:
        """Check the contenders that have no evidence yet on other inputs; return whether all are right."""
        unchecked = [config for config in contenders if config not in self.evidence]
        answers = self._measurer.recheck(unchecked, self._settings.recheck_seed)
        for config, answer in zip(unchecked, answers, strict=True):
            if isinstance(answer, Measurement):
                self._trials.add(answer)
            else:
                self.evidence[config] = answer
        return all(config in self.evidence for config in contenders)

    def _verdict(self, comparison: Comparison) -> Verdict:
        configs = self._configs(comparison)
        shared = {config: self._trials.by_config[config].shared_bytes or 0 for config in configs}
        return decide(comparison, configs, self._default, shared)

    def _configs(self, comparison: Comparison) -> list[Config]:
        """Return the contenders that are configs, in the order of the trials."""
        return [config for config in self._trials.by_config if config.text in comparison.contenders]


def only_timed(configs: Sequence[Config], more: Comparison | Measurement) -> Comparison | Measurement:
    """Return rounds without a vendor that they do not time, or the failed measurement of a config without a latency."""
    if isinstance(more, Measurement):
        return more
    timed = more.timed
    for config in configs:
        if config.text not in timed:
            wrong = "ValueError: a latency is finite and above 0, and in some round of the comparison it is not"
            return Measurement(config, Outcome.ERROR, stage="comparison", error=wrong)
    untimed = {name: _NO_LATENCY for name, contender in more.vendors.items() if contender not in timed}
    return replace(more.among(timed), left_out={**more.left_out, **untimed}) if untimed else more.among(timed)


def joined(earlier: Comparison | None, later: Comparison) -> Comparison:
    """Return the rounds of both, between the contenders that are in both."""
    if earlier is None:
        return later
    both = [name for name in earlier.contenders if name in later.contenders]
    return earlier.among(both).extended(later.among(both))
