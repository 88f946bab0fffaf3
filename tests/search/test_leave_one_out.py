"""The benchmark of neighbour answers: measuring, keeping and assessing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from helpers import H200
from leave_one_out import LeftOut, assess, report
from neighbours import Kept, Work, measure, works
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner.db.store import Store
from tuner.kernels.spec import Config, Problem
from tuner.lookup.query import Query
from tuner.records import COLD, Answer, Comparison, Environment, Outcome, Provenance, StoredAnswer
from tuner.tuning.events import StopToken
from tuner.tuning.target import Target

HERE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
SIZES = (64, 96, 128, 192, 256, 384)
ODD = 200
"""Size at which another config is the best, and `BEST` takes 1.5 times as long."""


def latency(problem: Problem, config: Config) -> float:
    mirrored = TOY.config({**config, "B": 4 - config["B"] % 4, "A": 8}) if problem["N"] == ODD else config
    return bowl(mirrored)


def target(problem: Problem, outcome: Outcome = Outcome.OK) -> Target:
    measurer = ScriptedMeasurer(partial(latency, problem), noise=0.002, outcome=only(BEST, outcome))
    return Target(SPACE, DEFAULT, HERE, COLD, flops=0, bytes=1, measurer=lambda: measurer)


def query(stored: StoredAnswer) -> Query:
    return Query.for_environment(stored.answer.problem, HERE.environment, HERE.source, policy=HERE.policy)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for size in (*SIZES, ODD):
        problem = TOY.problem({"N": size})
        best = min(SPACE, key=partial(latency, problem))
        us, over = latency(problem, best), latency(problem, DEFAULT) / latency(problem, best)
        answer = Answer(problem, "tuned", best, us, (us, us), over, (over, over), over * us, None)
        run = sqlite_store.start_run(TOY, problem, HERE, {})
        sqlite_store.add_answer(run, answer, HERE, "exhausted", {}, Comparison((best.text,), ((us,),)))
    return sqlite_store


def rows(work: list[Work]) -> list[LeftOut]:
    measured = [measure(one, target(one.own.answer.problem), StopToken()) for one in work]
    return [row for row in measured if row is not None]


def test_every_problem_is_answered_as_if_it_were_absent(store: Store, tmp_path: Path) -> None:
    work = works(store, H200.id, query)
    answers = {one.own.id: one.own for one in work}
    fine = [one for one in work if one.own.answer.problem["N"] != ODD]
    usual = [replace(one, near=tuple(near for near in one.near if near.id != 7)) for one in fine]
    assert {one.own.answer.problem["N"]: len(one.near) for one in usual} == {
        64: 2,
        96: 3,
        128: 4,
        192: 4,
        256: 3,
        384: 2,
    }
    found = rows(usual)
    kept = Kept(tmp_path / "neighbours.json", {"device": H200.id})
    for row in found:
        kept.keep(row)
    again = Kept(tmp_path / "neighbours.json", {"device": H200.id})
    assert list(again.rows.values()) == found
    assert Kept(tmp_path / "neighbours.json", {"device": "another"}).rows == {}
    assessment = assess(found, {number: answers[number] for number in range(1, 7)}, query)
    assert (assessment.problems, len(assessment.served), assessment.holds) == (6, 6, True)
    figures = assessment.as_json()["served"]
    assert figures["loss"] == pytest.approx(0, abs=0.001)
    assert figures["slower"] == 0
    assert figures["over_default"] == pytest.approx(100 / bowl(DEFAULT), rel=0.01)
    assert "neighbour answers: 6 of 6 problems; geometric-mean loss 0.00 %; slower than the default 0.0 %" in [
        *report(assessment)
    ]


def test_a_config_that_is_slow_on_other_problems_is_not_served(store: Store) -> None:
    work = works(store, H200.id, query)
    assessment = assess(rows(work), {one.own.id: one.own for one in work}, query)
    (odd,) = [one for one in assessment.served if one.problem == "toy N=200 dtype=fp32"]
    assert odd.slowdown > 1.3  # no other problem shows that it is bad here
    assert {one.problem for one in assessment.served} == {odd.problem}
    assert not assessment.holds


def test_a_config_that_fails_on_another_problem_counts_as_slower(store: Store) -> None:
    one = next(one for one in works(store, H200.id, query) if one.own.answer.problem["N"] == ODD)
    row = measure(one, target(one.own.answer.problem, Outcome.WRONG_RESULT), StopToken())
    assert row is not None
    assert {tried.slowdown for tried in row.tried} == {None}
    assert all(tried.error.startswith("wrong_result") for tried in row.tried)
    (judged,) = assess([row], {one.own.id: one.own, **{near.id: near for near in one.near}}, query).refused
    assert judged.slower
