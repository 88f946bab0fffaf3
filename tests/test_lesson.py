"""Check that the steps of the lesson are right, compile to what the page says, and have a table in the page."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from typing import Any

import lesson
import pytest
from forks import printed
from helpers import A100, H200, reaching
from ladder.step import Ladder
from shipped_spaces import shipped

from tuner.errors import MeasureError
from tuner.measure import tensors
from tuner.records import Device

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "lesson.md").read_text()
CHAPTERS = {
    page.stem: page.read_text() for page in (ROOT / "docs" / "lesson.md", *(ROOT / "docs" / "lessons").glob("*.md"))
}
ANCHOR = re.compile(r"<!-- lesson table: (.+) -->")
GLUON = {"transpose": {"tiled", "padded", "tuned"}, "attention": {"roles", "wide blocks"}}
"""Steps in Gluon, which has no interpreter: they are compiled here and run on a card."""

SIZES: dict[str, list[tuple[int, ...]]] = {
    "transpose": [(1, 1), (3, 1311), (1311, 3), (127, 129)],
    "gemm": [(1, 1, 1), (129, 257, 37), (40, 264, 72)],
    "softmax": [(1, 1), (3, 127), (19, 781)],
    "copy_column": [(1, 1), (129, 17)],
    "add": [(1, 1311), (3, 127)],
    "gelu": [(1, 1311), (3, 127)],
    "silu_mul": [(1, 1), (3, 127)],
    "reduce": [(1, 1), (131, 19)],
    "layer_norm": [(1, 1), (3, 127)],
    "rms_norm": [(1, 1), (3, 127)],
    "max_pool2d": [(1, 1, 1, 1, 1), (2, 3, 7, 11, 3)],
    "attention": [(1, 1, 1, 1, 16), (1, 2, 67, 130, 64)],
    "conv2d": [(2, 8, 9, 8, 3), (4, 8, 8, 5, 1)],
}
NAMES = {"max_pool2d": "BCHWR", "conv2d": "BCHWR", "attention": "BHMND"}
"""Names of the sizes, if they are not of a matrix or a product."""
INTERPRETED = [
    pytest.param(ladder, size, dtype, id=f"{op}-{'x'.join(map(str, size))}-{dtype}")
    for op, ladder in lesson.LADDERS.items()
    for size, dtype in zip(
        SIZES[op], cycle(("fp32", "fp16") if "fp32" in ladder.kernel.signature.dtypes else ("fp16",))
    )
]


def made(ladder: Ladder, size: tuple[int, ...], dtype: str) -> tuple[Any, dict[str, Any]]:
    """Return a problem and its tensors on the host."""
    dims = dict(zip(NAMES.get(ladder.kernel.op, "MNK"), size, strict=False))
    problem = ladder.kernel.signature.problem({**dims, "dtype": dtype})
    operands = ladder.kernel.operands(problem)
    values: dict[str, Any] = dict(tensors.allocate(operands, "cpu"))
    tensors.draw(operands, values, seed=1)
    return problem, values


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # rows past the end, never stored
@pytest.mark.parametrize(("ladder", "size", "dtype"), INTERPRETED)
def test_every_step_in_plain_triton_is_right_at_odd_sizes(ladder: Ladder, size: tuple[int, ...], dtype: str) -> None:
    problem, values = made(ladder, size, dtype)
    config = ladder.kernel.default_config(problem, H200.limits)
    steps = lesson.steps_to(ladder, config, H200.limits)
    runs = lesson.contenders(ladder.kernel, problem, values, steps, H200.limits)
    assert [*runs] == [*(step.name for step in ladder.steps), "tuned", "torch"]
    runs = {name: run for name, run in runs.items() if name not in GLUON.get(ladder.kernel.op, ())}
    assert len(runs) >= 3
    lesson.prove(ladder.kernel, problem, values, runs)
    assert not tensors.written_beside(ladder.kernel.operands(problem), values)


def test_a_step_that_is_wrong_is_not_timed() -> None:
    ladder = lesson.LADDERS["transpose"]
    problem, values = made(ladder, (5, 7), "fp32")
    with pytest.raises(MeasureError, match="'lazy' of transpose is off by inf; 0 is allowed; fix the step"):
        lesson.prove(ladder.kernel, problem, values, {"lazy": lambda: None})


COMPILES = """
import json
import lesson
from tuner.kernels.spec import Launch, Limits
from tuner.measure.compile import set_target
from tuner.measure.stand_ins import StandIn

limits = {limits}
set_target(limits)
found = []
for op in {ops}:
    ladder = lesson.LADDERS[op]
    for problem in ladder.problems:
        default = ladder.kernel.default_config(problem, limits)
        for step in lesson.steps_to(ladder, default, limits):
            if step.name == "tuned":
                continue
            operands = {{**ladder.kernel.operands(problem), **step.workspace(problem, limits)}}
            stand_ins = {{name: StandIn(operand) for name, operand in operands.items()}}
            for launch in step.runs(problem, stand_ins):
                if isinstance(launch, Launch):
                    kernel = launch.fn.warmup(*launch.args, grid=launch.grid, **launch.kwargs)
                    found.append((op, step.name, kernel.metadata.shared, kernel.asm["ptx"]))
print(json.dumps(found))
"""


OF_AMPERE = ["transpose", "gemm", "attention", "conv2d"]
"""Ops that are compiled for Ampere too: of their steps, the page says what differs between cards."""


class Compiled:
    """Every step but the tuned kernel as compiled for a card, in a fork, since kernels are interpreted in this process.

    `tests/measure/test_compile.py` compiles the defaults of all kernels.
    """

    def __init__(self, card: Device) -> None:
        self.card, self.ops = card, OF_AMPERE if card is A100 else [*lesson.LADDERS]
        self.found = json.loads(printed(COMPILES.format(limits=card.limits, ops=self.ops)))

    def ptx(self, op: str, step: str) -> str:
        (text,) = (ptx for found_op, name, _, ptx in self.found if (found_op, name) == (op, step))
        return str(text)

    def accesses(self, step: str) -> set[str]:
        """Return the instructions of a transpose that access device memory."""
        return set(re.findall(r"(?:ld|st)\.global\.(?:v\d\.)?b\d+", self.ptx("transpose", step)))


@pytest.mark.parametrize("card", [A100, H200], ids=lambda card: card.id)
def test_every_step_compiles_to_what_the_page_says_of_it(
    card: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in ({"TRITON_CACHE_DIR": str(tmp_path)} | reaching(ROOT, ROOT / "benchmarks")).items():
        monkeypatch.setenv(name, value)
    compiled = Compiled(card)
    assert_all_fit(compiled)
    assert_transposes_access_memory_as_stated(compiled)
    assert_gemms_use_the_units_stated(compiled)


def assert_all_fit(compiled: Compiled) -> None:
    launched = {(op, step.name) for op in compiled.ops for step in lesson.LADDERS[op].steps}
    launched -= {("softmax", "operations"), ("gelu", "operations")}  # torch's
    launched -= {("silu_mul", "operations"), ("silu_mul", "copies")}
    launched -= {("layer_norm", "operations"), ("rms_norm", "operations"), ("attention", "operations")}
    launched -= {("conv2d", "im2col")}
    hopper = {("gemm", "persistent"), ("attention", "roles"), ("attention", "wide blocks"), ("conv2d", "boxes")}
    launched -= hopper if compiled.card is A100 else set()  # no copy engine
    assert {(op, name) for op, name, _, _ in compiled.found} == launched
    assert all(shared <= compiled.card.shared_bytes for _, _, shared, _ in compiled.found)


def assert_transposes_access_memory_as_stated(compiled: Compiled) -> None:
    assert compiled.accesses("row-wise") == {"ld.global.v4.b32", "st.global.b32"}
    assert compiled.accesses("coalesced") == {"ld.global.b32", "st.global.v4.b32"}
    assert compiled.accesses("tiled") == compiled.accesses("padded") == {"ld.global.b32", "st.global.b32"}
    assert compiled.accesses("by the compiler") == {"ld.global.v4.b32", "st.global.v4.b32"}
    shared = {name: shared for op, name, shared, _ in compiled.found if op == "transpose"}
    assert shared["by the compiler"] == shared["tiled"] == 64 * 64 * 4
    assert shared["padded"] > shared["tiled"]


def assert_gemms_use_the_units_stated(compiled: Compiled) -> None:
    assert "mma" not in compiled.ptx("gemm", "simple")
    assert "mma.sync" in compiled.ptx("gemm", "tensor cores")
    for step in ("tiled", "grouped", "pipelined", "wide"):
        assert ("wgmma" if compiled.card is H200 else "mma.sync") in compiled.ptx("gemm", step)
        assert ("cp.async" in compiled.ptx("gemm", step)) == (step in ("pipelined", "wide"))
    if compiled.card is H200:
        assert "cp.async.bulk.tensor" in compiled.ptx("gemm", "persistent")


def measured(op: str) -> dict[str, Any]:
    """Return a measurement in which each contender takes 100 us less than the one before; torch and a copy are last."""
    ladder = lesson.LADDERS[op]
    (problem, *_) = ladder.problems
    names = [*(step.name for step in ladder.steps), "tuned", "torch", *(["copy"] if ladder.unit == "GB/s" else [])]
    latencies = {name: [1000.0 - 100 * index] * 3 for index, name in enumerate(names)}
    steps = lesson.steps_to(ladder, ladder.kernel.default(problem, H200.limits), H200.limits)
    compared = lesson.compared(ladder, problem, steps, latencies)
    return {"problem": problem.text, "unit": ladder.unit, "steps": list(compared)}


def test_the_table_compares_with_the_step_before_with_torch_and_with_a_copy() -> None:
    head, first, second, *_, tuned, torch, copy = lesson.rows(measured("transpose"))
    assert head == ("step", "us", "GB/s", "x step before", "x torch", "x copy", "what it does")
    assert first[:6] == ("row-wise", "1,000.0", "537", "", "0.40", "0.30")
    assert second[:6] == ("coalesced", "900.0", "597", "1.11", "0.44", "0.33")
    assert tuned[:6] == ("tuned", "500.0", "1,074", "1.20", "0.80", "0.60")
    assert tuned[6] == "TILE_M=64 TILE_N=64 PAD=2 VEC=2 num_warps=4 num_stages=1"
    assert torch[:6] == ("torch", "400.0", "1,342", "", "1.00", "0.75")
    assert copy[:6] == ("copy", "300.0", "1,790", "", "1.33", "1.00")
    (head, simple, *_) = lesson.rows(measured("gemm"))
    assert head == ("step", "us", "TFLOP/s", "x step before", "x torch", "what it does")
    assert simple[:5] == ("simple", "1,000.0", "137", "", "0.20")


def test_markdown_is_a_table_under_the_pages_anchor() -> None:
    found = {
        "card": "NVIDIA H200",
        "date": "2026-11-28",
        "environment": {"triton": "3.6.0", "torch": "2.11.0", "driver": "580.1"},
        "measured": [measured("gemm")],
    }
    lines = [*lesson.report(found, markdown=True)]
    assert lines[1] == "<!-- lesson table: gemm M=4096 N=4096 K=4096 dtype=bf16 -->"
    assert lines[1] in PAGE
    assert lines[2] == "NVIDIA H200, 2026-11-28; triton 3.6.0, torch 2.11.0, driver 580.1."
    assert lines[5] == "|---|---|---|---|---|---|"
    assert {line.count("|") for line in lines[4:]} == {7}
    assert "|" not in "".join(lesson.report(found, markdown=False))


def test_a_table_of_each_problem_is_in_one_chapter() -> None:
    problems = sorted(problem.text for ladder in lesson.LADDERS.values() for problem in ladder.problems)
    assert sorted(text for page in CHAPTERS.values() for text in ANCHOR.findall(page)) == problems


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_a_chapter_describes_every_step_in_order(chapter: str) -> None:
    page = CHAPTERS[chapter]
    ops = dict.fromkeys(text.split()[0] for text in ANCHOR.findall(page))
    steps = [name for op in ops for name in (*(step.name for step in lesson.LADDERS[op].steps), "tuned")]
    assert re.findall(r"^\*\*(.+?)\*\*:", page, re.MULTILINE) == steps


def test_the_page_names_the_best_of_the_recorded_spaces() -> None:
    text = " ".join(PAGE.split())
    transpose = shipped("transpose-8192x8192-fp32-nvidia-h200")
    assert (transpose.best["VEC"], transpose.best["PAD"], transpose.best["num_warps"]) == (2, 2, 16)
    assert f"{len(transpose.measurements):,} configs on an H200 moved 2 elements at once with a pad of 2, by 16" in text
    gemm = shipped("gemm-4096x4096x4096-bf16-nvidia-h200")
    assert gemm.best["VARIANT"] == "specialized"
    assert f"{len(gemm.measurements):,} configs on an H200 gives its warps roles" in text


def test_the_pages_commands_are_understood(monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines():
        script, *arguments = line.removeprefix("$ python ").split()
        assert script == "benchmarks/lesson.py"
        monkeypatch.setattr(sys, "argv", [script, *arguments])
        assert lesson.parsed().ops == [word for word in arguments[:1] if not word.startswith("-")]


def test_without_a_card_one_line_says_so() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "lesson.py")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""} | reaching(ROOT)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (3, "lesson: there is no GPU 0: the driver shows none\n")


def test_an_op_without_a_lesson_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["lesson.py", "gemm", "conv"])
    with pytest.raises(SystemExit, match="2"):
        lesson.main()
    assert f"the ops of the lesson are {', '.join(lesson.LADDERS)}, not conv" in capsys.readouterr().err
