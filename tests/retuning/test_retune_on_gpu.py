"""A night on a real card: what was planted is found and repaired, nothing else changes, and the next night is quiet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from databases import sqlite_store
from helpers import toy

import tuner
from tuner.db.store import Store
from tuner.records import StoredAnswer
from tuner.records.retune import Action, Cause, Retune

pytestmark = pytest.mark.gpu
SIZES = [{"M": 4096, "N": size} for size in (512, 1024, 2048, 4096)]
SOURCE = Path(toy("double")).read_text()
N = 4_000_000


store = sqlite_store


def night(store: Store, kernel: str | None = None, **options: object) -> Retune:
    given = {"store": store, "on_event": tuner.Events(), **options}
    return tuner.retune(kernel, **given)  # type: ignore[arg-type]


def outcomes(retune: Retune) -> set[tuple[Cause, Action]]:
    return {(finding.cause, finding.action) for finding in retune.findings}


def plant(store: Store, stored: StoredAnswer) -> None:
    """Store a much slower config as the winner."""
    run = store.run(stored.run_id)
    comparison = store.comparison(stored.run_id)
    assert run is not None
    assert comparison is not None
    slow = max((m for m in store.known_to(run) if m.ok), key=lambda m: m.latency_us)
    again = store.start_run(run.signature, run.problem, run.provenance, run.settings)
    answer = replace(stored.answer, config=slow.config, kind="tuned", ties=())
    store.add_answer(again, answer, stored.provenance, "trials", {}, comparison)


def test_a_planted_answer_is_replaced_and_all_others_stay(store: Store) -> None:
    found = tuner.tune("softmax", SIZES, store=store, trials=10, on_event=tuner.Events())
    assert all(each.answer for each in found)
    started = monotonic()
    quiet = night(store, check_only=True)
    assert outcomes(quiet) == {(Cause.UNCHANGED, Action.KEPT)}, [finding.text for finding in quiet.findings]
    assert monotonic() - started < 30
    planted = store.answers()[1]
    plant(store, planted)
    findings = {finding.problem.text: finding for finding in night(store).findings}
    repaired = findings.pop(planted.answer.problem.text)
    assert (repaired.cause, repaired.action) == (Cause.ORDER, Action.REPLACED), repaired.text
    assert {(finding.cause, finding.action) for finding in findings.values()} == {(Cause.UNCHANGED, Action.KEPT)}
    before = len(store.answers())
    assert {finding.action for finding in night(store).findings} == {Action.KEPT}
    assert len(store.answers()) == before


def test_a_changed_source_is_confirmed_and_a_wrong_one_is_flagged(store: Store, tmp_path: Path) -> None:
    def file(name: str, change: str) -> str:
        path = tmp_path / f"{name}.py"
        path.write_text(SOURCE.replace("2 * tl.load(x + n, mask=n < N)", change))
        return str(path)

    tuner.tune(file("first", "2 * tl.load(x + n, mask=n < N)"), {"N": N}, store=store, on_event=tuner.Events())
    (best,) = [stored.answer.config for stored in store.answers()]
    same = night(store, file("same", "tl.load(x + n, mask=n < N) * 2.0"))
    assert outcomes(same) == {(Cause.UNCHANGED, Action.CONFIRMED)}, same.findings[0].text
    wrong = night(store, file("wrong", "3 * tl.load(x + n, mask=n < N)"))
    assert outcomes(wrong) == {(Cause.BROKEN, Action.KEPT)}, wrong.findings[0].text
    partly = f"tl.where(BLOCK == {best['BLOCK']}, 3, 2) * tl.load(x + n, mask=n < N)"
    repaired = night(store, file("partly", partly))
    assert outcomes(repaired) == {(Cause.BROKEN, Action.REPLACED)}, repaired.findings[0].text
    apart = "tl.load(x + (n * 33) % N, mask=n < N)"  # each thread reads another cache line
    slower = night(store, file("slower", f"tl.where({apart} == 12345.678, 0, 2 * tl.load(x + n, mask=n < N))"))
    assert {finding.cause for finding in slower.findings} == {Cause.SLOWER_CODE}, slower.findings[0].text
