"""`tuner verify OP`: measure a stored answer again, and say whether it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from rich.markup import escape

from tuner.cli.best import find
from tuner.cli.grid import Output, print_lines
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, json_option, open_to_read, shared_option
from tuner.cli.text import give, print_json
from tuner.db.database import Database
from tuner.errors import CHANGED, NoDevice, NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.table import LookupResult
from tuner.measure import device
from tuner.records import IMPORTED, Answer, StoredAnswer, policy_name
from tuner.records.retune import DEFAULT, Cause, Reading
from tuner.report.text import evidence_text, ratio_text, speed_text, times, us_text
from tuner.report.vendor import stored_vendor
from tuner.retuning.check import Check, Known, Subject, check, rechecked
from tuner.suites.suite import Entry
from tuner.tuning.captured import captured_reference
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.target import Target, gpu_target

_EXIT = {"holds": 0, "wrong": 1, "changed": CHANGED}
_HOLDS = (Cause.UNCHANGED, Cause.SLOWER_MACHINE, Cause.FASTER_MACHINE)
"""Causes other than a change of the answer's code, if its ratio to the vendor held."""


def _verify(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    gpu: str,
    shared: bool,
    db: Database | None,
    as_json: bool,
) -> int:
    index = device.choose(gpu)
    if index is None:
        raise NoDevice(f"verifying measures on a GPU, and there is no {gpu_here()}; run it on a machine with the card")
    store = open_to_read(db)
    op, reference = reference, captured_reference(reference, problem, store, device.describe(index).id)
    found = replace(find(store, reference, problem, here=index, device_id=None), reference=op)
    if found.stored is None:
        give(found, store, as_json)
        return 1
    stored, entry = found.stored, Entry(reference, signature, problem)
    options = MeasureOptions(gpu, policy=_policy(stored), shared=shared, vendors=stored_vendor(stored))
    known = Known.of(stored, store, signature)
    with TerminalProgress() as progress:
        target = gpu_target(entry, store, index, options=options, events=progress, among=known.configs)
    if known.stored.answer.config not in target.space:
        target.close()
        raise NothingFound(
            f"the config {stored.answer.config.text} is no longer valid for {problem.text}; search again"
        )
    made = _checked(Subject.of(known, target), target, shared)
    if made.cause is Cause.NOT_MEASURED:
        raise NothingFound(f"{problem.text} could not be measured again: {made.error}")
    if as_json:
        print_json(found.as_json(store.snapshot) | {"verified": _as_json(made)})
    else:
        console = Output()
        print_lines(_lines(found, made), console)
    return _EXIT[_outcome(made)]


def _checked(subject: Subject, target: Target, shared: bool) -> Check:
    """Return the check of an answer, with the second correctness check of a search's finalists."""
    measurer = target.measurer()
    try:
        found = check(subject, measurer, is_shared=shared)
        assert found is not None
        return found if found.now is None else rechecked(found, subject.config, measurer)
    finally:
        measurer.close()


def _outcome(made: Check) -> str:
    """Return `holds`, `changed` or `wrong`."""
    if made.cause is Cause.BROKEN:
        return "wrong"
    return "holds" if made.cause in _HOLDS and not made.judgement.is_moved else "changed"


def _as_json(made: Check) -> dict[str, Any]:
    """Return the `verified` part of the document."""
    now, default = made.now, None if made.now is None else made.now.contenders.get(DEFAULT)
    return {
        "outcome": _outcome(made),
        "cause": str(made.cause),
        "text": made.judgement.text,
        "error": made.error or None,
        "latency_us": None if now is None else now.latency_us,
        "interval_us": None if now is None else now.interval_us,
        "speedup": None if default is None else default.ratio,
        "speedup_interval": None if default is None else default.interval,
        "checked": None if now is None else asdict(made.evidence),
        "marks": [] if now is None else list(now.marks),
    }


def _policy(stored: StoredAnswer) -> str:
    """Return the policy that the answer was timed by; an imported answer is timed as in a search."""
    if stored.answer.kind == IMPORTED:
        return AUTO
    name = policy_name(stored.provenance.policy)
    if name is None:
        raise NothingFound(
            f"the answer was timed by {stored.provenance.policy}, which this version does not have; search again"
        )
    return name


def _lines(found: LookupResult, made: Check) -> Iterator[str]:
    assert found.stored is not None
    outcome = _outcome(made)
    colour = {"holds": "green", "changed": "yellow", "wrong": "red"}[outcome]
    problem = escape(found.problem.text)
    yield f"[bold {colour}]{outcome}[/]  {problem}  on {found.device}, run {found.stored.run_id}"
    for difference in found.differences:
        yield f"  [yellow]stale: {escape(difference)}[/]"
    yield f"  {made.cause}: {escape(made.judgement.text)}"
    if made.now is None:
        return
    yield from _times(found.stored.answer, made.now)
    yield f"  {evidence_text(made.evidence)}"
    for mark in made.now.marks:
        yield f"  [yellow]{mark} while it was measured again[/]"


def _times(answer: Answer, now: Reading) -> Iterator[str]:
    was = "" if answer.latency_us is None else "was "
    yield f"  latency        {was}{us_text(answer.latency_us)}, is {us_text(now.latency_us)}"
    default = now.contenders.get(DEFAULT)
    if default is not None:
        before = "" if answer.speedup is None else f"was {speed_text(answer.speedup, 'default')}, "
        now_is = f"is {ratio_text(default.ratio, default.interval, times('default'))}"
        yield f"  speed-up       {before}{now_is}"


command = OpCommands(
    _verify,
    [gpu_option, shared_option, db_option, json_option],
    name="verify",
    help="Measure a stored answer again, and report whether it still holds.",
)
