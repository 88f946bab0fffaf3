"""The process that compiles and runs a profiled config, started as it is and killed as it may be."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import H200
from profiled import task

from tuner import catalog
from tuner.measure.processes import Child
from tuner.profiling.messages import Failed, ProfileTask, Ran, RunProton
from tuner.profiling.profile import WORKER, ask

pytestmark = pytest.mark.usefixtures("forked_helpers")


def test_it_compiles_for_a_card_that_is_not_here() -> None:
    child = Child(WORKER)
    try:
        ran = ask(child, task("row-wise"), 60.0)
        assert isinstance(ran, Ran)
        (launch,) = ran.launches
        assert (launch.name, launch.grid, launch.warps, ran.samples) == ("row_wise", (8192,), 4, ())
        assert launch.registers is not None
        assert [value for value in launch.arguments.values() if value == 8192] == [8192] * 3
        failed = ask(child, task("row-wise"), 0.0)
        assert failed == Failed("the config took longer than 0 s")
    finally:
        child.kill()
    assert not child.runs


def test_a_config_that_ends_the_process_is_a_failure_with_its_end(tmp_path: Path) -> None:
    file = tmp_path / "ends.py"
    file.write_text("import os\nos.write(2, b'the last words')\nos._exit(7)\n")
    gemm = catalog.resolve("gemm")
    problem = gemm.signature.problem({"M": 64})
    child = Child(WORKER)
    try:
        request = ProfileTask(str(file), problem, gemm.default_config(problem, H200.limits), H200.limits)
        died = ask(child, request, 60.0)
        assert died == Failed("the config ended its process: exit code 7: the last words")
        later = ask(child, RunProton("times"), 60.0)
        assert later == Failed("the profiled process has ended")
    finally:
        child.kill()


def test_a_kernel_that_cannot_be_loaded_is_a_failure_in_a_sentence(tmp_path: Path) -> None:
    file = tmp_path / "broken.py"
    file.write_text("KERNEL = 3\n")
    gemm = catalog.resolve("gemm")
    problem = gemm.signature.problem({"M": 64})
    child = Child(WORKER)
    try:
        config = gemm.default_config(problem, H200.limits)
        failed = ask(child, ProfileTask(str(file), problem, config, H200.limits, launches=False), 60.0)
        assert isinstance(failed, Failed)
        assert "KERNEL" in failed.why
        assert "Traceback" not in failed.why
    finally:
        child.kill()
