"""The store: what goes in comes out, who may share a file, and what a damaged or foreign file says."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL
from subprocess import PIPE
from threading import Timer
from time import monotonic, sleep
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from helpers import A100, H200
from sqlalchemy import create_engine, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.db import schema
from tuner.db.store import HEAD, Store, default_path
from tuner.errors import StoreError
from tuner.kernels.spec import Attribute, Config, Dim, Knob, Problem, Signature, Value
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Ceilings,
    Device,
    Duel,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Provenance,
    StoredAnswer,
    StoredRun,
    Tie,
)

SCALE = Signature(
    op="scale",
    summary="out = 2 x",
    dims=(Dim("M", help="rows"), Dim("N", default="M")),
    dtypes=("bf16", "fp16", "fp32", "fp8e4m3"),
    knobs=(
        Knob("BLOCK", (64, 128, 256)),
        Knob("EVICT", ("", "evict_first", "evict_last")),
        Knob("PIPELINED", (False, True)),
        Knob("num_warps", (4, 8)),
        Knob("num_stages", (1, 2, 3)),
    ),
    attributes=(Attribute("layout", ("nn", "nt"), "nn"),),
)
PROBLEM = SCALE.problem({"M": 4096})
HERE = Provenance(
    device=H200,
    environment=Environment(triton="3.6.0", ptxas="12.9", torch="2.10.0", driver="580.95"),
    source="9f2c0a1b2c3d4e5f",
    policy="cold-events-1",
    tuner="0.1.0",
)
SETTINGS = {"sampler": "tpe", "trials": 200, "known": 0}
SECONDS = {"compile": 1.5, "measure": 30.25}
NASTY = "ptxas fatal: \u00fcber-\u6838\u5fc3 \U0001f525 e\u0301\x00 '; DROP TABLE trials; --\r\n\t\u2028 %s ? :x"


def config(block: int = 128, **changes: Value) -> Config:
    values: dict[str, Value] = {
        "BLOCK": block,
        "EVICT": "evict_first",
        "PIPELINED": True,
        "num_warps": 4,
        "num_stages": 3,
    }
    return SCALE.config(values | changes)


def measured(latency_us: float = 10.0, block: int = 128, outcome: Outcome = Outcome.OK) -> Measurement:
    return Measurement(config(block), outcome, (latency_us,) * 3 if outcome is Outcome.OK else ())


def answer(problem: Problem = PROBLEM, latency_us: float = 10.0) -> Answer:
    return Answer(
        problem=problem,
        kind="tuned",
        config=config(),
        latency_us=latency_us,
        interval_us=(latency_us - 0.1, latency_us + 0.1),
        speedup=1.25,
        speedup_interval=(1.2, 1.3),
        default_latency_us=latency_us * 1.25,
        vendor_latency_us=None,
    )


DUEL = Duel((config().text, config(64).text, VENDOR), ((10.0, 12.5, 9.75), (10.1, 12.4, 9.8)))


def started(store: Store, problem: Problem = PROBLEM, provenance: Provenance = HERE) -> int:
    return store.start_run(SCALE, problem, provenance, SETTINGS)


def answered(store: Store, given: Answer | None = None, provenance: Provenance = HERE) -> int:
    """The id of an answer that a run of its own gave."""
    given = given or answer()
    return store.add_answer(started(store, given.problem, provenance), given, provenance, "trials", SECONDS, DUEL)


def rows(path: Path, query: str) -> list[Any]:
    """What is in the file, read without our code."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


FULL = Measurement(
    config=config(),
    outcome=Outcome.OK,
    samples=(10.1, 10.2, 0.1 + 0.2, 1e-300),
    stage="time",
    error=NASTY,
    compile_s=2.5,
    compiled_by="pool",
    registers=168,
    spills=0,
    shared_bytes=196_608,
    max_error=float("inf"),
    tolerance=2**-7,
)


class TestRoundTrip:
    @pytest.mark.parametrize(
        "given",
        [
            pytest.param(FULL, id="every-field"),
            pytest.param(Measurement(config(), Outcome.OK, (10.0,)), id="nothing-but-samples"),
            *(pytest.param(replace(FULL, samples=(), outcome=outcome), id=outcome) for outcome in list(Outcome)[1:]),
        ],
    )
    def test_a_measurement_comes_back_whole(self, store: Store, given: Measurement) -> None:
        for _ in range(2):  # twice, for those that are tried again before they are known
            store.add_trial(started(store), given)
        assert store.known(SCALE, PROBLEM, HERE) == [given]

    def test_an_answer_comes_back_whole(self, store: Store) -> None:
        given = Answer(
            problem=SCALE.problem({"M": 4096, "N": 1, "dtype": "fp16", "layout": "nt"}),
            kind="default",
            config=config(),
            latency_us=179.2,
            interval_us=(178.8, 179.9),
            speedup=1.0,
            speedup_interval=(0.99, 1.01),
            default_latency_us=179.2,
            vendor_latency_us=176.5,
            ties=(Tie(config(64), 1.002, (0.999, 1.005)), Tie(config(256, EVICT=""), 1.01, (1.0, 1.02))),
            unresolved=True,
            evidence=Evidence(1e-3, 0.0, ("normal", "special"), 34),
            marks=("contended", "launch_bound"),
            flops=2**62,
            bytes=2**40,
        )
        run = started(store, given.problem)
        store.add_trial(run, measured())
        store.add_trial(run, measured(block=64))
        number = store.add_answer(run, given, HERE, "exhausted", SECONDS, DUEL)
        (stored,) = store.answers()
        assert stored == StoredAnswer(number, given, HERE, stored.created_at, run, trials=2, settings=SETTINGS)
        assert stored.answer.problem.values == {"M": 4096, "N": 1, "dtype": "fp16", "layout": "nt"}
        assert stored.answer.ties[1].config["EVICT"] == ""

    def test_an_answer_without_default_and_vendor_comes_back_whole(self, store: Store) -> None:
        given = replace(answer(), speedup=None, speedup_interval=None, default_latency_us=None)
        answered(store, given)
        (stored,) = store.answers()
        assert stored.answer == given

    @pytest.mark.parametrize(
        "given",
        [
            pytest.param(HERE, id="whole-card"),
            pytest.param(replace(HERE, recorded="scale-4096-bf16-nvidia-h200"), id="recorded"),
            pytest.param(replace(HERE, device=replace(H200, mig="1g.18gb", pci_id="")), id="mig"),
            pytest.param(replace(HERE, environment=Environment("3.6.0+git12ab"), tuner=""), id="little-known"),
        ],
    )
    def test_a_provenance_comes_back_whole(self, store: Store, given: Provenance) -> None:
        answered(store, provenance=given)
        (stored,) = store.answers()
        assert stored.provenance == given

    def test_trials_count_those_taken_over_from_earlier_runs(self, store: Store) -> None:
        run = store.start_run(SCALE, PROBLEM, HERE, SETTINGS | {"known": 40})
        store.add_trial(run, measured())
        store.add_answer(run, answer(), HERE, "trials", SECONDS, DUEL)
        (stored,) = store.answers()
        assert stored.trials == 41

    def test_a_run_is_closed_with_its_answer_and_its_duel(self, store: Store, path: Path) -> None:
        answered(store)
        assert rows(path, "SELECT status, stopped, seconds FROM runs") == [("done", "trials", json.dumps(SECONDS))]
        found = [json.loads(text) for (text,) in rows(path, "SELECT latencies FROM rounds ORDER BY number")]
        assert found == [
            {config().text: 10.0, config(64).text: 12.5, VENDOR: 9.75},
            {config().text: 10.1, config(64).text: 12.4, VENDOR: 9.8},
        ]

    def test_a_round_is_kept_with_the_state_of_the_card(self, store: Store, path: Path) -> None:
        state = CardState(1980, 3201, 54, 412.5, ("thermal",), (4711,))
        store.end_run(started(store), "done", "trials", SECONDS, replace(DUEL, states=(CardState(), state)))
        found = [json.loads(text) for (text,) in rows(path, "SELECT state FROM rounds ORDER BY number")]
        assert found[0] == dict.fromkeys(("sm_mhz", "memory_mhz", "temperature_c", "power_w")) | {
            "throttled": [],
            "foreign": [],
        }
        assert found[1]["throttled"] == ["thermal"]
        assert (found[1]["power_w"], found[1]["foreign"]) == (412.5, [4711])

    def test_a_run_without_an_answer_is_closed_and_answers_nothing(self, store: Store, path: Path) -> None:
        store.end_run(started(store), "interrupted", "interrupted", SECONDS)
        assert rows(path, "SELECT status, stopped FROM runs") == [("interrupted", "interrupted")]
        assert store.answers() == []

    def test_an_answer_that_cannot_be_written_leaves_nothing(self, store: Store, path: Path) -> None:
        run = started(store)
        store.end_run(run, "failed", "error", {}, DUEL)
        with pytest.raises(IntegrityError, match="rounds"):
            store.add_answer(run, answer(), HERE, "trials", SECONDS, DUEL)
        assert rows(path, "SELECT status FROM runs") == [("failed",)]
        assert store.answers() == []


TYPED: list[dict[str, Value]] = [
    {"PIPELINED": True},
    {"PIPELINED": False},
    {"BLOCK": 1},
    {"BLOCK": 0},
    {"BLOCK": 2**70},
    {"EVICT": ""},
    {"EVICT": "True"},
    {"EVICT": "1"},
    {"EVICT": "null"},
    {"EVICT": NASTY},
    {"EVICT": "__import__('os')._exit(1)"},
]
READ_CONFIG = """
import json, sys
from pathlib import Path
from tuner.db.store import Store
store = Store.open(Path(sys.argv[1]), create=False)
(stored,) = store.answers()
(known,) = store.known(store.signatures()["scale"], stored.answer.problem, stored.provenance)
shown = [{name: (type(value).__name__, value) for name, value in found.items()}
         for found in (stored.answer.config, stored.answer.ties[0].config, known.config)]
print(json.dumps(shown))
"""


class TestB06AndB07ValuesKeepTheirTypes:
    def test_in_a_store_opened_anew(self, path: Path) -> None:
        given = [SCALE.config({**config(), "PIPELINED": False, **changes}) for changes in TYPED]
        writer = Store.open(path)
        run = started(writer)
        for each in given:
            writer.add_trial(run, Measurement(each, Outcome.OK, (1.0,)))
            answered(writer, replace(answer(), config=each, ties=(Tie(each, 1.0, (1.0, 1.0)),)))
        writer.close()
        reader = Store.open(path, create=False)
        answers = [stored.answer for stored in reader.answers()]
        known = [measurement.config for measurement in reader.known(SCALE, PROBLEM, HERE)]
        reader.close()
        for found in (known, [each.config for each in answers], [each.ties[0].config for each in answers]):
            assert found == given
            assert [each.text for each in found] == [each.text for each in given]
            for have, gave in zip(found, given, strict=True):
                assert [type(value) for value in have.values()] == [type(value) for value in gave.values()]

    def test_in_another_process(self, store: Store, path: Path) -> None:
        given = config(EVICT="evict_last \u6838", PIPELINED=False)
        store.add_trial(started(store), Measurement(given, Outcome.OK, (1.0,)))
        answered(store, replace(answer(), config=given, ties=(Tie(given, 1.0, (1.0, 1.0)),)))
        printed, errors = python(READ_CONFIG, path).communicate()
        assert errors == ""
        expected = {name: [type(value).__name__, value] for name, value in given.items()}
        assert json.loads(printed) == [expected] * 3
        assert expected["PIPELINED"] == ["bool", False]

    def test_b07_a_field_of_a_newer_version_is_passed_over(self, store: Store, path: Path) -> None:
        answered(store)
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(
                "UPDATE kernels SET signature = json_set(signature, '$.colour', 'red', '$.knobs[0].unit', 'rows')"
            )
        assert store.signatures() == {"scale": SCALE}
        assert [stored.answer for stored in store.answers()] == [answer()]


class TestKnown:
    """What an earlier run measured is not measured again."""

    def test_k02_trials_of_a_run_that_never_ended_are_known(self, store: Store) -> None:
        run = started(store)
        given = [measured(block=block) for block in (64, 128, 256)]
        for measurement in given:
            store.add_trial(run, measurement)
        assert store.known(SCALE, PROBLEM, HERE) == given

    def test_the_newest_of_each_config_wins(self, store: Store) -> None:
        first, second = started(store), started(store)
        store.add_trial(first, measured(10.0, block=64))
        store.add_trial(first, measured(20.0, block=128))
        store.add_trial(second, measured(11.0, block=64))
        found = {m.config["BLOCK"]: m.latency_us for m in store.known(SCALE, PROBLEM, HERE)}
        assert found == {64: 11.0, 128: 20.0}

    def test_a_later_trial_of_a_config_replaces_within_its_run(self, store: Store, path: Path) -> None:
        run = started(store)
        store.add_trial(run, FULL)
        later = Measurement(config(), Outcome.WRONG_RESULT, stage="check", max_error=0.5, tolerance=0.25)
        store.add_trial(run, later)
        assert store.known(SCALE, PROBLEM, HERE) == [later]
        assert rows(path, "SELECT outcome, latency_us FROM trials") == [("wrong_result", None)]

    def test_the_same_config_stands_in_every_run_that_tried_it(self, store: Store, path: Path) -> None:
        store.add_trial(started(store), measured(10.0))
        store.add_trial(started(store), measured(11.0))
        assert rows(path, "SELECT run_id, latency_us FROM trials ORDER BY run_id") == [(1, 10.0), (2, 11.0)]

    @pytest.mark.parametrize("outcome", ["infeasible", "compile_error", "out_of_resources", "wrong_result", "error"])
    def test_what_cannot_end_otherwise_is_known_at_once(self, store: Store, outcome: str) -> None:
        store.add_trial(started(store), measured(outcome=Outcome(outcome)))
        assert [m.outcome for m in store.known(SCALE, PROBLEM, HERE)] == [outcome]

    @pytest.mark.parametrize("outcome", ["crashed", "timeout", "out_of_memory"])
    def test_what_may_end_otherwise_gets_one_more_try(self, store: Store, outcome: str) -> None:
        store.add_trial(started(store), measured(outcome=Outcome(outcome)))
        assert store.known(SCALE, PROBLEM, HERE) == []
        store.add_trial(started(store), measured(outcome=Outcome(outcome)))
        assert [m.outcome for m in store.known(SCALE, PROBLEM, HERE)] == [outcome]

    def test_the_same_run_trying_twice_is_one_try(self, store: Store) -> None:
        run = started(store)
        store.add_trial(run, measured(outcome=Outcome.CRASHED))
        store.add_trial(run, measured(outcome=Outcome.CRASHED))
        assert store.known(SCALE, PROBLEM, HERE) == []

    def test_two_different_mishaps_are_two_tries(self, store: Store) -> None:
        store.add_trial(started(store), measured(outcome=Outcome.CRASHED))
        store.add_trial(started(store), measured(outcome=Outcome.TIMEOUT))
        assert [m.outcome for m in store.known(SCALE, PROBLEM, HERE)] == [Outcome.TIMEOUT]

    def test_a_config_that_ran_on_its_second_try_ran(self, store: Store) -> None:
        store.add_trial(started(store), measured(outcome=Outcome.CRASHED))
        store.add_trial(started(store), measured(12.0))
        assert store.known(SCALE, PROBLEM, HERE) == [measured(12.0)]

    def test_one_crash_does_not_outweigh_what_was_measured(self, store: Store) -> None:
        """Known is the newest `ok` or permanent failure."""
        store.add_trial(started(store), measured(12.0))
        store.add_trial(started(store), measured(outcome=Outcome.CRASHED))
        assert store.known(SCALE, PROBLEM, HERE) == [measured(12.0)]

    def test_a_knob_added_later_takes_its_default(self, store: Store) -> None:
        store.add_trial(started(store), measured())
        wider = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2), default=1)))
        (known,) = store.known(wider, wider.problem({"M": 4096}), HERE)
        assert known.config == {**config(), "SPLIT": 1}

    @pytest.mark.parametrize(
        "elsewhere",
        [
            pytest.param(replace(HERE, source="0123456789abcdef"), id="source"),
            pytest.param(replace(HERE, policy="warm-events-1"), id="policy"),
            pytest.param(replace(HERE, recorded="scale-4096-bf16-nvidia-h200"), id="recorded"),
            pytest.param(replace(HERE, device=A100), id="device"),
            pytest.param(replace(HERE, device=replace(H200, mig="1g.18gb")), id="mig"),
            pytest.param(replace(HERE, device=replace(H200, sm_count=114)), id="b12-same-name-fewer-sms"),
            *(
                pytest.param(replace(HERE, environment=replace(HERE.environment, **{name: "0"})), id=name)
                for name in ("triton", "ptxas", "torch", "driver")
            ),
        ],
    )
    def test_nothing_is_known_from_elsewhere(self, store: Store, elsewhere: Provenance) -> None:
        store.add_trial(started(store), measured(10.0))
        store.add_trial(started(store, provenance=elsewhere), measured(99.0))
        assert store.known(SCALE, PROBLEM, HERE) == [measured(10.0)]
        assert store.known(SCALE, PROBLEM, elsewhere) == [measured(99.0)]

    def test_recorded_spaces_are_told_apart(self, store: Store) -> None:
        one, other = replace(HERE, recorded="one"), replace(HERE, recorded="other")
        store.add_trial(started(store, provenance=one), measured(10.0))
        assert store.known(SCALE, PROBLEM, one) == [measured(10.0)]
        assert store.known(SCALE, PROBLEM, other) == []

    @pytest.mark.parametrize(
        "values",
        [{"M": 4095}, {"M": 4096, "N": 1}, {"M": 4096, "dtype": "fp16"}, {"M": 4096, "layout": "nt"}],
        ids=str,
    )
    def test_b01_f02_nothing_is_known_of_another_problem(self, store: Store, values: dict[str, object]) -> None:
        store.add_trial(started(store), measured())
        assert store.known(SCALE, SCALE.problem(values), HERE) == []

    def test_nothing_is_known_of_another_op(self, store: Store) -> None:
        store.add_trial(started(store), measured())
        other = replace(SCALE, op="shift")
        assert store.known(other, other.problem({"M": 4096}), HERE) == []

    def test_partial_is_the_fastest_of_a_run_that_was_interrupted(self, store: Store) -> None:
        assert store.partial(SCALE, PROBLEM, HERE) is None
        run = started(store)
        store.add_trial(run, measured(10.0, block=64))
        store.add_trial(run, measured(9.5, block=128))
        store.add_trial(run, measured(block=256, outcome=Outcome.WRONG_RESULT))
        store.end_run(run, "interrupted", "interrupted", {})
        assert store.partial(SCALE, PROBLEM, HERE) == measured(9.5, block=128)

    def test_partial_is_nothing_where_every_config_failed(self, store: Store) -> None:
        store.add_trial(started(store), measured(outcome=Outcome.COMPILE_ERROR))
        assert store.partial(SCALE, PROBLEM, HERE) is None


def run_of(store: Store, number: int) -> StoredRun:
    run = store.run(number)
    assert run is not None
    return run


class TestRuns:
    def test_a_run_comes_back_whole_while_it_goes_and_when_it_has_ended(self, store: Store) -> None:
        number = started(store)
        going = run_of(store, number)
        expected = StoredRun(number, SCALE, PROBLEM, HERE, SETTINGS, "running", None, {}, going.started_at, None)
        assert going == expected
        store.add_trial(number, measured())
        store.add_trial(number, measured(block=64, outcome=Outcome.CRASHED))
        store.add_answer(number, answer(latency_us=9.5), HERE, "trials", SECONDS, DUEL)
        ended = run_of(store, number)
        assert ended.ended_at is not None
        assert ended.ended_at >= ended.started_at
        assert ended == replace(
            expected,
            status="done",
            stopped="trials",
            seconds=SECONDS,
            ended_at=ended.ended_at,
            trials=2,
            answer_us=9.5,
        )

    def test_there_is_no_run_of_another_number(self, store: Store) -> None:
        assert store.run(1) is None
        assert store.run(started(store) + 1) is None

    def test_the_newest_come_first_and_no_more_than_asked_for(self, store: Store) -> None:
        numbers = [started(store) for _ in range(4)]
        assert [run.id for run in store.runs(3)] == numbers[:0:-1]
        assert [run.id for run in store.runs(20)] == numbers[::-1]

    def test_a_run_knew_what_earlier_ones_had_measured_by_then(self, store: Store) -> None:
        early, elsewhere = started(store), started(store, provenance=replace(HERE, device=A100))
        store.add_trial(early, measured(12.0, block=64))
        store.add_trial(early, measured(13.0, block=128))
        store.add_trial(early, measured(block=256, outcome=Outcome.TIMEOUT))  # gets another try, so it is not known
        store.add_trial(elsewhere, measured(1.0, block=64))
        late = store.start_run(SCALE, PROBLEM, HERE, SETTINGS | {"known": 2})
        sleep(0.01)
        store.add_trial(early, Measurement(config(512), Outcome.OK, (14.0,)))  # too late to be known
        store.add_trial(late, measured(11.0, block=256))
        store.add_trial(late, measured(block=64, outcome=Outcome.WRONG_RESULT))  # a re-check overruled it
        assert store.known_to(run_of(store, late)) == [
            measured(13.0, block=128),
            measured(11.0, block=256),
            measured(block=64, outcome=Outcome.WRONG_RESULT),
        ]
        assert [m.config["BLOCK"] for m in store.known_to(run_of(store, early))] == [64, 128, 256, 512]

    def test_a_run_that_took_nothing_over_knew_its_own_alone(self, store: Store) -> None:
        store.add_trial(started(store), measured(12.0, block=64))
        forced = started(store)
        store.add_trial(forced, measured(11.0, block=128))
        assert store.known_to(run_of(store, forced)) == [measured(11.0, block=128)]

    def test_a_duel_comes_back_whole(self, store: Store) -> None:
        states = (CardState(1755, 3201, 41, 590.5, ("power_cap",), ()), CardState(1740, None, 55, None, (), (4711,)))
        given = replace(DUEL, states=states)
        run = started(store)
        assert store.duel(run) is None
        store.add_answer(run, answer(), HERE, "trials", SECONDS, given)
        assert store.duel(run) == given
        assert store.duel(run + 1) is None

    def test_a_duel_that_nobody_watched_has_no_states(self, store: Store) -> None:
        run = started(store)
        store.add_answer(run, answer(), HERE, "trials", SECONDS, DUEL)
        assert store.duel(run) == DUEL

    def test_the_answers_of_one_run_are_found_unless_they_are_out_of_service(self, store: Store, path: Path) -> None:
        first, second = answered(store), answered(store)
        by_id = {stored.id: stored.run_id for stored in store.answers()}
        assert [stored.id for stored in store.answers_of(by_id[second])] == [second]
        quarantine(path, first)
        assert store.answers_of(by_id[first]) == []


def quarantine(path: Path, about: int) -> None:
    """Takes an answer out of service, as a later release will: by another row."""
    engine = create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        row = connection.execute(select(schema.Answer).where(schema.Answer.id == about)).one()
        values = row._asdict() | {"kind": "quarantine", "about_id": about}
        del values["id"]
        connection.execute(insert(schema.Answer).values(values))
    engine.dispose()


class TestAnswers:
    def test_they_come_oldest_first(self, store: Store) -> None:
        ids = [answered(store, answer(latency_us=latency)) for latency in (12.0, 10.0, 11.0)]
        found = store.answers()
        assert [stored.id for stored in found] == ids == sorted(ids)
        assert [stored.answer.latency_us for stored in found] == [12.0, 10.0, 11.0]
        assert [stored.created_at for stored in found] == sorted(stored.created_at for stored in found)

    def test_ids_are_in_the_order_of_answering_not_of_starting(self, store: Store) -> None:
        early, late = started(store), started(store)
        first = store.add_answer(late, answer(), HERE, "trials", SECONDS, DUEL)
        second = store.add_answer(early, answer(), HERE, "trials", SECONDS, DUEL)
        assert [(stored.id, stored.run_id) for stored in store.answers()] == [(first, late), (second, early)]
        assert first < second

    def test_they_are_filtered_by_op_and_by_device(self, store: Store) -> None:
        shift = replace(SCALE, op="shift")
        answered(store)
        answered(store, provenance=replace(HERE, device=A100))
        run = store.start_run(shift, shift.problem({"M": 1}), HERE, SETTINGS)
        store.add_answer(run, answer(shift.problem({"M": 1})), HERE, "trials", SECONDS, DUEL)

        def found(**filters: str) -> list[tuple[str, str]]:
            return [(s.answer.problem.op, s.provenance.device.id) for s in store.answers(**filters)]

        h200, a100 = H200.id, A100.id
        assert found() == [("scale", h200), ("scale", a100), ("shift", h200)]
        assert found(op="scale") == [("scale", h200), ("scale", a100)]
        assert found(device=h200) == [("scale", h200), ("shift", h200)]
        assert found(op="shift", device=h200) == [("shift", h200)]
        assert found(op="shift", device=a100) == []
        assert found(op="scal_") == []
        assert found(device="' OR 1=1 --") == []

    def test_b12_a_card_answers_for_no_card_of_a_similar_name(self, store: Store) -> None:
        slugs = {
            "NVIDIA H20": "nvidia-h20",
            "NVIDIA H20-3e": "nvidia-h20-3e",
            "NVIDIA H100": "nvidia-h100",
            "NVIDIA H100 PCIe": "nvidia-h100-pcie",
            "NVIDIA H100 NVL": "nvidia-h100-nvl",
            "NVIDIA H100 80GB HBM3": "nvidia-h100-80gb-hbm3",
        }
        for name in slugs:
            answered(store, provenance=replace(HERE, device=replace(H200, name=name)))
        answered(store, provenance=replace(HERE, device=replace(H200, name="NVIDIA H100", mig="1g.10gb")))
        for name, slug in slugs.items():
            (stored,) = store.answers(device=slug)
            assert (stored.provenance.device.name, stored.provenance.device.mig) == (name, "")
        (slice_,) = store.answers(device="nvidia-h100-mig-1g.10gb")
        assert slice_.provenance.device.mig == "1g.10gb"

    def test_b01_the_key_that_is_written_is_the_key_that_is_read(self, store: Store, path: Path) -> None:
        for dtype in SCALE.dtypes:
            for layout in ("nn", "nt"):
                answered(store, answer(SCALE.problem({"M": 4096, "dtype": dtype, "layout": layout})))
        written = [text for (text,) in rows(path, "SELECT problem FROM answers ORDER BY id")]
        assert [stored.answer.problem.text for stored in store.answers()] == written
        assert len(set(written)) == 8

    def test_a_quarantined_answer_serves_no_longer_and_the_one_before_it_does(self, store: Store, path: Path) -> None:
        before, bad = answered(store), answered(store)
        quarantine(path, about=bad)
        assert [stored.id for stored in store.answers()] == [before]
        after = answered(store)
        assert [stored.id for stored in store.answers()] == [before, after]

    def test_the_last_answer_of_all_can_be_quarantined(self, store: Store, path: Path) -> None:
        quarantine(path, about=answered(store))
        assert store.answers() == []

    def test_a_dtype_added_later_loses_no_answer(self, store: Store) -> None:
        """Same code, so same source; the kernel's author now allows more."""
        answered(store)
        wider = replace(SCALE, dtypes=(*SCALE.dtypes, "int8"))
        problem = wider.problem({"M": 4096, "dtype": "int8"})
        run = store.start_run(wider, problem, HERE, SETTINGS)
        store.add_answer(run, answer(problem), HERE, "trials", SECONDS, DUEL)
        assert [stored.answer.problem for stored in store.answers()] == [PROBLEM, problem]

    def test_a_knob_added_later_loses_no_answer(self, store: Store) -> None:
        answered(store)
        wider = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2), default=1)))
        run = store.start_run(wider, PROBLEM, HERE, SETTINGS)
        split = replace(answer(), config=wider.config({**config(), "SPLIT": 2}))
        store.add_answer(run, split, HERE, "trials", SECONDS, DUEL)
        assert [stored.answer.config.get("SPLIT") for stored in store.answers()][-1] == 2


class TestSnapshot:
    def test_it_names_the_store_and_the_highest_answer(self, store: Store, path: Path) -> None:
        ((uuid,),) = rows(path, "SELECT uuid FROM store")
        assert store.snapshot == f"{uuid}:0"
        answered(store)
        number = answered(store)
        assert store.snapshot == f"{uuid}:{number}"

    def test_it_changes_with_every_answer_and_quarantine_and_with_nothing_else(self, store: Store, path: Path) -> None:
        empty = store.snapshot
        store.add_trial(started(store), measured())
        assert store.snapshot == empty
        number = answered(store)
        assert store.snapshot == f"{empty.partition(':')[0]}:{number}"
        quarantine(path, about=number)
        assert store.snapshot == f"{empty.partition(':')[0]}:{number + 1}"

    def test_it_is_the_same_in_a_store_opened_anew(self, store: Store, path: Path) -> None:
        answered(store)
        again = Store.open(path)
        assert again.snapshot == store.snapshot
        again.close()

    def test_two_stores_have_two_names(self, store: Store, tmp_path: Path) -> None:
        other = Store.open(tmp_path / "other.db")
        assert other.snapshot.partition(":")[0] != store.snapshot.partition(":")[0]
        other.close()


class TestSignaturesAndDevices:
    def test_an_empty_store_has_none(self, store: Store) -> None:
        assert store.signatures() == {}
        assert store.devices() == []

    def test_the_signature_of_a_newer_source_replaces(self, store: Store) -> None:
        started(store)
        newer = replace(SCALE, dims=(*SCALE.dims, Dim("K", default=1)), summary="out = k x")
        store.start_run(newer, newer.problem({"M": 1}), replace(HERE, source="0123456789abcdef"), SETTINGS)
        assert store.signatures() == {"scale": newer}

    def test_a_newer_signature_of_the_same_source_replaces(self, store: Store) -> None:
        started(store)
        newer = replace(SCALE, dtypes=(*SCALE.dtypes, "int8"))
        store.start_run(newer, PROBLEM, HERE, SETTINGS)
        assert store.signatures() == {"scale": newer}

    def test_every_op_has_its_own(self, store: Store) -> None:
        shift = replace(SCALE, op="shift")
        started(store)
        store.start_run(shift, shift.problem({"M": 1}), HERE, SETTINGS)
        assert store.signatures() == {"scale": SCALE, "shift": shift}

    def test_devices_are_those_that_have_answers_by_name(self, store: Store) -> None:
        answered(store)
        answered(store)
        answered(store, provenance=replace(HERE, device=A100))
        started(store, provenance=replace(HERE, device=replace(H200, name="NVIDIA L4")))
        assert store.devices() == ["nvidia-a100-sxm4-80gb", "nvidia-h200"]

    def test_cards_of_one_name_and_other_facts_are_two_devices(self, store: Store, path: Path) -> None:
        cut = replace(H200, sm_count=114)
        for device in (H200, cut, H200):
            started(store, provenance=replace(HERE, device=device))
        found = [Device(**json.loads(facts)) for (facts,) in rows(path, "SELECT facts FROM devices ORDER BY id")]
        assert [device.sm_count for device in found] == [132, 114]


class TestCeilings:
    CEILINGS = Ceilings(4157.0, {"bf16": 770.5, "fp32": 50.1}, {"cold-events-1": 2.25, "cold-graph-1": 1.4})

    def test_they_belong_to_one_fingerprint(self, store: Store) -> None:
        assert store.ceilings(H200) is None
        store.keep_ceilings(H200, self.CEILINGS)
        assert store.ceilings(H200) == self.CEILINGS
        assert store.ceilings(replace(H200, sm_count=114)) is None

    def test_the_newest_stand(self, store: Store) -> None:
        store.keep_ceilings(H200, self.CEILINGS)
        started(store)
        store.keep_ceilings(H200, replace(self.CEILINGS, copy_gb_per_s=4200.0))
        found = store.ceilings(H200)
        assert found is not None
        assert found.copy_gb_per_s == 4200.0


class TestMigrations:
    def test_they_make_the_tables_that_the_schema_states(self, store: Store, path: Path) -> None:
        engine = create_engine(f"sqlite:///{path}")
        with engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), schema.Base.metadata) == []
        engine.dispose()

    def test_head_is_the_newest_migration(self) -> None:
        folder = Path(schema.__file__).parent / "migrations"
        assert ScriptDirectory(str(folder)).get_current_head() == HEAD

    def test_opening_again_changes_nothing(self, store: Store, path: Path) -> None:
        answered(store)
        before = rows(path, "SELECT sql FROM sqlite_master"), rows(path, "SELECT * FROM store")
        Store.open(path).close()
        assert (rows(path, "SELECT sql FROM sqlite_master"), rows(path, "SELECT * FROM store")) == before
        assert rows(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]

    def test_answers_of_the_first_schema_are_served_by_todays(self, path: Path) -> None:
        """What 0.1 wrote has no marks, and its evidence is two numbers."""
        store = Store.open(path)
        answered(store)
        store.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("ALTER TABLE answers DROP COLUMN marks")
            connection.execute("""UPDATE answers SET evidence = '{"max_error": 0.25, "tolerance": 0.5}'""")
            connection.execute("UPDATE alembic_version SET version_num = '0001'")
        with pytest.raises(StoreError, match="has schema 0001, and this version reads 0002; tuner list updates it"):
            Store.open(path, create=False)
        store = Store.open(path)
        (stored,) = store.answers()
        store.close()
        assert stored.answer.marks == ()
        assert stored.answer.evidence == Evidence(0.25, 0.5)

    def test_a_database_of_a_newer_version_is_refused(self, store: Store, path: Path) -> None:
        store.close()
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == (
            f"the database {path} has schema 9999, and this version knows up to {HEAD}; update the tuner"
        )
        assert refused.value.exit_code == 5
        assert rows(path, "SELECT version_num FROM alembic_version") == [("9999",)]

    def test_the_database_of_another_program_is_left_alone(self, path: Path) -> None:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("CREATE TABLE moz_places (url TEXT)")
        before = path.read_bytes()
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"{path} is the database of another program; name another file with --db"
        assert path.read_bytes() == before


class TestFiles:
    def test_folders_on_the_way_are_made(self, tmp_path: Path) -> None:
        Store.open(tmp_path / "a" / "b" / "tuner.db").close()
        assert (tmp_path / "a" / "b" / "tuner.db").is_file()

    @pytest.mark.parametrize(
        "name", ["a b.db", "\u00fc\u6838.db", "a#b.db", "a?b.db", "a%41.db", "a?mode=ro", ":memory:"]
    )
    def test_any_name_is_the_name_of_the_file(self, tmp_path: Path, name: str) -> None:
        store = Store.open(tmp_path / name)
        answered(store)
        store.close()
        assert [found.name for found in tmp_path.iterdir()] == [name]

    def test_tuner_db_names_the_file(self, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        monkeypatch.setenv("TUNER_DB", str(path))
        assert default_path() == path

    def test_without_it_the_file_is_in_the_data_folder(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        monkeypatch.setenv("TUNER_DB", "")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        assert default_path().name == "tuner.db"
        assert default_path().parent.name == "triton-tuner"

    def test_a_missing_file_is_not_made_unless_asked(self, path: Path) -> None:
        with pytest.raises(StoreError) as refused:
            Store.open(path, create=False)
        assert str(refused.value) == f"there is no database at {path}; a search makes it, or name another with --db"
        assert refused.value.exit_code == 5
        assert not path.exists()

    def test_a_file_that_is_no_database_is_refused_and_left_alone(self, path: Path) -> None:
        path.write_bytes(b"M,N,K,latency\n" * 1000)
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the database {path} cannot be read: file is not a database"
        assert path.read_bytes() == b"M,N,K,latency\n" * 1000

    def test_a_damaged_database_is_refused(self, store: Store, path: Path) -> None:
        answered(store)
        store.close()
        path.write_bytes(path.read_bytes()[:4096] + b"\xff" * 200_000)
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the database {path} cannot be read: database disk image is malformed"

    def test_a_folder_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError) as refused:
            Store.open(tmp_path)
        assert str(refused.value) == f"the database {tmp_path} cannot be read: unable to open database file"

    def test_a_folder_that_is_a_file_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "notes").write_text("")
        path = tmp_path / "notes" / "tuner.db"
        with pytest.raises(StoreError) as refused:
            Store.open(path)
        assert str(refused.value) == f"the folder of the database {path} cannot be made: File exists"

    @pytest.mark.parametrize("create", [True, False])
    def test_a_name_that_is_too_long_is_refused(self, tmp_path: Path, create: bool) -> None:
        with pytest.raises(StoreError):
            Store.open(tmp_path / ("x" * 300), create=create)


class TestLocks:
    """Only the wait of `Store.open` is ten seconds, so these hand the constructor an engine that waits less."""

    def test_a_database_locked_against_writers_says_so(self, store: Store, path: Path) -> None:
        run = started(store)
        impatient = Store(create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.05}), path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError) as refused:
                impatient.add_trial(run, measured())
        impatient.close()
        assert str(refused.value) == f"the database {path} cannot be written: database is locked"
        assert refused.value.exit_code == 5

    def test_a_database_locked_against_readers_says_so(self, path: Path) -> None:
        impatient = Store(create_engine(f"sqlite:///{path}", connect_args={"timeout": 0.05}), path)
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("CREATE TABLE store (uuid TEXT)")
            other.execute("BEGIN EXCLUSIVE")  # without a write-ahead log, readers are kept out too
            with pytest.raises(StoreError) as refused:
                impatient.devices()
        impatient.close()
        assert str(refused.value) == f"the database {path} cannot be read: database is locked"

    def test_a_writer_waits_for_another(self, store: Store, path: Path) -> None:
        run = started(store)
        with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
            other.execute("BEGIN EXCLUSIVE")
            release = Timer(0.5, other.execute, ["COMMIT"])
            release.start()
            since = monotonic()
            store.add_trial(run, measured())
            assert monotonic() - since > 0.3
            release.join()
        assert store.known(SCALE, PROBLEM, HERE) == [measured()]

    def test_e03_an_open_read_does_not_block_a_writer(self, store: Store, path: Path) -> None:
        run = started(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            assert reader.execute("SELECT count(*) FROM trials").fetchone() == (0,)
            since = monotonic()
            for block in range(20):
                store.add_trial(run, measured(block=block))
            assert monotonic() - since < 5
            assert reader.execute("SELECT count(*) FROM trials").fetchone() == (0,)
        assert len(store.known(SCALE, PROBLEM, HERE)) == 20

    def test_e03_an_open_write_does_not_block_a_reader(self, store: Store, path: Path) -> None:
        number = answered(store)
        with closing(sqlite3.connect(path, isolation_level=None)) as writer:
            writer.execute("BEGIN EXCLUSIVE")
            writer.execute("UPDATE answers SET latency_us = 0")
            since = monotonic()
            newcomer = Store.open(path, create=False)
            assert [(stored.id, stored.answer.latency_us) for stored in newcomer.answers()] == [(number, 10.0)]
            assert monotonic() - since < 5
            newcomer.close()

    def test_threads_share_a_store(self, store: Store) -> None:
        run = started(store)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda block: store.add_trial(run, measured(block=block)), range(80)))
        assert {m.config["BLOCK"] for m in store.known(SCALE, PROBLEM, HERE)} == set(range(80))


WRITER = """
import os, sys
from pathlib import Path
from tuner.db.store import Store
from tuner.kernels.spec import Dim, Knob, Signature
from tuner.records import Device, Environment, Measurement, Outcome, Provenance

def write(trials):
    knobs = tuple(Knob(name, (1,)) for name in ("BLOCK", "num_warps", "num_stages"))
    signature = Signature("scale", (Dim("M"),), ("fp32",), knobs)
    device = Device("NVIDIA H200", (9, 0), 132, 1, 1, 1)
    provenance = Provenance(device, Environment("3.6.0"), "source", "cold-events-1")
    store = Store.open(Path(sys.argv[1]))
    run = store.start_run(signature, signature.problem({"M": 1}), provenance, {"known": 0})
    for block in range(trials):
        config = signature.config({"BLOCK": block, "num_warps": 1, "num_stages": 1})
        store.add_trial(run, Measurement(config, Outcome.OK, (float(block),)))
        print(run, config.text, flush=True)
"""
AT_THE_WORD = """
print("ready", flush=True)
sys.stdin.readline()
write(50)
"""
AGAIN_AND_AGAIN = """
while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        write(10_000)
    print("died of", os.waitpid(child, 0)[1], flush=True)
"""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_e02_e04_eight_processes_start_at_once_on_a_missing_file(path: Path) -> None:
    with ExitStack() as stack:
        writers = [stack.enter_context(python(WRITER + AT_THE_WORD, path)) for _ in range(8)]
        assert [line(writer) for writer in writers] == ["ready"] * 8
        assert not path.exists()
        for writer in writers:
            go(writer)
        errors = [writer.communicate()[1] for writer in writers]
    assert errors == [""] * 8
    assert [writer.returncode for writer in writers] == [0] * 8
    assert rows(path, "SELECT run_id, count(*) FROM trials GROUP BY run_id") == [(run, 50) for run in range(1, 9)]
    assert rows(path, "SELECT count(*) FROM store") == [(1,)]
    assert rows(path, "SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_e04_a_writer_killed_ten_times_loses_nothing_that_was_committed(path: Path) -> None:
    committed: set[str] = set()
    with python(WRITER + AGAIN_AND_AGAIN, path) as writer:
        for number in range(10):
            go(writer)
            child = int(line(writer))
            committed |= {line(writer) for _ in range(3 + number)}
            os.kill(child, SIGKILL)
            while (last := line(writer)) != "died of 9":
                committed.add(last)
            assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    stored = {f"{run} {text}" for run, text in rows(path, "SELECT run_id, config_text FROM trials")}
    assert len(committed) >= 3 * 10
    assert committed <= stored
    assert len(stored - committed) <= 10  # killed after the commit and before the word of it
    assert {text.partition(" ")[0] for text in stored} == {str(run) for run in range(1, 11)}
