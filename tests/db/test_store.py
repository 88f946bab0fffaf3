"""The store, over SQLite and PostgreSQL: what goes in comes out, the same from both."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from math import inf, nan
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from helpers import A100, H200
from sqlalchemy import func, inspect, select, text, update
from sqlalchemy.exc import IntegrityError
from stored import (
    COMPARISON,
    FULL,
    HERE,
    NASTY,
    PROBLEM,
    SCALE,
    SECONDS,
    SETTINGS,
    address,
    answer,
    answered,
    change,
    config,
    documents,
    measured,
    older,
    outside,
    python,
    rows,
    started,
)  # fmt: skip

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.queue import JobFilter
from tuner.db.revisions import HEAD
from tuner.db.store import Store
from tuner.errors import ReadOnly, StoreError
from tuner.kernels.spec import Dim, Knob, Value
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Device,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Provenance,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    Tie,
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
            basis="agreement",
            flops=2**62,
            bytes=2**40,
        )
        run = started(store, given.problem)
        store.add_trial(run, measured())
        store.add_trial(run, measured(block=64))
        number = store.add_answer(run, given, HERE, "exhausted", SECONDS, COMPARISON)
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
        store.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)
        (stored,) = store.answers()
        assert stored.trials == 41

    def test_a_run_is_closed_with_its_answer_and_its_comparison(self, store: Store, database: Database) -> None:
        answered(store)
        assert rows(database, "SELECT status, stopped FROM runs") == [("done", "trials")]
        assert documents(database, "runs", "seconds") == [SECONDS]
        found = documents(database, "rounds", "latencies")
        assert found == [
            {config().text: 10.0, config(64).text: 12.5, VENDOR: 9.75},
            {config().text: 10.1, config(64).text: 12.4, VENDOR: 9.8},
        ]

    def test_a_round_is_kept_with_the_state_of_the_card(self, store: Store, database: Database) -> None:
        state = CardState(1980, 3201, 54, 412.5, ("thermal",), (4711,))
        store.end_run(started(store), "done", "trials", SECONDS, replace(COMPARISON, states=(CardState(), state)))
        found = documents(database, "rounds", "state")
        assert found[0] == dict.fromkeys(("sm_mhz", "memory_mhz", "temperature_c", "power_w")) | {
            "throttled": [],
            "foreign": [],
        }
        assert found[1]["throttled"] == ["thermal"]
        assert (found[1]["power_w"], found[1]["foreign"]) == (412.5, [4711])

    def test_a_run_without_an_answer_is_closed_and_answers_nothing(self, store: Store, database: Database) -> None:
        store.end_run(started(store), "interrupted", "interrupted", SECONDS)
        assert rows(database, "SELECT status, stopped FROM runs") == [("interrupted", "interrupted")]
        assert store.answers() == []

    def test_an_answer_that_cannot_be_written_leaves_nothing(self, store: Store, database: Database) -> None:
        run = started(store)
        store.end_run(run, "failed", "error", {}, COMPARISON)
        with pytest.raises(IntegrityError, match="rounds"):
            store.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)
        assert rows(database, "SELECT status FROM runs") == [("failed",)]
        assert store.answers() == []


TYPED: list[dict[str, Value]] = [
    {"PIPELINED": True},
    {"PIPELINED": False},
    {"BLOCK": 1},
    {"BLOCK": 0},
    {"BLOCK": 2**31 - 1},
    {"EVICT": ""},
    {"EVICT": "True"},
    {"EVICT": "1"},
    {"EVICT": "null"},
    {"EVICT": NASTY},
    {"EVICT": "__import__('os')._exit(1)"},
]
READ_CONFIG = """
import json, sys
from tuner.db.store import Store
store = Store.open(sys.argv[1], create=False)
(stored,) = store.answers()
(known,) = store.known(store.signatures()["scale"], stored.answer.problem, stored.provenance)
shown = [{name: (type(value).__name__, value) for name, value in found.items()}
         for found in (stored.answer.config, stored.answer.ties[0].config, known.config)]
print(json.dumps(shown))
"""


class TestB06AndB07ValuesKeepTheirTypes:
    def test_in_a_store_opened_anew(self, database: Database) -> None:
        given = [SCALE.config({**config(), "PIPELINED": False, **changes}) for changes in TYPED]
        writer = Store.open(database)
        run = started(writer)
        for each in given:
            writer.add_trial(run, Measurement(each, Outcome.OK, (1.0,)))
            answered(writer, replace(answer(), config=each, ties=(Tie(each, 1.0, (1.0, 1.0)),)))
        writer.close()
        reader = Store.open(database, create=False)
        answers = [stored.answer for stored in reader.answers()]
        known = [measurement.config for measurement in reader.known(SCALE, PROBLEM, HERE)]
        reader.close()
        for found in (known, [each.config for each in answers], [each.ties[0].config for each in answers]):
            assert found == given
            assert [each.text for each in found] == [each.text for each in given]
            for have, gave in zip(found, given, strict=True):
                assert [type(value) for value in have.values()] == [type(value) for value in gave.values()]

    def test_in_another_process(self, store: Store, database: Database) -> None:
        given = config(EVICT="evict_last \u6838", PIPELINED=False)
        store.add_trial(started(store), Measurement(given, Outcome.OK, (1.0,)))
        answered(store, replace(answer(), config=given, ties=(Tie(given, 1.0, (1.0, 1.0)),)))
        printed, errors = python(READ_CONFIG, address(database)).communicate()
        assert errors == ""
        expected = {name: [type(value).__name__, value] for name, value in given.items()}
        assert json.loads(printed) == [expected] * 3
        assert expected["PIPELINED"] == ["bool", False]

    def test_a_field_of_a_newer_version_is_passed_over(self, store: Store, database: Database) -> None:
        answered(store)
        (signature,) = documents(database, "kernels", "signature")
        newer = signature | {"colour": "red"}
        newer["knobs"][0]["unit"] = "rows"
        with outside(database).begin() as connection:
            connection.execute(update(schema.KernelRow).values(signature=newer))
        assert store.signatures() == {"scale": SCALE}
        assert [stored.answer for stored in store.answers()] == [answer()]


class TestKnown:
    """What an earlier run measured is not measured again."""

    def test_trials_of_a_run_that_never_ended_are_known(self, store: Store) -> None:
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

    def test_a_later_trial_of_a_config_replaces_within_its_run(self, store: Store, database: Database) -> None:
        run = started(store)
        store.add_trial(run, FULL)
        later = Measurement(config(), Outcome.WRONG_RESULT, stage="check", max_error=0.5, tolerance=0.25)
        store.add_trial(run, later)
        assert store.known(SCALE, PROBLEM, HERE) == [later]
        assert rows(database, "SELECT outcome, latency_us FROM trials") == [("wrong_result", None)]

    def test_the_same_config_stands_in_every_run_that_tried_it(self, store: Store, database: Database) -> None:
        store.add_trial(started(store), measured(10.0))
        store.add_trial(started(store), measured(11.0))
        assert rows(database, "SELECT run_id, latency_us FROM trials ORDER BY run_id") == [(1, 10.0), (2, 11.0)]

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
            pytest.param(replace(HERE, definition="0123456789abcdef"), id="definition"),
            pytest.param(replace(HERE, policy="warm-events-1"), id="policy"),
            pytest.param(replace(HERE, recorded="scale-4096-bf16-nvidia-h200"), id="recorded"),
            pytest.param(replace(HERE, device=A100), id="device"),
            pytest.param(replace(HERE, device=replace(H200, mig="1g.18gb")), id="mig"),
            pytest.param(replace(HERE, device=replace(H200, sm_count=114)), id="same-name-fewer-sms"),
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

    def test_a_wrong_result_by_another_definition_is_not_known(self, store: Store) -> None:
        store.add_trial(started(store), measured(outcome=Outcome.WRONG_RESULT))
        assert store.known(SCALE, PROBLEM, replace(HERE, definition="0123456789abcdef")) == []
        assert store.known(SCALE, PROBLEM, HERE) == [measured(outcome=Outcome.WRONG_RESULT)]

    def test_what_was_stored_without_a_definition_is_known_for_each(self, store: Store) -> None:
        run = started(store, provenance=replace(HERE, definition=""))
        store.add_trial(run, measured())
        assert store.known(SCALE, PROBLEM, HERE) == [measured()]
        assert store.known(SCALE, PROBLEM, replace(HERE, definition="0123456789abcdef")) == [measured()]
        assert store.known(SCALE, PROBLEM, replace(HERE, definition="")) == [measured()]

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
    def test_nothing_is_known_of_another_problem(self, store: Store, values: dict[str, object]) -> None:
        store.add_trial(started(store), measured())
        assert store.known(SCALE, SCALE.problem(values), HERE) == []

    def test_nothing_is_known_of_another_op(self, store: Store) -> None:
        store.add_trial(started(store), measured())
        other = replace(SCALE, op="shift")
        assert store.known(other, other.problem({"M": 4096}), HERE) == []

    def test_what_was_tried_for_several_problems_at_once_is_known_and_told_apart(self, store: Store) -> None:
        store.add_trial(started(store), measured())
        joint = store.start_run(SCALE, PROBLEM, HERE, SETTINGS | {"joint": "worst"})
        store.add_trial(joint, measured(block=64))
        assert {m.config for m in store.known(SCALE, PROBLEM, HERE)} == {config(), config(64)}
        alone, together = store.earlier_searches(PROBLEM, HERE)
        assert (alone.is_joint, together.is_joint) == (False, True)
        assert [*alone.tried, *together.tried] == [config().text, config(64).text]
        assert alone.settings == SETTINGS
        assert store.earlier_searches(PROBLEM, replace(HERE, source="another")) == []

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
        store.add_answer(number, answer(latency_us=9.5), HERE, "trials", SECONDS, COMPARISON)
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

    def test_a_comparison_is_read_as_it_was_written(self, store: Store) -> None:
        states = (CardState(1755, 3201, 41, 590.5, ("power_cap",), ()), CardState(1740, None, 55, None, (), (4711,)))
        given = replace(COMPARISON, states=states)
        run = started(store)
        assert store.comparison(run) is None
        store.add_answer(run, answer(), HERE, "trials", SECONDS, given)
        assert store.comparison(run) == given
        assert store.comparison(run + 1) is None

    def test_a_comparison_whose_card_was_not_read_has_no_states(self, store: Store) -> None:
        run = started(store)
        store.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)
        assert store.comparison(run) == COMPARISON

    def test_the_answers_of_one_run_are_found(self, store: Store) -> None:
        _, second = answered(store), answered(store)
        by_id = {stored.id: stored.run_id for stored in store.answers()}
        assert [stored.id for stored in store.answers_of(by_id[second])] == [second]
        assert store.answers_of(max(by_id.values()) + 1) == []


class TestAnswers:
    def test_they_come_oldest_first(self, store: Store) -> None:
        ids = [answered(store, answer(latency_us=latency)) for latency in (12.0, 10.0, 11.0)]
        found = store.answers()
        assert [stored.id for stored in found] == ids == sorted(ids)
        assert [stored.answer.latency_us for stored in found] == [12.0, 10.0, 11.0]
        assert [stored.created_at for stored in found] == sorted(stored.created_at for stored in found)

    def test_ids_are_in_the_order_of_answering_not_of_starting(self, store: Store) -> None:
        early, late = started(store), started(store)
        first = store.add_answer(late, answer(), HERE, "trials", SECONDS, COMPARISON)
        second = store.add_answer(early, answer(), HERE, "trials", SECONDS, COMPARISON)
        assert [(stored.id, stored.run_id) for stored in store.answers()] == [(first, late), (second, early)]
        assert first < second

    def test_they_are_filtered_by_op_and_by_device(self, store: Store) -> None:
        shift = replace(SCALE, op="shift")
        answered(store)
        answered(store, provenance=replace(HERE, device=A100))
        run = store.start_run(shift, shift.problem({"M": 1}), HERE, SETTINGS)
        store.add_answer(run, answer(shift.problem({"M": 1})), HERE, "trials", SECONDS, COMPARISON)

        def found(**filters: Any) -> list[tuple[str, str]]:
            return [(s.answer.problem.op, s.provenance.device.id) for s in store.answers(**filters)]

        h200, a100 = H200.id, A100.id
        assert found() == [("scale", h200), ("scale", a100), ("shift", h200)]
        assert found(op="scale") == [("scale", h200), ("scale", a100)]
        assert found(device=h200) == [("scale", h200), ("shift", h200)]
        assert found(op="shift", device=h200) == [("shift", h200)]
        assert found(op="shift", device=a100) == []
        assert found(op="scal_") == []
        assert found(device="' OR 1=1 --") == []

    def test_a_card_answers_for_no_card_of_a_similar_name(self, store: Store) -> None:
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

    def test_the_key_that_is_written_is_the_key_that_is_read(self, store: Store, database: Database) -> None:
        for dtype in SCALE.dtypes:
            for layout in ("nn", "nt"):
                answered(store, answer(SCALE.problem({"M": 4096, "dtype": dtype, "layout": layout})))
        written = [text for (text,) in rows(database, "SELECT problem FROM answers ORDER BY id")]
        assert [stored.answer.problem.text for stored in store.answers()] == written
        assert len(set(written)) == 8

    def test_a_rollback_serves_in_place_of_a_newer_answer(self, store: Store) -> None:
        good = answered(store, replace(answer(), config=config(64)))
        bad = answered(store, replace(answer(), config=config(256)))
        restored = store.roll_back(good)
        assert [stored.id for stored in store.answers()] == [good, bad, restored]
        best = Table(H200.id, store.answers()).find(Query(PROBLEM)).stored
        assert best is not None
        assert (best.id, best.answer.kind, best.answer.config) == (restored, "rollback", config(64))

    def test_a_dtype_added_later_loses_no_answer(self, store: Store) -> None:
        """Same code, so same source; the kernel's author now allows more."""
        answered(store)
        wider = replace(SCALE, dtypes=(*SCALE.dtypes, "int8"))
        problem = wider.problem({"M": 4096, "dtype": "int8"})
        run = store.start_run(wider, problem, HERE, SETTINGS)
        store.add_answer(run, answer(problem), HERE, "trials", SECONDS, COMPARISON)
        assert [stored.answer.problem for stored in store.answers()] == [PROBLEM, problem]

    def test_a_knob_added_later_loses_no_answer(self, store: Store) -> None:
        answered(store)
        wider = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2), default=1)))
        run = store.start_run(wider, PROBLEM, HERE, SETTINGS)
        split = replace(answer(), config=wider.config({**config(), "SPLIT": 2}))
        store.add_answer(run, split, HERE, "trials", SECONDS, COMPARISON)
        assert [stored.answer.config.get("SPLIT") for stored in store.answers()][-1] == 2


class TestTransfers:
    def test_what_configs_lost_is_told_with_the_answer_on_whose_problem_it_was(self, store: Store) -> None:
        first, second = answered(store), answered(store, answer(SCALE.problem({"M": 2048})))
        run = started(store)
        third = store.add_answer(
            run, answer(), HERE, "trials", SECONDS, COMPARISON, [(second, 1.5, 1.0 + 1e-12), (first, 0.0, inf)]
        )
        losses = [(t.from_answer, t.to_answer, t.distance, t.slowdown) for t in store.transfers()["scale", H200.id]]
        assert losses == [(second, third, 1.5, 1.0 + 1e-12), (first, third, 0.0, inf)]
        (of_second,) = [stored.run_id for stored in store.answers() if stored.id == second]
        store.add_transfers(of_second, [(first, 1.5, 1.02)])
        store.add_transfers(of_second, [(first, 1.5, 1.5), (third, 1.5, 1.04)])  # what is there stays
        newest = store.transfers(op="scale", device=H200.id, after=2)["scale", H200.id]
        assert [(t.to_answer, t.slowdown) for t in newest] == [(second, 1.02), (second, 1.04)]
        assert [t.id for t in newest] == [store.tip().transfer - 1, store.tip().transfer]
        assert store.transfers(op="other") == store.transfers(device=A100.id) == store.transfers(after=4) == {}

    def test_those_of_another_card_and_of_a_run_without_an_answer_are_left_out(self, store: Store) -> None:
        elsewhere = answered(store, provenance=replace(HERE, device=A100))
        store.add_answer(started(store), answer(), HERE, "trials", SECONDS, COMPARISON, [(elsewhere, 0.0, 1.1)])
        store.add_transfers(started(store), [(elsewhere, 0.0, 1.1)])
        assert store.transfers() == {}


class TestSnapshot:
    def test_it_names_the_store_and_the_highest_answer(self, store: Store, database: Database) -> None:
        ((uuid,),) = rows(database, "SELECT uuid FROM store")
        assert store.snapshot == f"{uuid}:0"
        answered(store)
        number = answered(store)
        assert store.snapshot == f"{uuid}:{number}"

    def test_it_changes_with_every_answer_and_rollback_and_with_nothing_else(self, store: Store) -> None:
        empty = store.snapshot
        store.add_trial(started(store), measured())
        assert store.snapshot == empty
        first, second = answered(store), answered(store)
        assert store.snapshot == f"{empty.partition(':')[0]}:{second}"
        store.roll_back(first)
        assert store.snapshot == f"{empty.partition(':')[0]}:{second + 1}"

    def test_it_is_the_same_in_a_store_opened_anew(self, store: Store, database: Database) -> None:
        answered(store)
        again = Store.open(database)
        assert again.snapshot == store.snapshot
        again.close()

    def test_two_stores_have_two_names(self, nothing: Database, tmp_path: Path) -> None:
        Store.upgrade(nothing)
        names = set()
        for each in (nothing, tmp_path / "other.db"):
            store = Store.open(each)
            names.add(store.snapshot.partition(":")[0])
            store.close()
        assert len(names) == 2


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

    def test_cards_of_one_name_and_other_facts_are_two_devices(self, store: Store, database: Database) -> None:
        cut = replace(H200, sm_count=114)
        for device in (H200, cut, H200):
            started(store, provenance=replace(HERE, device=device))
        found = [Device(**facts) for facts in documents(database, "devices", "facts")]
        assert [device.sm_count for device in found] == [132, 114]


class TestRooflineLimits:
    LIMITS = RooflineLimits(4157.0, {"bf16": 770.5, "fp32": 50.1}, {"cold-events-1": 2.25, "cold-graph-1": 1.4})

    def test_they_belong_to_one_fingerprint(self, store: Store) -> None:
        assert store.roofline_limits(H200) is None
        store.keep_roofline_limits(H200, self.LIMITS)
        assert store.roofline_limits(H200) == self.LIMITS
        assert store.roofline_limits(replace(H200, sm_count=114)) is None

    def test_the_newest_stand(self, store: Store) -> None:
        store.keep_roofline_limits(H200, self.LIMITS)
        started(store)
        store.keep_roofline_limits(H200, replace(self.LIMITS, copy_gb_per_s=4200.0))
        found = store.roofline_limits(H200)
        assert found is not None
        assert found.copy_gb_per_s == 4200.0


def reopened(database: Database, **how: bool) -> Store:
    """Open and close a store, and return it."""
    store = Store.open(database, **how)
    store.close()
    return store


class TestMigrations:
    def test_they_make_the_tables_that_the_schema_states(self, database: Database) -> None:
        def compared(_: object, name: str | None, *others: object) -> bool:
            return name != "ix_jobs_pending" or isinstance(database, PostgreSQL)  # SQLite does not state its order

        with outside(database).connect() as connection:
            context = MigrationContext.configure(connection, opts={"include_object": compared})
            assert compare_metadata(context, schema.Base.metadata) == []

    def test_head_is_the_newest_migration(self) -> None:
        folder = Path(schema.__file__).parent / "migrations"
        assert ScriptDirectory(str(folder)).get_current_head() == HEAD

    def test_upgrading_tells_what_was_there(self, nothing: Database) -> None:
        assert Store.upgrade(nothing) is None
        assert Store.upgrade(nothing) == HEAD
        assert rows(nothing, "SELECT count(*) FROM store") == [(1,)]

    def test_opening_again_changes_nothing(self, store: Store, database: Database) -> None:
        answered(store)
        before = rows(database, "SELECT uuid, created_at FROM store")
        reopened(database)
        assert Store.upgrade(database) == HEAD
        assert rows(database, "SELECT uuid, created_at FROM store") == before
        assert rows(database, "SELECT version_num FROM alembic_version") == [(HEAD,)]

    def test_answers_of_the_first_schema_are_served_by_todays(self, store: Store, database: Database) -> None:
        """Answers of version 0.1 have no marks, and two numbers as evidence."""
        answered(store)
        older(database, "0001")
        change(database, """UPDATE answers SET evidence = '{"max_error": 0.25, "tolerance": 0.5}'""")
        with pytest.raises(StoreError) as refused:
            reopened(database, create=False)
        assert str(refused.value) == (
            f"the database {database} has schema 0001, and this version needs {HEAD}; tuner db upgrade brings it there"
        )
        assert Store.upgrade(database) == "0001"
        (stored,) = store.answers()
        assert stored.answer.marks == ()
        assert stored.answer.evidence == Evidence(0.25, 0.5)

    def test_jobs_of_the_second_schema_are_done_by_todays_workers(self, store: Store, database: Database) -> None:
        older(database, "0002")
        columns = "op, problem, device, priority, status, created_at"
        values = f"'scale', '{PROBLEM.text}', '{H200.id}', 7, 'pending', '2026-11-28T00:00:00.000+00:00'"
        change(database, f"INSERT INTO jobs ({columns}) VALUES ({values})".replace(":", "\\:"))
        assert Store.upgrade(database) == "0002"
        able = [JobFilter(H200.id, frozenset(["scale"]))]
        job = store.queue.claim("me", able, 60)
        assert job is not None
        assert (job.problem, job.priority, job.status, job.tries) == (PROBLEM.text, 7, "running", 1)
        with pytest.raises(IntegrityError):
            change(database, f"INSERT INTO jobs ({columns}) VALUES ({values})".replace(":", "\\:"))

    def test_a_newer_schema_is_only_read(
        self, store: Store, database: Database, caplog: pytest.LogCaptureFixture
    ) -> None:
        number = answered(store)
        change(database, "ALTER TABLE answers ADD COLUMN colour VARCHAR")
        change(database, "UPDATE alembic_version SET version_num = '9999'")
        refusal = (
            f"the database {database} has schema 9999, and this version knows up to {HEAD}; "
            "update the tuner to write it"
        )
        with pytest.raises(ReadOnly) as refused:
            reopened(database)
        assert str(refused.value) == refusal
        assert refused.value.exit_code == 5
        with pytest.raises(ReadOnly, match="update the tuner to write it"):
            Store.upgrade(database)
        reader = Store.open(database, create=False)
        assert [stored.id for stored in reader.answers()] == [number]
        with pytest.raises(ReadOnly) as refused:
            started(reader)
        assert str(refused.value) == refusal
        reader.close()
        assert caplog.messages == [f"{refusal}; until then it is only read"]
        assert rows(database, "SELECT version_num FROM alembic_version") == [("9999",)]
        assert rows(database, "SELECT count(*) FROM runs") == [(1,)]

    def test_a_newer_schema_without_a_column_that_is_read_is_refused(self, store: Store, database: Database) -> None:
        answered(store)
        change(database, "ALTER TABLE answers DROP COLUMN speedup")
        change(database, "DROP TABLE transfers")
        change(database, "UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(StoreError, match=f"has schema 9999.* up to {HEAD}.*no answers.speedup, transfers.id, "):
            reopened(database, create=False)

    def test_the_database_of_another_program_is_left_alone(self, nothing: Database) -> None:
        change(nothing, "CREATE TABLE moz_places (url TEXT)")
        for refuses in (Store.open, Store.upgrade, Store.info):
            with pytest.raises(StoreError) as refused:
                refuses(nothing)
            assert str(refused.value) == f"{nothing} is the database of another program; name another one with --db"
        with outside(nothing).connect() as connection:
            assert inspect(connection).get_table_names() == ["moz_places"]


class TestE03:
    def test_a_reader_in_a_transaction_does_not_block_a_writer(self, store: Store, database: Database) -> None:
        run = started(store)
        with outside(database).connect() as reader:
            if reader.dialect.name == "postgresql":
                reader.execute(text("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"))
            else:
                reader.exec_driver_sql("BEGIN")
            counted = text("SELECT count(*) FROM trials")
            assert reader.scalar(counted) == 0
            since = monotonic()
            for block in range(200):
                store.add_trial(run, measured(block=block))
            assert monotonic() - since < 10
            assert reader.scalar(counted) == 0
        assert len(store.known(SCALE, PROBLEM, HERE)) == 200

    def test_a_reader_sees_one_state_of_the_store(self, store: Store, database: Database) -> None:
        """Between the two questions that a snapshot asks, another writes."""
        answered(store)
        with store._read() as connection:
            newest = select(func.max(schema.AnswerRow.id))
            before = connection.scalar(newest)
            answered(store)
            assert connection.scalar(newest) == before
        assert store.snapshot.endswith(":2")

    def test_threads_share_a_store(self, store: Store) -> None:
        run = started(store)
        with ThreadPoolExecutor(8) as threads:
            list(threads.map(lambda block: store.add_trial(run, measured(block=block)), range(80)))
        assert {m.config["BLOCK"] for m in store.known(SCALE, PROBLEM, HERE)} == set(range(80))


def test_ids_are_handed_out_in_the_order_in_which_they_are_seen(store: Store, database: Database) -> None:
    """A reader that has read up to an id never finds a smaller one later."""
    runs = [started(store) for _ in range(60)]
    others = [Store.open(database) for _ in range(6)]
    seen: list[list[int]] = []

    def answer_ten(number: int) -> None:
        """Write ten answers, and let the reader look between them; without it, each goes on after a second."""
        for place, run in enumerate(runs[number * 10 : number * 10 + 10]):
            until = monotonic() + 1
            while len(seen) < place // 2 and monotonic() < until:
                sleep(0.001)
            others[number].add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)

    with ThreadPoolExecutor(6) as threads:
        writing = [threads.submit(answer_ten, number) for number in range(6)]
        while not all(done.done() for done in writing):
            seen.append([id for (id,) in rows(database, "SELECT id FROM answers ORDER BY id")])
        for done in writing:
            done.result()
    for other in others:
        other.close()
    assert len(seen) > 3
    for earlier, later in pairwise(seen):
        assert later[: len(earlier)] == earlier
    assert len(store.answers()) == 60


class TestB06Values:
    """What JSON and text may hold, written as the database allows."""

    def test_json_comes_back_as_it_was(self, store: Store) -> None:
        values = [
            True, False, None, 0, 1, 1.0, -0.0, 0.1 + 0.2, 5e-324, 1.7976931348623157e308, 2**63, -(2**70), 10**40,
            inf, -inf, [inf, 1, -inf], "", "NaN", "Infinity", '"Infinity" -Infinity \\"NaN', NASTY, "\x1a0\x1a\x001",
            {"b": 1, "a": [True, 1, 1.0, None]}, {"Infinity": inf, NASTY: NASTY},
        ]  # fmt: skip
        for value in values:
            found = run_of(store, store.start_run(SCALE, PROBLEM, HERE, {"known": 0, "value": value})).settings
            assert repr(found) == repr({"known": 0, "value": value})  # 1, 1.0 and True differ, and so do -0.0 and 0.0

    def test_not_a_number_is_null(self, store: Store, database: Database) -> None:
        number = store.start_run(SCALE, PROBLEM, HERE, {"value": [nan, "NaN"]})
        store.add_trial(number, replace(FULL, max_error=nan))
        assert run_of(store, number).settings["value"] == [None, "NaN"]
        assert rows(database, "SELECT max_error FROM trials") == [(None,)]

    def test_text_comes_back_as_it_was_and_is_found_by_it(self, store: Store) -> None:
        texts = [NASTY, "\x00", "\x1a", "\x1a0", "\x1a1", "\x1a\x00", "\x1a10", "%s", "\\x00", "1' OR '1'='1"]
        for given in texts:
            answered(store, provenance=replace(HERE, tuner=given, source=given))
        assert [stored.provenance.tuner for stored in store.answers()] == texts
        for given in texts:
            here = replace(HERE, source=given)
            store.add_trial(started(store, provenance=here), measured())
            assert store.known(SCALE, PROBLEM, here) == [measured()]

    @pytest.mark.parametrize("error", [inf, 0.0, 5e-324, None])
    def test_numbers_of_columns_come_back_as_they_were(self, store: Store, error: float | None) -> None:
        given = replace(FULL, max_error=error, tolerance=error, shared_bytes=2**31 - 1)
        store.add_trial(started(store), given)
        assert store.known(SCALE, PROBLEM, HERE) == [given]
        error = None if error == inf else error  # no answer rests on a check that failed
        stated = replace(answer(), flops=2**63 - 1, bytes=2**63 - 1, evidence=Evidence(error, error))
        answered(store, stated)
        (stored,) = store.answers()
        assert stored.answer == stated


def test_there_is_no_run_of_a_number_that_no_run_can_have(store: Store) -> None:
    assert [store.run(number) for number in (0, -1, 2**31, 2**63, 2**100)] == [None] * 5
