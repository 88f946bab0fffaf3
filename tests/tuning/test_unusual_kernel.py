"""A kernel with what few have goes through everything: None among a knob's choices, an attribute of floats, a bool
operand, launches that depend on a knob, a hook before a launch, and no vendor."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from helpers import H200, toy
from scripted import ScriptedMeasurer
from served import serving

from tuner import catalog
from tuner.api.app import create_app
from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import KernelFault
from tuner.exchange import kernel_tuner, t4
from tuner.kernels.spec import Config, Kernel, Launch
from tuner.lookup import bundle
from tuner.measure.compile_pool import CompilePool
from tuner.measure.interpret import interpret
from tuner.measure.messages import Compile
from tuner.measure.tensors import allocate
from tuner.records import COLD, Environment, Measurement, Outcome, Provenance
from tuner.search import SAMPLERS, Budget
from tuner.search.space import feasible
from tuner.suites.suite import Entry
from tuner.tuning.check_kernel import CheckKernelSettings, check_kernel
from tuner.tuning.check_knobs import CheckKnobsSettings
from tuner.tuning.effort import Effort
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target

pytestmark = pytest.mark.usefixtures("forked_helpers")
FILE = toy("sums")
KERNEL = catalog.resolve(FILE)
PROBLEM = KERNEL.signature.problem({"M": 3, "N": 70, "factor": "1e-5"})
SPACE = list(feasible(KERNEL, PROBLEM, H200.limits))
DEFAULT = KERNEL.default_config(PROBLEM, H200.limits)
MADE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), KERNEL.source, COLD.text)
ENTRY = Entry(FILE, KERNEL.signature, PROBLEM)


def latency_us(config: Config) -> float:
    """Return the least for SPLIT=None with two warps."""
    return float(10 + (config["SPLIT"] or 0) + 3 / config["num_warps"])


TARGET = Target(SPACE, DEFAULT, MADE, COLD, flops=0, bytes=1, measurer=lambda: ScriptedMeasurer(latency_us))
BEST = KERNEL.signature.config({"SPLIT": None, "num_warps": 2, "num_stages": 1})


def test_the_texts_leave_out_a_default_of_none() -> None:
    assert PROBLEM.text == "sums M=3 N=70 dtype=fp32 factor=1e-05"
    assert sorted(config.text for config in SPACE) == [
        "SPLIT=2 num_stages=1 num_warps=1",
        "SPLIT=2 num_stages=1 num_warps=2",
        "SPLIT=4 num_stages=1 num_warps=1",
        "SPLIT=4 num_stages=1 num_warps=2",
        "num_stages=1 num_warps=1",
        "num_stages=1 num_warps=2",
    ]


def test_it_passes_the_check() -> None:
    report = check_kernel(
        FILE,
        PROBLEM.values,
        settings=CheckKernelSettings(knobs=CheckKnobsSettings(configs=0, choices_s=0), small_sizes=(129,)),
    )
    assert report.error is None, report.error


def test_every_config_compiles_for_a_card() -> None:
    pool = CompilePool(jobs=2)
    child = pool.take(FILE, PROBLEM, H200.limits)
    try:
        for config in SPACE:
            child.send(Compile(PROBLEM, config))
        found = [child.receive() for _ in SPACE]
    finally:
        pool.give_back(idle=False)
        pool.close()
    assert [(each.outcome, each.error) for each in found] == [(Outcome.OK, "")] * len(SPACE)


@pytest.mark.parametrize("kernel", [KERNEL, replace(KERNEL, vendor=None)], ids=["with vendor", "without"])
def test_every_config_is_right(kernel: Kernel) -> None:
    for config in SPACE:
        found = interpret(kernel, PROBLEM, config, H200.limits)
        assert found.outcome == "ok", (config, found.text)


def test_without_its_hook_a_launch_adds_to_what_it_finds() -> None:
    def launch(*given: Any) -> tuple[Launch, ...]:
        return tuple(replace(each, pre_hook=None) for each in KERNEL.launch(*given))

    for config in SPACE:
        found = interpret(replace(KERNEL, launch=launch), PROBLEM, config, H200.limits)
        assert found.outcome == ("ok" if config["SPLIT"] is None else "failed")


def test_a_hook_is_given_the_arguments_by_name_before_each_launch() -> None:
    config = KERNEL.signature.config({"SPLIT": 2, "num_warps": 1, "num_stages": 1})
    tensors = allocate(KERNEL.operands(PROBLEM), "cpu")
    (launch,) = KERNEL.launch(PROBLEM, config, tensors)
    seen: list[dict[str, Any]] = []
    hooked = replace(launch, pre_hook=seen.append)
    hooked()
    hooked()
    assert [sorted(arguments) for arguments in seen] == [
        sorted(["x", "keep", "out", "N", "factor", "stride", "step", "PART", "BLOCK", "num_warps", "num_stages"])
    ] * 2
    assert seen[0]["x"] is tensors["x"]


def test_a_hook_is_part_of_the_source_hash(tmp_path: Path) -> None:
    other = tmp_path / "sums.py"
    other.write_text(Path(FILE).read_text().replace('arguments["out"].zero_()', 'arguments["out"].fill_(0)'))
    assert catalog.resolve(str(other)).source != KERNEL.source


def test_a_hook_that_raises_is_a_fault_with_its_line() -> None:
    (launch,) = KERNEL.launch(PROBLEM, DEFAULT, allocate(KERNEL.operands(PROBLEM), "cpu"))
    with pytest.raises(KernelFault, match=r"test_unusual_kernel.py line \d+: pre_hook raises KeyError: 'y'"):
        replace(launch, pre_hook=lambda arguments: arguments["y"].zero_())()
    with pytest.raises(KernelFault, match="Launch: pre_hook is a function, not 'zero'; define it"):
        replace(launch, pre_hook="zero")


@pytest.mark.parametrize("name", ["", "x" * 25, 3, None, "a\nb", "[bold]"])
def test_a_vendors_name_is_short_and_plain(name: Any) -> None:
    with pytest.raises(KernelFault, match=r"sums: vendor_name is up to 24 letters, digits, spaces and . . -, not"):
        replace(KERNEL, vendor_name=name)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_search_is_stored_and_found(sampler: str, store: Store) -> None:
    run_search(TARGET, store, ENTRY, Effort(Budget(), sampler=sampler))
    found = stored_answer(store, TARGET, ENTRY).stored
    assert found is not None
    assert found.answer.config == BEST
    assert found.answer.config["SPLIT"] is None
    assert found.answer.problem == PROBLEM
    (run,) = store.runs(1)
    assert {m.config for m in store.known_to(run)} == set(SPACE)
    assert store.known(KERNEL.signature, PROBLEM, MADE)
    assert store.signatures()["sums"] == KERNEL.signature


def test_the_service_and_a_bundle_carry_it(store: Store, tmp_path: Path) -> None:
    run_search(TARGET, store, ENTRY, Effort(Budget()))
    with serving(create_app(store, signatures={"sums": KERNEL.signature})) as client:
        asked: dict[str, str | int] = {
            "op": "sums",
            "M": 3,
            "N": 70,
            "factor": "0.00001",
            "device": H200.id,
            "source": KERNEL.source,
        }
        got = client.get("/best-config", params=asked)
    assert got.status_code == 200, got.text
    body = got.json()
    assert body["config"] == {"SPLIT": None, "num_warps": 2, "num_stages": 1}
    assert body["problem"] == {"M": 3, "N": 70, "dtype": "fp32", "factor": 1e-5}
    written = bundle.write(tmp_path / "answers.json", store.snapshot, [KERNEL.signature], store.answers())
    read = bundle.read(tmp_path / "answers.json")
    assert read == written
    assert read.skipped == ()
    assert read.answers[0].answer.config == BEST


ASKED = [FILE, "--M", "3", "--N", "70", "--factor", "1e-5", "--device", H200.id]


@pytest.mark.parametrize(
    "command",
    [["best", *ASKED, "--json"], ["explain", *ASKED], ["explain", *ASKED, "--plot", "page.html"], ["show", "1"]],
)
def test_the_commands_read_it(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store.open(tmp_path / "tuner.db")
    run_search(TARGET, store, ENTRY, Effort(Budget()))
    store.close()
    done = CliRunner().invoke(cli, [*command, "--db", str(tmp_path / "tuner.db")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    if "--json" in command:
        assert json.loads(done.stdout)["config"] == {"SPLIT": None, "num_warps": 2, "num_stages": 1}


def test_it_is_written_for_other_tools() -> None:
    measured = [Measurement(config, Outcome.OK, (latency_us(config),)) for config in SPACE]
    cache = json.loads(kernel_tuner.to_cache(measured, "sums", PROBLEM.sizes, H200.name))
    assert cache["tune_params"]["SPLIT"] == [None, 2, 4]
    assert json.loads(json.dumps(t4.to_document(measured)))["results"][0]["configuration"]["SPLIT"] is SPACE[0]["SPLIT"]
