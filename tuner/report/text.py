"""Short texts of problems, configs, latencies and failures, for terminals, notebooks and logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tuner.kernels.spec import Config, Problem, Value
from tuner.kernels.values import value_text
from tuner.records import Answer, Evidence, Interval, Outcome
from tuner.records.answer import AGREEMENT, UNVERIFIED

_UNNAMED = 3
"""Number of sizes that are shown without their names."""


def problem_text(problem: Problem) -> str:
    """Return `gemm  M=4096 N=4096 K=4096 dtype=bf16`; attributes at their default are left out."""
    return f"{problem.op}  {' '.join(f'{name}={_quoted(value)}' for name, value in problem.stated.items())}"


def short(problem: Problem) -> str:
    """Return `gemm 16 x 6144 x 4096 bf16 layout=nt`; attributes at their default are left out.

    More than three sizes have their names, `attention B=8 H=32 S=4096 D=128 bf16`, since no order of them is usual.
    """
    sizes = " x ".join(map(str, problem.sizes))
    if len(problem.sizes) > _UNNAMED:
        sizes = " ".join(f"{name}={size}" for name, size in problem.dims)
    known = {*dict(problem.dims), "dtype"}
    attributes = [f"{name}={_quoted(value)}" for name, value in problem.stated.items() if name not in known]
    return " ".join([problem.op, sizes, problem.dtype, *attributes])


def _quoted(value: Value) -> Value:
    """Return a value as a canonical text has it; the text `None` stands without quotes."""
    return value if value == "None" else value_text(value)


def times(other: str) -> str:
    """Return `x default`: the label of speeds relative to another contender's; above 1, the answer is faster."""
    return f"x {other}"


def speed_text(speed: float, other: str) -> str:
    """Return `1.042 x default`: the answer's speed relative to another contender's."""
    return f"{speed:.3f} {times(other)}"


def config_text(config: Config) -> str:
    """Return a config on one line; knobs at their default are left out."""
    return "  ".join(f"{name}={value}" for name, value in config.stated.items())


def failures_text(failures: Mapping[str, int]) -> str:
    """Return `3 timeout, 1 crashed`, the most frequent first."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in Counter(failures).most_common())


def not_run_text(failures: Mapping[str, int]) -> str:
    """Return `3 did not fit the card, 2 failed (1 timeout, 1 crashed)`."""
    failed = {outcome: count for outcome, count in failures.items() if outcome != Outcome.INFEASIBLE}
    unfit = failures.get(Outcome.INFEASIBLE, 0)
    parts = [f"{unfit:,} did not fit the card"] if unfit else []
    if failed:
        parts.append(f"{sum(failed.values()):,} failed ({failures_text(failed)})")
    return ", ".join(parts)


def count_text(count: int, noun: str) -> str:
    """Return `1 answer` or `1,653 answers`: a number and its noun, whose plural ends in `s`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def configs_text(count: int) -> str:
    """Return `1 config` or `1,653 configs`."""
    return count_text(count, "config")


def bytes_text(count: int) -> str:
    """Return `16 B` or `64 KiB`."""
    return f"{count:,} B" if count < 1024 else f"{count / 1024:.4g} KiB"


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Return the wall time by stage: `measure 12.3 s, comparison 4.0 s`."""
    return ", ".join(f"{stage} {taken:,.1f} s" for stage, taken in seconds.items()) or "not recorded"


def first_line(text: str, longest: int | None = 100) -> str:
    """Return the first line of a text, such as a compiler's, cut to `longest` characters; None cuts nothing."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if longest is None or len(line) <= longest else f"{line[: longest - 3]}..."


def error_lines(text: str, most: int = 12) -> list[str]:
    """Return the lines of an error, such as a compiler's, without empty ones; at most `most` of them."""
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    return lines if len(lines) <= most else [*lines[: most - 1], "..."]


def minute_text(moment: str) -> str:
    """Return `2026-11-29 18:47`, a time (UTC, ISO 8601) to the minute."""
    return moment[:16].replace("T", " ")


def us_text(latency_us: float | None) -> str:
    """Return `179.20 us`, or `never timed`."""
    return "never timed" if latency_us is None else f"{latency_us:,.2f} us"


def interval_text(interval: Interval | None, decimals: int) -> str:
    """Return `178.80 - 179.90`; an empty text for None."""
    return "" if interval is None else f"{interval[0]:.{decimals}f} - {interval[1]:.{decimals}f}"


def ratio_text(ratio: float, interval: Interval | None, unit: str = "") -> str:
    """Return `1.102 (1.100 - 1.104)`, or `1.102 x torch (1.100 - 1.104)` with a unit."""
    return f"{ratio:.3f}{unit and f' {unit}'}" + (f" ({interval_text(interval, 3)})" if interval is not None else "")


def latency_text(answer: Answer) -> str:
    """Return the latency of an answer with its interval: `179.20 us (178.80 - 179.90)`."""
    interval = "" if answer.interval_us is None else f" ({interval_text(answer.interval_us, 2)})"
    return f"{us_text(answer.latency_us)}{interval}"


def basis_text(answer: Answer) -> str:
    """Return `agreeing, not verified`, or an empty text for an answer whose outputs were compared with a reference."""
    return UNVERIFIED if answer.basis == AGREEMENT else ""


def evidence_text(evidence: Evidence) -> str:
    """Return `largest error 0.0024, allowed 0.016, over 51 checked launches`, relative to the largest value."""
    errors = f"largest error {evidence.max_error or 0.0:.2g}, allowed {evidence.tolerance or 0.0:.2g}"
    return f"{errors}, over {evidence.launches} checked launches" if evidence.launches > 1 else errors
