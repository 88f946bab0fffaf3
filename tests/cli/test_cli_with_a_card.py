"""Search, explain and verify as with a GPU: a scripted driver, real processes, the kernel on torch's CPU."""

from __future__ import annotations

import json
import os
import runpy
import sqlite3
import subprocess
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
from click.testing import CliRunner, Result
from helpers import H200, toy
from machines import PROBLEM, SLOW, Busy, Machine

from tuner import catalog
from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.measure.card import NoMonitor
from tuner.measure.lock import GpuLock
from tuner.measure.processes import Child
from tuner.records import RooflineLimits
from tuner.search.space import ListedSpace
from tuner.tuning import Events, tune


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def started_helpers(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the machine's processes as users' are, as children of this one."""
    monkeypatch.setattr("tuner.measure.processes.subprocess", subprocess)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The database of one search."""
    with pytest.MonkeyPatch.context() as patch:
        machine = Machine(tmp_path_factory.mktemp("found"), patch)
        done = machine("search", "--trials", "12", "--seed", "3")
        assert done.return_value == 0, (done.stderr, done.exception)
        assert " by the pool, 0 in the GPU worker." in done.stderr
        assert machine.surveys == 1
    return machine.db


@pytest.fixture
def searched(machine: Machine, found: Path) -> Machine:
    with closing(sqlite3.connect(found)) as source, closing(sqlite3.connect(machine.db)) as target:
        source.backup(target)
    return machine


def test_what_got_ready_early_is_gone_where_nothing_can_be_searched(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.tuning.target.FeasibleSpace.of", lambda *asked: ListedSpace([]))
    done = machine("search")
    assert "no config of" in str(done.exception)
    assert len(machine.children) == 2  # the worker that was to measure_roofline_limits the card, and the pool
    assert not any(child.runs for child in machine.children)


def test_an_answer_rests_on_evidence_and_ceilings(searched: Machine) -> None:
    answer = searched.json("best")
    assert answer["match"] == "exact"
    assert answer["tuned_with"]["policy"] == "cold-events-1"
    assert answer["config"]["FAULT"] == "none"
    assert answer["checked"] == {"inputs": ["normal", "normal", "special"], "launches": 51}
    assert answer["max_error"] == 0
    assert answer["marks"] == []
    explained = searched.json("explain")
    assert explained["roofline"]["bound"] == "memory"
    counted = explained["candidates"]
    tried = counted["comparison"] + counted["slower"] + counted["beaten"] + counted["failed"] + counted["not_tried"]
    assert tried == counted["space"]


def test_an_op_that_only_the_database_knows_is_asked_about_by_its_name(searched: Machine) -> None:
    """Imported ops are such, and those of kernel files: there is no code, so its hash is not compared."""
    for command in ("best", "why"):
        told = CliRunner().invoke(cli, [command, "on_torch", *PROBLEM, "--json"], standalone_mode=False)
        assert told.exception is None, told.exception
        assert json.loads(told.stdout)["match"] == "exact"


def test_a_kernel_file_is_what_the_command_to_tune_it_names(searched: Machine) -> None:
    for command in ("best", "why"):
        told = CliRunner().invoke(cli, [command, toy("on_torch"), "--N", "5", "--json"], standalone_mode=False)
        assert json.loads(told.stdout)["command"].startswith(f"tuner search {toy('on_torch')} --N 5 ")


@pytest.mark.usefixtures("started_helpers")
def test_ceilings_are_measured_once_and_a_search_leaves_no_process(searched: Machine) -> None:
    before = children()
    assert searched("search", "--trials", "14").return_value == 0
    assert children() <= before
    assert searched.surveys == 0
    store = Store.open(searched.db)
    assert store.roofline_limits(H200) == SLOW
    store.close()


def children() -> set[str]:
    """Our processes, those that began and did not end."""
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


def test_the_same_command_answers_from_the_store(searched: Machine) -> None:
    done = searched("search", "--trials", "12")
    assert "Answered from the store, run 1" in done.stderr
    assert done.return_value == 0


def test_a_short_problem_takes_the_graph_and_is_marked(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The policy of the key is the graph's; an empty kernel takes as long here as any."""
    machine.roofline_limits = RooflineLimits(1e9, {}, {"cold-graph-1": 1e9, "cold-events-1": 1e9})
    answer = machine.json("search", "--trials", "6")
    assert answer["tuned_with"]["policy"] == "cold-graph-1"
    assert answer["marks"] == ["launch_bound"]
    assert machine.json("best")["match"] == "exact"
    shown = machine("best").stdout
    assert "launch-bound: launching an empty kernel takes more than half of this latency" in shown
    assert "timed by cold-graph-1" in shown


def test_answers_of_two_policies_stand_side_by_side(searched: Machine) -> None:
    warm = searched.json("search", "--trials", "6", "--policy", "warm")
    assert warm["tuned_with"]["policy"] == "warm-graph-1"
    again = searched("search", "--trials", "12")
    assert "Answered from the store, run 1" in again.stderr


def test_a_card_that_others_use_is_not_measured_on_unasked(machine: Machine) -> None:
    machine.card(lambda address: Busy())
    done = machine("search", "--trials", "6")
    assert done.exit_code != 0 or done.exception is not None
    assert str(done.exception) == ("GPU 0 is in use by process 4711; wait for it, or measure beside it with --shared")
    assert machine("search", "--trials", "6", "--shared").return_value == 0


def test_a_process_that_is_on_the_card_for_a_moment_stops_nobody(machine: Machine) -> None:
    """Such as a worker that makes its context while it waits for its turn."""
    machine.card(lambda address: Busy(looks=2))
    assert machine("search", "--trials", "6").return_value == 0


def test_several_problems_share_one_pool(searched: Machine) -> None:
    rows = searched.json("search", "--N", "64,1000,4096", "--trials", "12")["rows"]
    assert [(row["problem"]["N"], row["match"], row["searched"]) for row in rows] == [
        (64, "exact", True),
        (1000, "exact", True),
        (4096, "exact", False),
    ]
    assert searched.pools == 1


def test_a_dry_run_knows_what_is_stored_and_what_searches_took_here(searched: Machine) -> None:
    plan = searched.json("search", "--N", "4096,8192", "--trials", "12", "--dry-run")
    assert [(row["stored"], row["known"], row["trials"]) for row in plan["rows"]] == [("exact", 12, 0), ("none", 0, 12)]
    assert plan["rows"][0]["seconds"] == 0 < plan["rows"][1]["seconds"] < plan["seconds"]
    assert plan["basis"] == "by stored searches there: 1"
    (more,) = searched.json("search", "--effort", "exhaustive", "--dry-run")["rows"]
    assert more["trials"] == more["feasible"] - 12
    assert (searched.started, searched.pools, searched.surveys) == ([], 0, 0)


class TestAddedKnob:
    """A knob that was added since an answer was stored takes its default, whatever is done with the answer."""

    @pytest.fixture
    def wider(self, tmp_path: Path) -> str:
        file, source = tmp_path / "wider.py", Path(toy("on_torch")).read_text()
        knobs, signature = 'Knob("num_stages", (1,)),', "KERNEL = Kernel("
        for before, after in {
            "num_warps, num_stages):": "num_warps, num_stages, SPLIT):",
            knobs: f'{knobs} Knob("SPLIT", (1, 2), default=1),',
            signature: f"{signature}estimate=lambda problem, config, limits: Cost(1.0 * config['SPLIT'], {{}}),",
            "import Attribute, ": "import Attribute, Cost, ",
        }.items():
            assert before in source
            source = source.replace(before, after)
        file.write_text(source)
        return str(file)

    def asked(self, command: str, kernel: str) -> dict[str, Any]:
        done = CliRunner().invoke(cli, [command, kernel, *PROBLEM, "--json"], standalone_mode=False)
        assert done.exception is None, done.exception
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def test_it_is_verified(self, searched: Machine, wider: str) -> None:
        searched.write("DELETE FROM rounds")
        searched.write("DELETE FROM trials WHERE config != (SELECT config FROM answers)")
        searched.write("UPDATE answers SET ties = '[]'")
        assert self.asked("verify", wider)["verified"]["outcome"] == "holds"

    def test_it_is_explained(self, searched: Machine, wider: str) -> None:
        assert self.asked("explain", wider)["candidates"]

    def test_it_is_compared(self, searched: Machine, wider: str) -> None:
        (row,) = self.asked("bench", wider)["rows"]
        assert not row["error"]
        assert row["config"]["SPLIT"] == 1


class TestVerify:
    def test_what_was_found_holds(self, searched: Machine) -> None:
        searched.write("DELETE FROM rounds")  # this machine's clock is no GPU's
        searched.write("DELETE FROM trials WHERE config != (SELECT config FROM answers)")
        searched.write("UPDATE answers SET ties = '[]'")
        done = searched("verify")
        assert done.return_value == 0, done.stdout
        assert done.stdout.startswith("holds  on_torch N=4096")
        assert "over 51 checked launches" in done.stdout

    def test_a_config_that_lost_against_the_vendor_exits_with_4(self, searched: Machine) -> None:
        texts = "SELECT config_text FROM answers a JOIN trials t ON t.run_id = a.run_id AND t.config = a.config"
        searched.write(f"UPDATE rounds SET latencies = json_set(latencies, '$.\"' || ({texts}) || '\"', 0.001)")
        done = searched("verify")
        assert done.return_value == 4, done.stdout
        assert "; source, Triton and ptxas are the same, so the code is not the cause" in done.stdout

    def test_a_config_that_is_wrong_exits_with_1(self, searched: Machine) -> None:
        searched.write("UPDATE answers SET config = json_set(config, '$.FAULT', 'half')")
        document = json.loads((done := searched("verify", "--json")).stdout)
        assert done.return_value == 1
        assert document["verified"]["outcome"] == "wrong"
        assert document["verified"]["error"].startswith("wrong_result: deviates from the reference by inf")

    def test_what_was_imported_is_timed_for_the_first_time(self, machine: Machine, tmp_path: Path) -> None:
        config = {"BLOCK": 256, "FAULT": "none", "num_warps": 4, "num_stages": 1}
        result = {"configuration": config, "invalidity": "correct", "correctness": 1, "times": {"runtimes": [0.5]}}
        file = tmp_path / "results.json"
        file.write_text(json.dumps({"results": [result]}))
        about = ["--op", "on_torch", "--device", H200.id, "--problem", "N=4096,dtype=fp32"]
        assert CliRunner().invoke(cli, ["import", str(file), *about], standalone_mode=False).return_value == 0
        machine.write("UPDATE answers SET latency_us = 9e999")  # as of a file that has no timings
        done = machine("verify")
        assert done.return_value == 0, done.stdout
        assert "stale: imported: taken from results.json, not measured here" in done.stdout
        assert "latency        never timed, is " in done.stdout

    def test_nothing_stored_is_a_miss(self, searched: Machine) -> None:
        done = CliRunner().invoke(cli, ["verify", toy("on_torch"), "--N", "1"], standalone_mode=False)
        assert done.return_value == 1
        assert "no answer is stored for on_torch N=1" in done.stdout


def test_a_recording_of_a_suite_writes_each_problem_that_can_be_measured(machine: Machine, tmp_path: Path) -> None:
    suite, out, kernel = tmp_path / "toys.json", tmp_path / "spaces", tmp_path / "short.py"
    few = {"FAULTS = (": 'FAULTS = ("none",)\nOTHERS = (', "(64, 128, 256, 512, 1024, 2048)": "(128, 256)"}
    source = Path(toy("on_torch")).read_text()
    for old, new in few.items():
        source = source.replace(old, new, 1)
    kernel.write_text(source)
    problems = [{"op": str(kernel), "N": 64, "vendor": "elsewhere"}, {"op": str(kernel), "N": 64}]
    suite.write_text(json.dumps(problems))
    done = CliRunner().invoke(cli, ["record", "--suite", str(suite), "--out", str(out)], standalone_mode=False)
    assert done.return_value == 1
    assert "on_torch 64 fp32 vendor=elsewhere: failed, " in done.stderr
    (file,) = out.iterdir()
    assert done.stdout.splitlines() == [str(file)]
    assert file.name == "on_torch-64-fp32-nvidia-h200.json.gz"


class TestBench:
    @pytest.fixture
    def suite(self, tmp_path: Path) -> str:
        file = tmp_path / "toys.json"
        file.write_text(json.dumps([{"op": toy("on_torch"), "N": N} for N in (64, 1000, 4096, 8192)]))
        return str(file)

    def bench(self, *options: str) -> Result:
        return CliRunner().invoke(cli, ["bench", *options], standalone_mode=False)

    @pytest.mark.usefixtures("started_helpers")
    def test_one_worker_serves_a_suite_and_leaves_no_process(self, machine: Machine, suite: str) -> None:
        """On one card, however often it is named."""
        before = children()
        done = self.bench("--suite", suite, "--gpu", "0,auto,0", "--json")
        assert children() <= before
        assert done.return_value == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["suite"] == "toys"
        assert [row["problem"]["N"] for row in document["rows"]] == [64, 1000, 4096, 8192]
        for row in document["rows"]:
            assert row["kind"] == "untuned"
            assert row["rounds"] >= 20
            assert row["vendor"]["speedup"] > 0
            assert row["roofline_share"] > 0
            assert row["device"] == "nvidia-h200"
        assert document["summary"]["rows"] == document["summary"]["without_answer"] == 4
        assert machine.started == [0]
        assert [line.split()[0] for line in done.stderr.splitlines()[-4:]] == ["1/4", "2/4", "3/4", "4/4"]

    def test_what_is_tuned_meets_its_default(self, searched: Machine, suite: str) -> None:
        """The stored answer is not the default: with another config's knobs, whatever this machine's clock said."""
        searched.write("UPDATE answers SET config = json_set(config, '$.BLOCK', 512), kind = 'tuned'")
        (row,) = json.loads(self.bench(toy("on_torch"), *PROBLEM, "--json").stdout)["rows"]
        assert row["kind"] == "tuned"
        assert row["config"]["BLOCK"] == 512
        low, high = row["default"]["speedup_interval"]
        assert low < high  # over rounds in which both were timed; a config that meets itself has 1 in all

    def test_what_is_untuned_is_searched_first_and_kept(self, machine: Machine, suite: str, tmp_path: Path) -> None:
        out = tmp_path / "rows.json"
        command = ("--suite", suite, "--only", "N=64", "--search", "20s", "--out", str(out), "--json")
        first = self.bench(*command)
        assert first.return_value == 0, first.stderr
        (row,) = json.loads(first.stdout)["rows"]
        assert row["kind"] in ("tuned", "default")
        store = Store.open(machine.db)
        (stored,) = store.answers()
        store.close()
        assert dict(stored.answer.config) == row["config"]
        before = out.read_text()
        again = self.bench(*command)
        assert json.loads(again.stdout) == json.loads(first.stdout)
        assert out.read_text() == before

    def test_cards_share_the_work(self, machine: Machine, suite: str, tmp_path: Path) -> None:
        machine.cards(tmp_path, 2)
        done = self.bench("--suite", suite, "--gpu", "all", "--json")
        assert done.return_value == 0, done.stderr
        assert [row["problem"]["N"] for row in json.loads(done.stdout)["rows"]] == [64, 1000, 4096, 8192]
        assert sorted(machine.started) == [0, 1]
        assert machine.surveys == 1

    def test_a_problem_that_cannot_be_measured_costs_its_row(self, machine: Machine, tmp_path: Path) -> None:
        suite, out = tmp_path / "toys.json", tmp_path / "rows.json"
        problems = [{"op": toy("on_torch"), "N": 64, "vendor": "elsewhere"}, {"op": toy("on_torch"), "N": 1000}]
        suite.write_text(json.dumps(problems))
        done = self.bench("--suite", str(suite), "--out", str(out))
        assert done.return_value == 1
        assert "failed           on_torch 64 fp32 vendor=elsewhere: " in done.stdout
        assert "on_torch 1000 fp32" in done.stdout
        assert [row["kind"] for row in json.loads(out.read_text())["rows"]] == ["failed", "untuned"]
        again = self.bench("--suite", str(suite), "--out", str(out), "--json")
        assert [row["kind"] for row in json.loads(again.stdout)["rows"]] == ["failed", "untuned"]

    def test_a_card_that_others_use_is_not_measured_on(self, machine: Machine, suite: str, tmp_path: Path) -> None:
        machine.cards(tmp_path, 2)
        machine.card(lambda address: Busy() if "01" in address else NoMonitor())
        done = self.bench("--suite", suite, "--gpu", "0,1")
        assert str(done.exception).startswith("GPU 1 is in use by process 4711")
        assert machine.surveys == 0


def test_a_worker_holds_the_card_for_all_that_was_asked_for(machine: Machine) -> None:
    signature = catalog.resolve(toy("on_torch")).signature
    with closing(Store.open(machine.db)) as store:
        store.queue.add(signature.problem({"N": 4096}), H200.id)
        other = replace(signature.problem({"N": 64}), text="on_torch K=64 dtype=fp32")  # of another version's signature
        store.queue.add(other, H200.id)
        options = ["work", toy("on_torch"), "--drain", "--trials", "6", "--policy", "cold"]
        done = CliRunner().invoke(cli, options, standalone_mode=False)
        assert done.return_value == 1, (done.stderr, done.exception)
        assert [line.split()[2] for line in done.stdout.splitlines()] == ["done", "again", "again", "failed"]
        assert done.stdout.endswith("on_torch is described by N, dtype, vendor, not by 'K'\n")
        assert [stored.answer.problem["N"] for stored in store.answers()] == [4096]
        assert machine.surveys == 1
        machine.card(lambda address: Busy())
        store.queue.add(signature.problem({"N": 64}), H200.id)
        busy = CliRunner().invoke(cli, options, standalone_mode=False)
        assert "GPU 0 is in use by process 4711" in str(busy.exception)
        assert store.queue.jobs(1)[0].tries == 0  # it was not even taken


@pytest.mark.parametrize("gpus", ["0,1", "all"])
def test_jobs_are_tuned_on_several_cards(machine: Machine, tmp_path: Path, gpus: str) -> None:
    machine.cards(tmp_path, 2)
    signature = catalog.resolve(toy("on_torch")).signature
    with closing(Store.open(machine.db)) as store:
        for size in (64, 1000, 4096, 8192):
            store.queue.add(signature.problem({"N": size}), H200.id)
        options = ["work", toy("on_torch"), "--drain", "--trials", "4", "--policy", "cold", "--gpu", gpus]
        done = CliRunner().invoke(cli, options, standalone_mode=False)
        assert done.return_value == 0, (done.stderr, done.exception)
        assert sorted(line.split()[1] for line in done.stdout.splitlines()) == ["1", "2", "3", "4"]
        assert sorted(stored.answer.problem["N"] for stored in store.answers()) == [64, 1000, 4096, 8192]
        assert {0, 1} <= {*machine.started}
        assert machine.surveys == 1
        store.queue.add(signature.problem({"N": 128}), H200.id)
        store.queue.add(signature.problem({"N": 256}), H200.id)
        once = CliRunner().invoke(cli, [*options, "--once"], standalone_mode=False)
        assert once.return_value == 0, (once.stderr, once.exception)
        assert len(once.stdout.splitlines()) == 1
        machine.card(lambda address: Busy())
        busy = CliRunner().invoke(cli, options, standalone_mode=False)
        assert "is in use by process 4711" in str(busy.exception)
        assert store.queue.jobs(1)[0].tries == 0
    assert not any(child.runs for child in machine.children)


def test_one_config_for_several_problems_is_measured_by_one_worker_in_turns(searched: Machine) -> None:
    before = searched.json("best")
    document = searched.json("search", "--N", "64,4096", "--trials", "8", "--joint", "worst")
    assert [row["problem"]["N"] for row in document["rows"]] == [64, 4096]
    assert document["config"]["FAULT"] in ("none", "racy")
    assert all(row["config"] == document["config"] and row["rounds"] >= 20 for row in document["rows"])
    assert document["speedup"] == pytest.approx(min(row["default"]["speedup"] for row in document["rows"]))
    assert [row["own"] is not None for row in document["rows"]] == [False, True]
    lost = 3 * document["failures"].get("out_of_memory", 0)  # such a config is tried again, by a new worker
    assert searched.pools == 1
    assert len(searched.started) <= 1 + lost
    assert searched.json("best") == before


class TestLibraryCall:
    """A process that tunes goes on after the call, so that the call leaves neither a lock nor a process."""

    def test_ctrl_c_while_the_card_is_waited_for(self, searched: Machine, tmp_path: Path) -> None:
        class Pressed(Events):
            def note(self, message: str) -> None:
                assert message.startswith("Waiting for process ")
                raise KeyboardInterrupt

        other = GpuLock(tmp_path / "card.lock", "a test", on_wait=lambda message: None)
        with pytest.raises(KeyboardInterrupt):
            tune(toy("on_torch"), {"N": 4096}, store=searched.db, trials=14, on_event=Pressed())
        other.release()
        assert searched.children
        assert not any(child.runs for child in searched.children)

    def test_a_stored_answer_whose_card_was_surveyed_anew(self, searched: Machine, tmp_path: Path) -> None:
        searched.write("UPDATE devices SET roofline_limits = NULL")
        tune(toy("on_torch"), {"N": 4096}, store=searched.db, trials=12)
        assert searched.surveys == 1
        assert not any(child.runs for child in searched.children)
        GpuLock(tmp_path / "card.lock", "a test", on_wait=pytest.fail).release()

    def test_ctrl_c_while_the_card_is_surveyed(self, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupted(worker: Child) -> RooflineLimits:
            raise KeyboardInterrupt

        monkeypatch.setattr("tuner.tuning.gpu.measure_roofline_limits", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tune(toy("on_torch"), {"N": 4096}, store=machine.db, trials=4)
        assert machine.children
        assert not any(child.runs for child in machine.children)

    def test_a_script_that_defines_its_kernel(self, machine: Machine, tmp_path: Path) -> None:
        script = tmp_path / "my_kernel.py"
        call = "import tuner\nanswer = tuner.tune(KERNEL, {'N': 4096}, trials=4)\n"
        script.write_text(Path(toy("on_torch")).read_text() + f"\nif __name__ == '__main__':\n{indent(call, '    ')}")
        names = runpy.run_path(str(script), run_name="__main__")
        assert names["answer"].problem.text == "on_torch N=4096 dtype=fp32"
        assert not any(child.runs for child in machine.children)

    def test_a_script_that_calls_without_a_guard_says_so(self, machine: Machine, tmp_path: Path) -> None:
        script = tmp_path / "unguarded.py"
        call = "import tuner\nanswer = tuner.tune(KERNEL, {'N': 4096}, trials=4)\n"
        script.write_text(Path(toy("on_torch")).read_text() + f"\n{call}")
        with pytest.raises(UsageError, match=r"put the call under if __name__ == '__main__':"):
            runpy.run_path(str(script), run_name="__main__")
        assert not any(child.runs for child in machine.children)
