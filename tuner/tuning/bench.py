"""An answer timed beside the kernel's default and the vendors, as a row.

It needs a measurer, and neither a database nor a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Problem
from tuner.measure.measurer import Measurer
from tuner.records import VENDOR, VENDOR_NAME, Comparison, Measurement, Outcome, Provenance, RooflineLimits, median
from tuner.report.default import failure_text
from tuner.search.comparison import joined, only_timed
from tuner.search.verdict import VERDICT, interval_of_median, ratio, until_next_look
from tuner.tuning.bench_row import Rival, Roof, Row


@dataclass(frozen=True)
class BenchSettings:
    """Precision of a row."""

    precision: float = 1.01
    """Upper over lower end of a ratio's interval at which the ratio is precise enough: 0.5 % either way."""
    poll_s: float = 0.2
    """Polling interval of `stop`, in seconds."""


SETTINGS = BenchSettings()


@dataclass(frozen=True)
class RoundLimits:
    """Limits of the rounds of one interleaved comparison."""

    rounds: int = VERDICT.max_rounds
    limit_s: float = 10.0
    """Time limit in seconds."""
    first_look_s: float = 10.0
    """Time limit in seconds until there are enough rounds for an interval."""

    def seconds(self, done: int) -> float:
        """Return the time limit in seconds after this number of rounds."""
        return self.limit_s if done >= VERDICT.first_look else max(self.limit_s, self.first_look_s)


@dataclass(frozen=True)
class Subject:
    """A problem on a device, and the config that is served for it there."""

    problem: Problem
    provenance: Provenance
    answer: Config | None
    """The stored answer; None if the problem is untuned, and the default is served."""
    default: Config | None
    """The kernel's default; None if it is not feasible."""
    flops: int = 0
    bytes: int = 0
    roofline_limits: RooflineLimits | None = None
    refused: str = ""
    """The default with the constraint that refuses it; empty if it is feasible, or not known."""
    vendor_name: str = VENDOR_NAME
    vendors: tuple[str, ...] = ()
    """Names of the vendors that are to be timed; empty if they are not known, as in recorded spaces."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Installed libraries of these vendors, with versions."""

    @property
    def served(self) -> Config | None:
        """The answer, else the default."""
        return self.answer or self.default

    @property
    def kind(self) -> str:
        """`tuned`; `default` if a search found nothing better; or `untuned`."""
        return "untuned" if self.answer is None else "default" if self.answer == self.default else "tuned"

    @property
    def roof(self) -> Roof | None:
        """The roofline of the problem; None if its limits are not known."""
        if self.roofline_limits is None:
            return None
        return Roof(
            floor_us=self.roofline_limits.roofline_us(self.problem, self.flops, self.bytes),
            gb_per_s=self.roofline_limits.copy_gb_per_s,
            tflops=self.roofline_limits.tflops.get(self.roofline_limits.arithmetic(self.problem)),
        )


def bench(
    subject: Subject, measurer: Measurer, *, seed: int = 0, stop: Callable[[], bool] = lambda: False
) -> Row | None:
    """Check and time the served config of a problem beside the default and the vendors; return None if it was stopped.

    Args:
        measurer: measures the problem; it is not closed.
        stop: polled between measurements.

    Raises:
        MeasureError: the worker processes cannot be kept alive.
    """
    served = subject.served
    if served is None:
        return failed(
            subject,
            ": ".join(filter(None, ("nothing is tuned, and the default is not feasible here", subject.refused))),
        )
    contenders = list(dict.fromkeys(config for config in (served, subject.default) if config is not None))
    found = measure_configs(contenders, measurer, stop)
    if found is None:
        return None
    if not found[served].ok:
        return failed(subject, failure_text(found[served]))
    comparison = compare_configs([config for config in contenders if found[config].ok], measurer, seed, stop)
    if isinstance(comparison, Measurement):
        return failed(subject, failure_text(comparison))
    if comparison is None:
        return None
    row = row_of(subject, served, comparison)
    default = None if subject.default is None else found[subject.default]
    return row if default is None or default.ok else replace(row, default_failure=failure_text(default))


def row_of(subject: Subject, served: Config, comparison: Comparison) -> Row:
    """Return the row of a served config from an interleaved comparison."""
    latencies = comparison.of(served.text)
    default = None if subject.default is None else _rival(comparison, subject.default.text, served.text)
    timed = comparison.vendors or {comparison.vendor or subject.vendor_name: VENDOR}
    rivals = {name: _rival(comparison, contender, served.text) for name, contender in timed.items()}
    vendors = {name: rival for name, rival in rivals.items() if rival is not None}
    best = min(vendors, key=lambda name: vendors[name].speedup, default=subject.vendor_name)
    return Row(
        subject.problem,
        subject.provenance.device.id,
        subject.kind,
        subject.provenance.recorded,
        subject.provenance.as_json(),
        config=dict(served),
        latency_us=median(latencies),
        interval_us=interval_of_median(latencies),
        default=default,
        vendor=vendors.get(best),
        vendor_name=best,
        vendors=vendors,
        left_out=comparison.left_out,
        libraries=subject.libraries,
        flops=subject.flops,
        bytes=subject.bytes,
        roof=subject.roof,
        rounds=len(comparison.rounds),
        marks=comparison.marks,
        default_failure=f"{Outcome.INFEASIBLE}: {subject.refused}" if subject.refused else "",
    )


def failed(subject: Subject, error: str) -> Row:
    """Return the row of a problem that could not be measured."""
    provenance = subject.provenance
    return Row(subject.problem, provenance.device.id, "failed", provenance.recorded, provenance.as_json(), error=error)


def still_stands(row: Row, subject: Subject) -> bool:
    """Return whether measuring the subject again would be the same measurement: code, config, machine and vendors."""
    here = {**subject.provenance.as_json(), "tuner": ""}
    return (
        row.ok
        and (row.problem, row.device, row.recorded)
        == (subject.problem, subject.provenance.device.id, subject.provenance.recorded)
        and {**row.measured_with, "tuner": ""} == here
        and row.kind == subject.kind
        and row.config == (subject.served and dict(subject.served))
        and set(subject.vendors) <= {*row.vendors, *row.left_out}
        and all(row.libraries.get(name) == subject.libraries.get(name) for name in subject.vendors)
    )


def measure_configs(
    configs: Sequence[Config], measurer: Measurer, stop: Callable[[], bool]
) -> dict[Config, Measurement] | None:
    """Compile, check and time each config alone; return None if it was stopped."""
    for config in configs:
        measurer.submit(config)
    found: dict[Config, Measurement] = {}
    while len(found) < len(configs):
        if stop():
            return None
        measurement = measurer.next(SETTINGS.poll_s)
        if measurement is not None:
            found[measurement.config] = measurement
    return found


def compare_configs(
    configs: Sequence[Config],
    measurer: Measurer,
    seed: int,
    stop: Callable[[], bool],
    *,
    is_enough: Callable[[Comparison], bool] | None = None,
    limits: RoundLimits = RoundLimits(),
) -> Comparison | Measurement | None:
    """Compare configs until the rounds are enough or time is up; return None if it was stopped.

    Args:
        is_enough: looks at the rounds so far; None: whether the ratios to the first config are precise.

    Returns:
        The rounds, or the failed measurement of the first config that fails.
    """
    enough = is_enough or partial(_known, own=configs[0].text)
    started = monotonic()
    comparison: Comparison | None = None
    wanted = VERDICT.min_rounds
    while wanted and (comparison is None or monotonic() < started + limits.seconds(len(comparison.rounds))):
        if stop():
            return None
        done = 0 if comparison is None else len(comparison.rounds)
        left = started + limits.seconds(done) - monotonic()
        more = only_timed(configs, measurer.compare(configs, wanted, max(0.0, left), seed + done))
        if isinstance(more, Measurement):
            return more
        started += more.ahead_s
        if not more.rounds:  # a recording is used up
            break
        comparison = joined(comparison, more)
        done = len(comparison.rounds)
        wanted = 0 if enough(comparison) else min(until_next_look(done), limits.rounds - done)
    if comparison is None:
        raise MeasureError("an interleaved comparison has at least one round, and this measurer gave none")
    return comparison


def _known(comparison: Comparison, own: str) -> bool:
    """Return whether all ratios to a contender are precise enough."""
    intervals = [ratio(comparison, other, own)[1] for other in comparison.contenders]
    return all(high <= SETTINGS.precision * low for low, high in intervals)


def _rival(comparison: Comparison, contender: str, own: str) -> Rival | None:
    if contender not in comparison.contenders:
        return None
    return Rival(median(comparison.of(contender)), *ratio(comparison, contender, own))
