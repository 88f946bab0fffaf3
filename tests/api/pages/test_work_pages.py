"""Pages about work: facts of runs, the fleet and retunes as values, and the pages over a store."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from shutil import copyfile
from typing import Any

import faults
import pytest
from databases import sqlite_store
from helpers import H200
from retuned import stored_retune
from served import answer as gemm_answer
from served import problem
from starlette.testclient import TestClient
from stored import HERE, PROBLEM, SCALE, answered, config, measured

from tuner.api.app import create_app
from tuner.api.pages import run_facts
from tuner.api.pages.fleet import Throughput, bars, throughput, workers
from tuner.api.pages.links import FileLinks
from tuner.api.pages.render import render
from tuner.api.pages.retunes import state_of as retune_state
from tuner.api.pages.routes import content_of
from tuner.api.pages.run import contenders, speed_note
from tuner.api.pages.run_facts import bests, failures, limits_of, outcomes, points, state_of, work_text
from tuner.api.pages.site import Kept, Site, Visitor
from tuner.api.view import Watcher
from tuner.db.overview import UnfinishedRun
from tuner.db.queue import JobFilter
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.db.store import Store
from tuner.db.work import HeldJob, Hour
from tuner.records import VENDOR, Comparison, Measurement, Outcome, StoredRun, vendor_contender
from tuner.records.progress import COMPARING, MEASURING, WAITING, LiveRun, RunState, TrialOutline

NOW = datetime(2026, 11, 29, 18, 30, tzinfo=UTC)
NASTY = "<script>alert(1)</script>\x1b[31m red\x1b[0m\r\n\u202eesrever\n" + "x" * 20_000


def ago(seconds: float) -> str:
    return (NOW - timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def run(**changes: Any) -> StoredRun:
    made = StoredRun(7, SCALE, PROBLEM, HERE, {"trials": 10, "space": 100}, "running", None, {}, ago(100), None, 3)
    return replace(made, **changes)


def live(state: RunState = RunState(MEASURING, 5, 2, config().text), age_s: float = 1.0) -> LiveRun:  # noqa: B008
    return LiveRun(7, state, "node-1:42", ago(age_s), age_s)


def trial(latency_us: float | None, at: float, block: int = 64, outcome: str = "ok", error: str = "") -> TrialOutline:
    return TrialOutline(config(block).text, outcome, "time", error, latency_us, ago(at))


class TestRunFacts:
    def test_a_run_is_alive_as_long_as_it_says_so(self) -> None:
        assert state_of(run(), live(), "", NOW).is_running
        killed = state_of(run(), live(age_s=STORE_SETTINGS.silent_s + 1), ago(1), NOW)
        assert (killed.text, killed.kind, killed.is_running) == ("no sign of life", "bad", False)

    def test_a_run_without_a_sign_of_life_is_judged_by_its_trials(self) -> None:
        limit = STORE_SETTINGS.abandoned_min * 60
        assert state_of(run(started_at=ago(9 * limit)), None, ago(limit - 1), NOW).is_running
        assert not state_of(run(started_at=ago(9 * limit)), None, ago(limit + 1), NOW).is_running
        assert not state_of(run(started_at="yesterday"), None, "", NOW).is_running

    @pytest.mark.parametrize(
        ("status", "stopped", "kind", "about"),
        [
            ("done", "converged", "good", "No untried config was likely to be faster by more than 1 %."),
            ("failed", "error", "bad", "An error ended it; the log of its process has the text."),
            ("interrupted", "interrupted", "warn", "It was stopped by hand; its trials are kept."),
            ("done", "<b>", "good", "stopped by <b>"),
            ("else", None, "plain", ""),
        ],
    )
    def test_a_run_that_ended(self, status: str, stopped: str | None, kind: str, about: str) -> None:
        found = state_of(run(status=status, stopped=stopped), None, "", NOW)
        assert (found.kind, found.about, found.is_running) == (kind, about, False)

    def test_limits_are_those_of_the_effort_and_the_space(self) -> None:
        assert limits_of({"trials": 50, "space": 300, "known": 7, "known_jointly": 4, "budget_s": 60}).planned == 54
        assert limits_of({"trials": None, "space": 300}).planned == 300
        assert limits_of({"trials": 500, "space": 300}).planned == 300
        for budget in (float("inf"), float("nan"), 10**400, -1.0):
            assert limits_of({"budget_s": budget}).budget_s is None
        hostile = limits_of({"trials": "<b>", "space": True, "known": -1, "budget_s": "x"})
        assert (hostile.planned, hostile.space, hostile.known, hostile.budget_s) == (None, None, 0, None)

    def test_what_it_does_now(self) -> None:
        assert work_text(live()) == "It measures: 5 configs compiling, 2 compiled and waiting for the card."
        assert work_text(live(RunState(MEASURING))) == "It measures."
        waiting = work_text(live(RunState(WAITING, 1, 0, None)))
        assert waiting == "It waits for the card, which another search uses: 1 config compiling, 0 compiled."
        comparing = work_text(live(RunState(COMPARING, rounds=12, contenders=3)))
        assert comparing == "It compares the finalists: 12 rounds so far, 3 configs left."

    def test_improvements_outcomes_and_points(self) -> None:
        trials = [trial(9.0, 90), trial(None, 80, 128, "crashed"), trial(8.0, 70, 256), trial(8.5, 60, 512)]
        found = bests(trials, ago(100))
        assert [(each.number, each.after_s, each.latency_us) for each in found] == [(1, 10.0, 9.0), (3, 30.0, 8.0)]
        assert outcomes(trials) == [("ok", 3), ("crashed", 1)]
        made, label = points(trials, ago(100))
        assert ([point.x for point in made], label) == ([10.0, 20.0, 30.0, 40.0], "seconds")
        assert points([trial(9.0, 99.5)], ago(100))[1] == "trial"
        assert speed_note(8.0, 10.0, is_live=True) == "1.250\u00d7 the default's speed"
        assert speed_note(10.0, 10.0, is_live=True) == "no config is faster than the default yet"
        assert speed_note(10.0, 10.0, is_live=False) == "no config was faster than the default"

    def test_failures_are_grouped_and_their_texts_plain(self) -> None:
        crashed = [trial(None, 5 - place, 64 << place, "crashed", f"boom\nat {place}") for place in range(3)]
        found = failures([*crashed, trial(None, 1, 64, "error", NASTY), trial(1.0, 1)])
        assert (found[0].outcome, found[0].count, found[0].line) == ("crashed", 3, "boom")
        assert found[0].text == "boom\nat 2"
        assert found[0].config == config(256).text
        nasty = found[1]
        assert nasty.line == "<script>alert(1)</script> red"
        assert "\x1b" not in nasty.text
        assert "\u202e" not in nasty.text
        assert len(nasty.text) <= run_facts.LONGEST_ERROR
        assert re.fullmatch("failure-[0-9a-f]{10}", nasty.id)
        assert failures([trial(None, 1, 64, "error", "one line")])[0].text == ""

    def test_contenders_by_their_median(self) -> None:
        rounds = Comparison(("a", "vendor"), ((10.0, 12.0), (11.0, 11.0), (10.0, 12.0)))
        found = contenders(rounds, run(settings={VENDOR: "cuBLAS"}))
        assert [(each.name, each.latency_us, each.ratio) for each in found] == [("a", 10.0, 1.0), ("cuBLAS", 12.0, 1.2)]
        assert [each.name for each in contenders(rounds, run())] == ["a", "torch"]
        several = replace(rounds, contenders=("a", vendor_contender("liger")))
        assert [each.name for each in contenders(several, run())] == ["a", "liger"]
        assert contenders(None, run()) == []


class TestFleetFacts:
    def test_workers_with_their_runs_and_those_that_are_idle(self, store: Store) -> None:
        queue, any_of = store.queue, [JobFilter(H200.id, frozenset(["scale"]))]
        for M in (64, 128, 256):
            queue.add(SCALE.problem({"M": M}), H200.id)
        first, second, third = (queue.claim(name, any_of, 60) for name in ("b", "a", "idle"))
        assert first is not None
        assert second is not None
        assert third is not None
        about = run(problem=SCALE.problem({"M": 64}), started_at="9999", settings={"trials": 10, "known": 2})
        found = workers(
            [HeldJob(second, -5.0), HeldJob(first, 30.0)],
            {"idle": third, "a": second},
            {(first.problem, H200.id): UnfinishedRun(about, None, live())},
        )
        assert [(each.name, each.run, each.is_lost, each.is_idle) for each in found] == [
            ("a", None, True, False),
            ("b", 7, False, False),
            ("idle", None, False, True),
        ]
        assert (found[1].measured, found[1].planned, found[1].stage) == (5, 10, "measures")

    def test_hours_without_anything_are_there(self) -> None:
        found = throughput([Hour("2026-11-29T18", 3, 1, 100), Hour("2026-11-29T16", 1)], NOW, 4)
        assert [hour.at[11:] for hour in found.hours] == ["15", "16", "17", "18"]
        assert (found.day.done, found.day.failed, found.day.configs) == (4, 1, 100)
        assert found.last.done == 3
        heights = [height for _, height in bars((hour, hour.done) for hour in found.hours)]
        assert heights == [0.0, 8.0, 0.0, 24.0]
        assert Throughput([Hour("2026-11-29T18")]).day.done == 0

    def test_a_killed_retune(self) -> None:
        limit = STORE_SETTINGS.abandoned_min * 60
        assert retune_state("running", ago(9 * limit), ago(10), NOW).is_running
        assert retune_state("running", ago(9 * limit), ago(limit + 1), NOW).text == "no sign of life"
        assert retune_state("done", ago(9), "", NOW).kind == "good"


store = sqlite_store


@pytest.fixture
def client(store: Store) -> TestClient:
    return TestClient(create_app(store))


def shown(client: TestClient, path: str, status: int = 200) -> str:
    """Return the text of the main part of a page."""
    got = client.get(path)
    assert got.status_code == status, got.text[-2000:]
    main = got.text[got.text.index("<main") : got.text.index("</main>")]
    assert "<script" not in main
    return " ".join(unescape(re.sub("<[^>]*>", " ", main)).split())


class TestPages:
    def test_an_empty_store(self, client: TestClient) -> None:
        assert "No search is stored yet" in shown(client, "/pages/runs")
        assert "No worker has a job" in shown(client, "/pages/fleet")
        assert "No retune is stored yet" in shown(client, "/pages/retunes")
        for path in ("run?id=1", "job?id=1", "retune?id=1", "run?id=9999999999"):
            assert "there is no" in shown(client, f"/pages/{path}", 404)
        for path in ("run", "run?id=x", "job?id=-1", "retune?id=1&cause=x", "runs?before=1", "fleet?after=a"):
            shown(client, f"/pages/{path}", 422)

    def test_a_run(self, store: Store, client: TestClient) -> None:
        number = store.start_run(
            SCALE, PROBLEM, HERE, {"trials": 4, "space": 9, "budget_s": 60, "default": config(64).text}
        )
        store.add_trial(number, measured(10.0, 64))
        store.add_trial(number, measured(8.0, 128))
        store.add_trial(number, Measurement(config(256), Outcome.CRASHED, stage="time", error=NASTY))
        text = shown(client, f"/pages/run?id={number}")
        assert "3 of 4" in text
        assert "9 are feasible" in text
        assert "8.00 us 1.250\u00d7 the default's speed" in text
        assert "<script>alert(1)</script> red" in text
        assert "left of 1 min 0 s" in text
        assert "running" in shown(client, "/pages/runs")
        store.end_run(number, "interrupted", "interrupted", {})
        assert "It was stopped by hand" in shown(client, f"/pages/run?id={number}")

    def test_runs_by_the_page(self, store: Store, client: TestClient) -> None:
        for M in range(1, 104):
            store.end_run(store.start_run(SCALE, SCALE.problem({"M": M}), HERE, {}), "done", "trials", {})
        first = client.get("/pages/runs").text
        assert "runs?after=4" in first
        assert "data-stream" in first
        second = client.get("/pages/runs?after=4").text
        assert "data-stream" not in second
        assert second.count("<tr id=") == 3

    def test_an_answer_of_a_run(self, store: Store, client: TestClient) -> None:
        gemm_answer(store, problem(M=64))
        text = shown(client, "/pages/run?id=1")
        assert "Answer 1 : tuned, 10.00 us, 1.200\u00d7 the default's speed" in text
        assert "Median of 1 round." in text

    def test_a_fleet_and_its_jobs(self, store: Store, client: TestClient) -> None:
        only = [JobFilter(H200.id, frozenset(["gemm"]))]
        store.queue.add(problem(M=1), H200.id)
        for _ in range(STORE_SETTINGS.job_tries):
            job = store.queue.claim("node-1", only, 60)
            assert job is not None
            store.queue.failed(job, NASTY)
        store.queue.add(problem(M=2), H200.id, 5)
        store.queue.claim("node-2", only, 60)
        store.queue.add(problem(M=3), H200.id, 5)
        text = shown(client, "/pages/fleet")
        for expected in ("node-2 busy", "node-1 idle", "prepares the search", "<script>alert(1)</script> red"):
            assert expected in text
        assert "not tried again" in text
        failed = shown(client, "/pages/job?id=1")
        assert "It failed 3 times" in failed
        assert "Try again" not in failed
        assert "A worker has it: try 1 of 3." in shown(client, "/pages/job?id=2")
        assert "It waits for a worker" in shown(client, "/pages/job?id=3")
        store.queue.retry(1)
        assert "job 4 pending" in shown(client, "/pages/fleet")

    def test_a_retune(self, store: Store, client: TestClient) -> None:
        for place in range(1, 10):
            answered(store, replace_problem(place))
        number = stored_retune(store)
        text = shown(client, f"/pages/retune?id={number}")
        assert "Measured again 5 of 9 planned" in text
        assert "slower: kernel or compiler" in text
        assert "0.991 x torch" in text
        assert "wrong_result: 3 of 4 rows" in text
        assert "Its latencies over time" in text
        only = shown(client, f"/pages/retune?id={number}&cause=broken")
        assert "wrong_result" in only
        assert "0.991 x torch" not in only
        assert "1 broken" in shown(client, "/pages/retunes")


FAULTS = (
    ("runs", "started_at", "'no such thing'"),
    ("runs", "ended_at", "X'00ff'"),
    ("trials", "ended_at", "X'00ff'"),
    ("jobs", "ended_at", "X'00ff'"),
    ("findings", "created_at", "NULL"),
    ("retunes", "ended_at", "'no such thing'"),
    ("run_states", "state", "'[]'"),
)


def test_a_row_that_cannot_be_read_costs_no_page(tmp_path: Path) -> None:
    whole, hurt = tmp_path / "whole.db", tmp_path / "hurt.db"
    faults.make(whole)
    for table, column, fault in FAULTS:
        copyfile(whole, hurt)
        faults.hurt(hurt, table, column, fault)
        store = Store.open(hurt)
        client = TestClient(create_app(store), raise_server_exceptions=False)
        for name in ("runs", "run?id=1", "run?id=2", "fleet", "job?id=1", "retunes", "retune?id=1", "retune?id=2"):
            assert client.get(f"/pages/{name}").status_code in (200, 404), (table, column, name)
        store.close()


@pytest.mark.parametrize("linked", [True, False])
def test_they_can_be_files_of_a_report(store: Store, linked: bool) -> None:
    for place in range(1, 10):
        answered(store, replace_problem(place))
    stored_retune(store)
    store.queue.add(PROBLEM, H200.id)
    watcher = Watcher(store, {}, print)
    watcher.poll()
    site = Site(store, watcher.view, Kept())
    links = FileLinks(lambda address: linked)
    for name in ("runs", "run", "fleet", "job", "retunes", "retune"):
        query = b"id=1" if name in ("run", "job", "retune") else b""
        content = content_of(name, query, lambda: site, links)
        assert content.status == 200
        text = render(content, links, Visitor(), name)
        assert "data-stream" not in text
        assert "<form" not in text
        assert 'href=""' not in text[text.index("<main") :]


def replace_problem(place: int) -> Any:
    from stored import answer

    return answer(SCALE.problem({"M": 128 * place, "N": 4352}))
