"""Files of earlier versions still open and answer: databases of schemas 0003 and 0004, and bundles of their answers."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import postgres
import pytest
from found import finding
from served import serving
from sqlalchemy import JSON, Boolean, MetaData, insert, text
from stored import PROBLEM, address, answered, documents, older, outside, rows

from tuner.api.app import create_app
from tuner.db import revisions
from tuner.db.database import Database
from tuner.db.revisions import HEAD
from tuner.db.store import Store, database_at
from tuner.errors import StoreError
from tuner.lookup import bundle
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import COLD, RooflineLimits, StoredAnswer
from tuner.records.document import answer_document

OLD = Path(__file__).parents[1] / "old"
H200 = "nvidia-h200"
RENAMED = {"hope": "min_improvement_probability", "duel": "comparison"}


def write_old(file: Path, revision: str = "0003") -> Path:
    file.write_bytes(gzip.decompress((OLD / f"schema-{revision}.sqlite.gz").read_bytes()))
    return file


def old_rows(table: str, revision: str = "0003") -> list[dict[str, Any]]:
    """Return the rows of the old database, oldest first, read by sqlite3 alone."""
    file = "old.db"
    with TemporaryDirectory() as at, closing(sqlite3.connect(write_old(Path(at, file), revision))) as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute(f"SELECT * FROM {table} ORDER BY 1")]


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    """Return the old database: as a file, and loaded into PostgreSQL at the same schema."""
    return database_of("0003", request, tmp_path)


def database_of(revision: str, request: pytest.FixtureRequest, tmp_path: Path) -> Database:
    if request.param == "sqlite":
        return database_at(write_old(tmp_path / "tuner.db", revision))
    cluster: postgres.Cluster = request.getfixturevalue("cluster")
    database = database_at(cluster.empty())
    load(database, revision)
    return database


def load(database: Database, revision: str = "0003") -> None:
    """Write the old rows into the tables of their schema."""
    with outside(database).begin() as connection:
        revisions.upgrade(connection, revision)
        metadata = MetaData()
        metadata.reflect(connection)
        for table in metadata.sorted_tables:
            if table.name == "alembic_version":
                continue
            documents = {column.name for column in table.columns if isinstance(column.type, JSON)}
            booleans = {column.name for column in table.columns if isinstance(column.type, Boolean)}
            for row in old_rows(table.name, revision):
                read = {name: json.loads(row[name]) for name in documents if row[name] is not None}
                connection.execute(insert(table).values(row | read | {name: bool(row[name]) for name in booleans}))
            if "id" in table.columns:
                next_id = f"(SELECT coalesce(max(id), 0) + 1 FROM {table.name})"
                connection.execute(text(f"SELECT setval('{table.name}_id_seq', {next_id}, false)"))


@pytest.fixture
def store(old: Database) -> Iterator[Store]:
    """Yield the old database, upgraded to today's schema."""
    yield from upgraded(old)


def upgraded(old: Database) -> Iterator[Store]:
    if not old.migrates_on_open:
        Store.upgrade(old)
    with closing(Store.open(old)) as store:
        yield store


@pytest.fixture(params=["sqlite", "postgresql"])
def without_definitions(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """Yield a database of schema 0004, upgraded: an answer of a replay, a measured and an imported one."""
    yield from upgraded(database_of("0004", request, tmp_path))


def test_answers_are_as_they_were(store: Store) -> None:
    answers, before = store.answers(), old_rows("answers")
    assert [stored.id for stored in answers] == [1, 2, 3]
    for stored, row in zip(answers, before, strict=True):
        answer = stored.answer
        assert (answer.problem.text, answer.kind) == (row["problem"], row["kind"])
        assert dict(answer.config) == json.loads(row["config"])
        assert (answer.latency_us, answer.speedup) == (row["latency_us"], row["speedup"])
        assert (answer.default_latency_us, answer.vendor_latency_us) == (
            row["default_latency_us"],
            row["vendor_latency_us"],
        )
        assert [answer.interval_us, answer.speedup_interval] == [
            tuple(json.loads(row[name])) for name in ("interval_us", "speedup_interval")
        ]
        assert [(dict(tie.config), tie.slowdown, list(tie.interval)) for tie in answer.ties] == [
            (tie["config"], tie["slowdown"], tie["interval"]) for tie in json.loads(row["ties"])
        ]
        assert (answer.unresolved, answer.flops, answer.bytes) == (row["unresolved"], row["flops"], row["bytes"])
        evidence = json.loads(row["evidence"])
        assert (answer.evidence.max_error, answer.evidence.launches) == (evidence["max_error"], evidence["launches"])
        assert stored.provenance.device.id == row["device"] == H200
        assert (stored.provenance.source, stored.created_at) == (row["source"], row["created_at"])


def test_they_serve(store: Store) -> None:
    for stored in store.answers():
        table = Table(H200, store.answers(op=stored.answer.problem.op))
        provenance = stored.provenance
        query = Query(stored.answer.problem, provenance.environment.triton, provenance.source, policy=COLD.text)
        found = table.find(query)
        assert found.stored == stored
        assert found.stale == (f"recorded: replayed from {provenance.recorded}, not measured here",)


def test_the_service_answers_from_it(store: Store) -> None:
    with serving(create_app(store)) as client:
        for stored in store.answers():
            problem = stored.answer.problem
            found = client.get("/best-config", params={"op": problem.op, **problem.values}).json()
            assert found["config"] == dict(stored.answer.config)
            assert found["latency_us"] == round(stored.answer.latency_us or 0.0, 4)
            run = client.get(f"/runs/{stored.run_id}").json()
            assert {"min_improvement_probability", "trials"} <= run["settings"].keys()


def test_runs_are_as_they_were_but_for_two_names(store: Store) -> None:
    runs = {run.id: run for run in store.runs(10)}
    for row in old_rows("runs"):
        run = runs[row["id"]]
        settings, seconds = json.loads(row["settings"]), json.loads(row["seconds"])
        assert "hope" in settings
        assert "duel" in seconds
        assert run.settings == {RENAMED.get(name, name): value for name, value in settings.items()}
        assert run.seconds == {RENAMED.get(name, name): value for name, value in seconds.items()}
        assert (run.status, run.stopped, run.started_at) == (row["status"], row["stopped"], row["started_at"])
        assert (run.provenance.recorded, run.provenance.policy) == (row["recorded"], row["policy"])


def test_trials_rounds_and_limits_are_as_they_were(store: Store) -> None:
    trials, rounds = old_rows("trials"), old_rows("rounds")
    for run in store.runs(10):
        measured, comparison = store.known_to(run), store.comparison(run.id)
        own = [row for row in trials if row["run_id"] == run.id]
        assert [(m.config.text, str(m.outcome), list(m.samples)) for m in measured] == [
            (row["config_text"], row["outcome"], json.loads(row["samples"])) for row in own
        ]
        assert comparison is not None
        assert [dict(zip(comparison.contenders, latencies, strict=True)) for latencies in comparison.rounds] == [
            json.loads(row["latencies"]) for row in rounds if row["run_id"] == run.id
        ]
    assert len(trials) == 140
    (card,) = store.cards()
    (device,) = old_rows("devices")
    assert store.roofline_limits(card) == RooflineLimits(**json.loads(device["ceilings"]))


def test_it_is_written_on(store: Store) -> None:
    run, *_ = store.runs(1)
    again = store.start_run(run.signature, run.problem, run.provenance, {"min_improvement_probability": 0.1})
    for measurement in store.known_to(run):
        store.add_trial(again, measurement)
    (last,) = store.answers_of(run.id)
    comparison = store.comparison(run.id)
    assert comparison is not None
    assert store.add_answer(again, last.answer, last.provenance, "trials", {"comparison": 1.0}, comparison) == 4
    assert store.answers_of(again)[0].answer == last.answer


def test_what_a_run_may_hold_besides_is_migrated_too(old: Database) -> None:
    with outside(old).begin() as connection:
        connection.execute(text("UPDATE trials SET outcome = 'crashed', stage = 'duel' WHERE id = 7"))
        connection.execute(text("UPDATE runs SET seconds = NULL, ended_at = NULL WHERE id = 3"))
        settings = {"settings": '{"value": 1e999, "hope": 0.1}'}
        connection.execute(text("UPDATE runs SET settings = :settings WHERE id = 1"), settings)
        connection.execute(text("UPDATE runs SET settings = :settings WHERE id = 2"), {"settings": '["hope", {}]'})
    Store.upgrade(old)
    assert rows(old, "SELECT id FROM trials WHERE stage = 'comparison'") == [(7,)]
    assert rows(old, "SELECT id FROM trials WHERE stage = 'duel'") == []
    assert rows(old, "SELECT id FROM runs WHERE seconds IS NULL") == [(3,)]
    settings_after = documents(old, "runs", "settings")
    assert settings_after[0] == {"value": float("inf"), "min_improvement_probability": 0.1}
    assert settings_after[1] == ["hope", {}]


def test_only_the_upgrade_command_changes_postgresql(cluster: postgres.Cluster) -> None:
    old = database_at(cluster.empty())
    load(old)
    with pytest.raises(StoreError, match=f"has schema 0003, and this version needs {HEAD}; tuner db upgrade brings it"):
        Store.open(old)
    environment = os.environ | {"TUNER_DB": address(old)}
    upgrade = [sys.executable, "-P", "-m", "tuner", "db", "upgrade"]
    done = subprocess.run(upgrade, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(old))
    assert HEAD in done.stdout
    with closing(Store.open(old, create=False)) as store:
        assert len(store.answers()) == 3


def test_a_snapshot_holds_the_answers_of_its_store(store: Store) -> None:
    held = bundle.read(OLD / "bundle-1.json")
    assert held.skipped == ()
    assert held.snapshot == store.snapshot
    assert held.signatures == store.signatures()

    def in_full(answers: list[StoredAnswer]) -> list[dict[str, Any]]:
        return [answer_document(stored) | {"id": stored.id, "problem": stored.answer.problem} for stored in answers]

    assert in_full(list(held.answers)) == in_full(store.answers())
    for stored in held.answers:
        found = Table(H200, held.answers).find(Query(stored.answer.problem))
        assert found.stored is not None
        assert found.stored == stored


def test_it_is_exported_again_as_it_was_but_for_two_names(store: Store, tmp_path: Path) -> None:
    before = bundle.read(OLD / "bundle-1.json")
    after = bundle.write(tmp_path / "a.json.gz", store.snapshot, list(store.signatures().values()), store.answers())
    assert [stored.answer for stored in after.answers] == [stored.answer for stored in before.answers]
    for old, new in zip(before.answers, after.answers, strict=True):
        assert new.settings == {RENAMED.get(name, name): value for name, value in old.settings.items()}


class TestSchema0004:
    """Rows without a definition hash are not compared on it."""

    def test_a_measured_answer_is_exact_for_each_definition(self, without_definitions: Store) -> None:
        answers = without_definitions.answers()
        assert [(stored.answer.kind, stored.provenance.definition) for stored in answers] == [
            ("tuned", ""),
            ("tuned", ""),
            ("imported", ""),
        ]
        before = old_rows("answers", "0004")
        assert [dict(stored.answer.config) for stored in answers] == [json.loads(row["config"]) for row in before]
        assert [stored.answer.latency_us for stored in answers] == [row["latency_us"] for row in before]
        here = answers[1].provenance
        for definition in ("0123456789abcdef", "fedcba9876543210", None):
            query = Query.for_environment(
                answers[1].answer.problem, here.environment, here.source, definition=definition, policy=here.policy
            )
            found = Table(here.device.id, answers).find(query)
            assert (found.match, found.stored) == ("exact", answers[1])

    def test_its_trials_are_known_to_each_definition(self, without_definitions: Store) -> None:
        store = without_definitions
        run = store.run(2)
        assert run is not None
        here = replace(run.provenance, definition="0123456789abcdef")
        known = store.known(run.signature, run.problem, here)
        outcomes = Counter(row["outcome"] for row in old_rows("trials", "0004") if row["run_id"] == run.id)
        assert Counter(str(measurement.outcome) for measurement in known) == outcomes
        assert outcomes["wrong_result"] == outcomes["compile_error"] == 1
        (search,) = store.earlier_searches(run.problem, here)
        assert search.settings == run.settings
        assert len(search.tried) == 25

    def test_a_search_of_today_stands_beside_it(self, without_definitions: Store) -> None:
        store = without_definitions
        old = store.answers()[1]
        run = store.run(old.run_id)
        comparison = store.comparison(old.run_id)
        assert run is not None
        assert comparison is not None
        made = replace(old.provenance, definition="0123456789abcdef")
        again = store.start_run(run.signature, run.problem, made, {})
        new = store.add_answer(again, old.answer, made, "trials", {}, comparison)
        query = Query(run.problem, definition="fedcba9876543210")
        assert Table(made.device.id, store.answers()).find(query).stored == old
        found = Table(made.device.id, store.answers()).find(replace(query, definition=made.definition)).stored
        assert found is not None
        assert (found.id, found.provenance.definition) == (new, made.definition)

    def test_its_snapshot_is_read(self, without_definitions: Store) -> None:
        held = bundle.read(OLD / "bundle-1-of-schema-0004.json")
        assert (held.skipped, held.snapshot) == ((), without_definitions.snapshot)
        assert list(held.answers) == without_definitions.answers()


def test_a_store_of_schema_0007_is_retuned_pinned_and_rolled_back(database: Database) -> None:
    with closing(Store.open(database)) as store:
        first, second = answered(store), answered(store)
        before = store.answers()
    older(database, "0007")
    assert Store.upgrade(database) == "0007"
    with closing(Store.open(database)) as store:
        assert store.answers() == before
        retune = store.retunes.start(H200, {"all": True}, [second], {})
        assert store.retunes.add(retune, finding(second))
        assert store.retunes.of_problem(PROBLEM.text, H200) == [(retune, finding(second))]
        assert store.roll_back(first) == second + 1
        assert store.pins.add(second + 1).answer_id == second + 1
