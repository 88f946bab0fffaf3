"""Facts of an answer in short: its state, its figures and its evidence. Pure functions over stored values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tuner.api.pages.texts import between, percent, plain_count, ratio, us
from tuner.db.pins import Pin
from tuner.kernels.spec import Problem
from tuner.records import IMPORTED, StoredAnswer
from tuner.records.answer import AGREEMENT, ROLLBACK, UNVERIFIED
from tuner.records.device import VERSION_NAMES
from tuner.report.explanation import CardRange, Explanation, Roofline
from tuner.report.text import seconds_text
from tuner.report.vendor import VendorSpeedup

MARKS = {
    "contended": "Other processes used the card while it was measured.",
    "throttled": "The card's clocks were throttled while it was measured.",
    "launch_bound": "Launching an empty kernel takes more than half of this latency.",
}
"""Marks of answers, each with its meaning."""


@dataclass(frozen=True)
class State:
    """One state of an answer, as a badge shows it."""

    text: str
    kind: str = "plain"
    """`good`, `bad`, `warn` or `plain`."""
    about: str = ""
    """Meaning, as a sentence."""


@dataclass(frozen=True)
class Figure:
    """A number with its name."""

    label: str
    value: str
    detail: str = ""


def address_of(problem: Problem, device: str, answer: int | None = None) -> Mapping[str, object]:
    """Return the query of the page of a problem on a device, and of the API's lookup.

    Args:
        answer: id of the generation that the page shows; None for the one that serves. It is left out if the problem
            has a parameter called `answer`: its page shows that one alone.
    """
    shown = {} if answer is None or "answer" in problem.values else {"answer": answer}
    return {"op": problem.op, **problem.stated, "device": device, **shown}


def states(
    stored: StoredAnswer, serving: StoredAnswer | None, pin: Pin | None, stale: Sequence[str]
) -> Iterator[State]:
    """Yield the states of an answer that a reader must know before its figures.

    Args:
        serving: The answer that serves the problem on the card; None if none does.
        stale: Differences from the newest kernel and software in the store.
    """
    answer, recorded = stored.answer, stored.provenance.recorded
    if stored.forgotten_at is not None:
        yield State("forgotten", "bad", "It was retired, and serves no more.")
    elif serving is not None and serving.id == stored.id:
        yield State("serves", "good", "Lookups of this problem on this card get this answer.")
    elif serving is not None:
        yield State("does not serve", "plain", "Another generation serves.")
    else:
        yield State("does not serve", "plain", "Today's kernel does not offer its config.")
    if stale:
        yield State("stale", "warn", "It differs from the newest kernel and software in the store.")
    if pin is not None and pin.answer_id == stored.id:
        yield State("pinned", "plain", f"No search, retune or import replaces it{pin.because}.")
    if recorded is not None:
        yield State("replayed", "warn", f"It was found in the recorded space {recorded}, not measured here.")
    if answer.kind == IMPORTED:
        yield State("imported", "warn", f"It was taken from {stored.imported_from}, not measured here.")
    if stored.restored is not None:
        yield State("rollback", "plain", f"It restores answer {stored.restored}, with the measurements of that one.")
    if answer.basis == AGREEMENT:
        yield State(
            UNVERIFIED, "warn", "Outputs were compared with those of other configs, since there is no reference."
        )
    for mark in answer.marks:
        yield State(mark.replace("_", "-"), "plain" if mark == "launch_bound" else "warn", MARKS.get(mark, ""))


def figures(
    stored: StoredAnswer, vendor: VendorSpeedup | None, roofline: Roofline | None, default_failure: str
) -> Iterator[Figure]:
    """Yield the figures of an answer, as far as they are known."""
    answer = stored.answer
    interval = between(answer.interval_us)
    yield Figure("Latency", us(answer.latency_us), f"95 %: {interval}" if interval else "never timed")
    if answer.kind == "default":
        yield Figure("Over the default", "\N{EN DASH}", "it is the default")
    elif answer.speedup is not None:
        yield Figure("Over the default", ratio(answer.speedup), between(answer.speedup_interval, 3))
    elif default_failure:
        yield Figure("Over the default", "\N{EN DASH}", f"it failed: {default_failure.partition(':')[0]}")
    if vendor is not None:
        yield Figure(f"Over {vendor.name[:40]}", ratio(vendor.ratio), between(vendor.interval, 3))
    if roofline is not None:
        about = f"at least: {roofline.missing} is not measured" if roofline.missing else f"bound by {roofline.bound}"
        yield Figure("Of the roofline", percent(roofline.share), about)
    if answer.tflops is not None:
        also = "" if answer.gb_per_s is None else f"{answer.gb_per_s:,.0f} GB/s"
        yield Figure("TFLOP/s", f"{answer.tflops:,.4g}", also)
    elif answer.gb_per_s is not None:
        yield Figure("GB/s", f"{answer.gb_per_s:,.0f}")
    if stored.trials:
        space = stored.settings.get("space")
        yield Figure("Configs tried", plain_count(stored.trials), f"of {space:,}" if isinstance(space, int) else "")
    if answer.ties or answer.unresolved:
        yield Figure(
            "As fast", plain_count(len(answer.ties)), "not all resolved" if answer.unresolved else "within 1 %"
        )


def checks(stored: StoredAnswer) -> Iterator[tuple[str, str]]:
    """Yield names and values of the evidence that the answer's config is correct."""
    answer, evidence = stored.answer, stored.answer.evidence
    if answer.kind == IMPORTED:
        yield "Compared with", "nothing here: it was imported"
        return
    yield "Compared with", "other configs of the kernel" if answer.basis == AGREEMENT else "the reference"
    if evidence.max_error is not None:
        yield "Largest error", f"{evidence.max_error:.3g}, relative to the row's largest value"
    if evidence.tolerance is not None:
        yield "Tolerance", f"{evidence.tolerance:.3g}"
    if evidence.inputs:
        yield "Inputs", ", ".join(evidence.inputs)
    if evidence.launches:
        yield "Launches compared", f"{evidence.launches:,}"


def card_state(card: CardRange | None) -> Iterator[tuple[str, str]]:
    """Yield names and values of the state of the card over the rounds."""
    if card is None:
        yield "State", "not recorded"
        return
    if card.sm_mhz is not None:
        low, high = card.sm_mhz
        yield "SM clock", f"{low:,} MHz" if low == high else f"{low:,} to {high:,} MHz"
    if card.temperature_c is not None:
        yield "Temperature", f"up to {card.temperature_c} \N{DEGREE SIGN}C"
    if card.power_w is not None:
        yield "Power", f"up to {card.power_w:.0f} W"
    yield "Clocks", f"throttled by {', '.join(card.throttled)}" if card.throttled else "not throttled"
    if card.marks:
        yield "Marks", ", ".join(card.marks)


def origin(stored: StoredAnswer, explanation: Explanation | None) -> Iterator[tuple[str, str]]:
    """Yield names and values of the software and the search that an answer comes from."""
    measured = stored.measured_with
    versions = measured.as_json()
    yield from ((label, versions[name]) for name, label in VERSION_NAMES.items() if versions[name])
    yield "Policy", measured.policy
    if measured.tuner:
        yield "Tuner", measured.tuner
    if explanation is not None:
        run = explanation.run
        yield "Search", f"{run.status}, stopped by {run.stopped}" if run.stopped else run.status
        yield "Time", seconds_text(run.seconds)


def kind_text(stored: StoredAnswer) -> str:
    """Return how an answer came about, as a sentence."""
    kinds = {
        "tuned": "A search found it.",
        "default": "The kernel's default: a search found nothing faster by more than 1 % with confidence.",
        ROLLBACK: "A rollback restored it.",
        IMPORTED: "It was imported.",
    }
    return kinds.get(stored.answer.kind, "")
