"""`tuner verify OP`: measure a stored answer again, and say whether it holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rich.markup import escape

from tuner.cli import CHANGED
from tuner.cli.best import find
from tuner.cli.grid import Output, print_lines
from tuner.cli.notes import TerminalProgress
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, json_option, open_to_read, shared_option
from tuner.cli.text import give, print_json
from tuner.db.database import Database
from tuner.errors import NoDevice, NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.table import LookupResult
from tuner.measure import device
from tuner.records import IMPORTED, POLICIES, Answer, StoredAnswer
from tuner.report.text import evidence_text, interval_text, speed_text, us_text
from tuner.suites.suite import Entry
from tuner.tuning.captured import captured_reference
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.target import gpu_target
from tuner.tuning.verify import Check, verify

_EXIT = {"holds": 0, "wrong": 1, "changed": CHANGED}


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
    options = MeasureOptions(gpu, policy=_policy(found.stored), shared=shared)
    with TerminalProgress() as progress:
        target = gpu_target(Entry(reference, signature, problem), store, index, options=options, events=progress)
    answer = found.stored.answer
    if answer.config not in target.space:
        raise NothingFound(f"the config {answer.config.text} is no longer valid for {problem.text}; search again")
    measurer = target.measurer()
    try:
        check = verify(answer, target.default, measurer)
    finally:
        measurer.close()
    if as_json:
        print_json(found.as_json(store.snapshot) | {"verified": check.as_json()})
    else:
        console = Output()
        print_lines(_lines(found, check), console)
    return _EXIT[check.outcome]


def _policy(stored: StoredAnswer) -> str:
    """Return the policy that the answer was timed by; an imported answer is timed as in a search."""
    if stored.answer.kind == IMPORTED:
        return AUTO
    names = [name for name, policy in POLICIES.items() if policy.text == stored.provenance.policy]
    if not names:
        raise NothingFound(
            f"the answer was timed by {stored.provenance.policy}, which this version does not have; search again"
        )
    return names[0]


def _lines(found: LookupResult, check: Check) -> Iterator[str]:
    assert found.stored is not None
    colour = {"holds": "green", "changed": "yellow", "wrong": "red"}[check.outcome]
    problem = escape(found.problem.text)
    yield f"[bold {colour}]{check.outcome}[/]  {problem}  on {found.device}, run {found.stored.run_id}"
    for difference in found.differences:
        yield f"  [yellow]stale: {escape(difference)}[/]"
    if check.wrong is not None:
        yield f"  {check.wrong.outcome}: {escape(check.wrong.error)}"
        return
    yield from _times(found.stored.answer, check)
    for change in check.changes:
        yield f"  [yellow]{escape(change)}[/]"
    if check.evidence is not None:
        yield f"  {evidence_text(check.evidence)}"
    for mark in check.marks:
        yield f"  [yellow]{mark} while it was measured again[/]"


def _times(answer: Answer, check: Check) -> Iterator[str]:
    assert check.latency_us is not None
    was = "" if answer.latency_us is None else "was "
    yield f"  latency        {was}{us_text(answer.latency_us)}, is {us_text(check.latency_us)}"
    if check.speedup is not None and check.speedup_interval is not None:
        before = "" if answer.speedup is None else f"was {speed_text(answer.speedup, 'default')}, "
        now = f"is {speed_text(check.speedup, 'default')} ({interval_text(check.speedup_interval, 3)})"
        yield f"  speed-up       {before}{now}"


command = OpCommands(
    _verify,
    [gpu_option, shared_option, db_option, json_option],
    name="verify",
    help="Measure a stored answer again, and report whether it still holds.",
)
