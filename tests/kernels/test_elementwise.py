"""Elementwise ops: how a problem is cut, which accesses it makes, special values, and accuracy over the whole range."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import torch
from forks import printed
from helpers import H200

from tuner import catalog
from tuner.kernels.silu_mul.shifted import shifted
from tuner.kernels.spec import Kernel, Launch, Operand, Problem
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

OPS = ("add", "gelu", "silu", "silu_mul")
INF, NAN = float("inf"), float("nan")


def launched(op: str, values: dict[str, Any], strides: dict[str, int] | None = None, **knobs: Any) -> Launch:
    """Return the launch of a config, on operands whose rows are at these distances."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(values)
    config = kernel.signature.config({**kernel.default_config(problem, H200.limits), **knobs})
    operands = dict(kernel.operands(problem))
    for name, stride in (strides or {}).items():
        operand = operands[name]
        operands[name] = Operand(operand.shape, operand.dtype, operand.role, (stride, 1))
    launch: Launch
    (launch,) = kernel.launch(problem, config, {name: StandIn(operand) for name, operand in operands.items()})
    return launch


def compiled_in(launch: Launch, *names: str) -> tuple[Any, ...]:
    return tuple(launch.kwargs[name] for name in names)


def run(op: str, dtype: torch.dtype, *inputs: torch.Tensor, **values: Any) -> torch.Tensor:
    """Return what the default computes of tensors (N,)."""
    kernel = catalog.load(op)
    N = inputs[0].numel()
    problem = kernel.signature.problem({"N": N, "M": 1, "dtype": dtype, **values})
    shape = (1, N) if op == "silu_mul" else (N,)
    names = list(kernel.operands(problem))
    given = [*(x.to(dtype).reshape(shape) for x in inputs), torch.full(shape, NAN, dtype=dtype)]
    tensors = dict(zip(names, given, strict=True))
    for launch in kernel.launch(problem, kernel.default_config(problem, H200.limits), tensors):
        launch()
    return tensors["out"].reshape(N)


class TestTiles:
    def test_rows_without_gaps_are_one_row(self) -> None:
        launch = launched("silu_mul", {"M": 300, "N": 7}, BLOCK=1024, num_warps=4)
        assert launch.args[3:] == (1, 2100, 0, 0, 0)
        assert launch.grid == (3,)
        assert compiled_in(launch, "ROWS", "COLUMNS", "ALIGNED") == (1, 1024, 8)

    def test_rows_with_gaps_share_a_tile_if_they_are_short(self) -> None:
        launch = launched("silu", {"M": 300, "N": 100}, BLOCK=1024, num_warps=4)
        assert launch.args[2:] == (300, 100, 200, 100)
        assert compiled_in(launch, "ROWS", "COLUMNS") == (8, 128)
        assert launch.grid == (38,)

    @pytest.mark.parametrize(
        ("N", "rows", "columns"),
        [
            (1, 1024, 1),
            (100, 8, 128),
            (256, 4, 256),
            (257, 2, 512),
            (513, 4, 256),
            (900, 1, 1024),
            (1100, 4, 256),
            (9000, 1, 1024),
        ],
    )
    def test_few_columns_of_a_tile_are_past_a_row(self, N: int, rows: int, columns: int) -> None:
        launch = launched("silu", {"M": 5000, "N": N}, BLOCK=1024, num_warps=4)
        assert compiled_in(launch, "ROWS", "COLUMNS") == (rows, columns)

    def test_a_long_row_has_several_chunks(self) -> None:
        launch = launched("silu", {"M": 3, "N": 5000}, BLOCK=1024, STEPS=2, num_warps=4)
        assert compiled_in(launch, "ROWS", "COLUMNS", "STEPS") == (1, 1024, 2)
        assert launch.grid == (9,)

    def test_steps_do_not_reach_past_a_row(self) -> None:
        launch = launched("silu", {"M": 3, "N": 2000}, BLOCK=1024, STEPS=4, num_warps=4)
        assert compiled_in(launch, "STEPS") == (2,)

    @pytest.mark.parametrize(
        ("values", "strides", "aligned"),
        [
            ({"N": 4096, "M": 8, "dtype": "bf16"}, {}, 8),
            ({"N": 4096, "M": 8, "dtype": "fp32"}, {}, 4),
            ({"N": 4096, "M": 8, "dtype": "bf16"}, {"x": 4100}, 4),
            ({"N": 4095, "M": 8, "dtype": "bf16"}, {"x": 8192, "out": 4096}, 8),
            ({"N": 4095, "M": 8, "dtype": "bf16"}, {}, 1),
        ],
    )
    def test_the_alignment_of_rows_is_stated(
        self, values: dict[str, Any], strides: dict[str, int], aligned: int
    ) -> None:
        assert compiled_in(launched("silu", values, strides), "ALIGNED") == (aligned,)

    def test_packed_halves_begin_at_rows_and_in_their_middle(self) -> None:
        for N, aligned in ((11008, 8), (11004, 4), (11007, 1)):
            launch = launched("silu_mul", {"M": 5, "N": N, "packed": True, "dtype": "bf16"})
            assert launch.args[3:] == (5, N, 2 * N, 2 * N, N)
            assert compiled_in(launch, "ALIGNED", "N_ALIGNED", "PACKED") == (aligned, aligned, True)

    def test_rows_that_32_bits_do_not_count_together_stay_rows(self) -> None:
        launch = launched("silu", {"M": 2**16, "N": 2**16}, {"x": 2**16})
        assert launch.args[2:] == (2**16, 2**16, 2**16, 2**16)


def test_shifted_rows_are_right_wherever_they_begin() -> None:
    """Widths that leave no, one or several groups; rows with gaps; nothing beside the rows is written."""
    for N in (1, 8, 15, 17, 31, 127):
        for gap in (0, 5):
            both = torch.randn(9, 2 * N + gap, generator=torch.Generator().manual_seed(N)).half()
            both[:, 2 * N :] = NAN
            beside = torch.full((9 * N + 16,), 7.0).half()
            out = beside[: 9 * N].view(9, N)
            problem = catalog.load("silu_mul").signature.problem({"M": 9, "N": N, "packed": True, "dtype": "fp16"})
            (launch,) = shifted(problem, {"BLOCK": 64, "num_warps": 1}, {"gate": both[:, : 2 * N], "out": out})
            launch()
            gate, up = both[:, :N].double(), both[:, N : 2 * N].double()
            assert torch.allclose(out.double(), torch.nn.functional.silu(gate) * up, rtol=2e-3, atol=1e-6), (N, gap)
            assert (beside[9 * N :] == 7.0).all()
            in_place = {"gate": both[:, : 2 * N], "out": both[:, :N]}
            (launch,) = shifted(problem, {"BLOCK": 64, "num_warps": 1}, in_place)
            launch()
            assert torch.equal(both[:, :N], out), (N, gap)


COMPILES = """
import json
from tuner import catalog
from tuner.kernels.silu_mul.shifted import shifted
from tuner.kernels.spec import Limits
from tuner.measure.compile import set_target
from tuner.measure.stand_ins import StandIn

limits = Limits((9, 0), 132, 232448)
set_target(limits)
found = []
for op, values, knobs in CASES:
    kernel = catalog.load(op)
    problem = kernel.signature.problem(values)
    config = kernel.signature.config({**kernel.default_config(problem, limits), **knobs})
    stand_ins = {name: StandIn(operand) for name, operand in kernel.operands(problem).items()}
    (launch,) = kernel.launch(problem, config, stand_ins)
    found.append(launch.warmup().asm["ptx"])
print(json.dumps(found))
"""


def test_threads_move_16_bytes_at_once_also_if_sizes_are_odd() -> None:
    cases: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        ("gelu", {"N": 2**24}, {}),
        ("silu_mul", {"M": 4096, "N": 11004, "packed": True}, {}),
        ("add", {"N": 2**20 + 1, "dtype": "fp32"}, {}),
        ("silu", {"N": 2**24}, {"BLOCK": 2048, "num_warps": 4, "STEPS": 4, "num_stages": 3}),
        ("silu_mul", {"M": 4096, "N": 11007, "packed": True}, {"SHIFTED": True, "num_stages": 1, "STEPS": 1}),
    ]
    whole, packed, odd, pipelined, moved = json.loads(printed(COMPILES.replace("CASES", repr(cases))).splitlines()[-1])

    def widths(ptx: str) -> set[str]:
        return set(re.findall(r"(?:ld|st)\.global\S*?((?:\.v\d)?\.b\d+)\s", ptx))

    assert widths(whole) == {".v4.b32"}
    assert widths(packed) == {".v2.b32"}
    assert widths(odd) == {".v4.b32", ".b32"}  # the last program masks each element
    assert widths(moved) == {".v4.b32", ".b16"}  # the ends of rows
    assert "cp.async.cg.shared.global" in pipelined
    for name in ("ex2.approx.ftz.f32", "rcp.approx.ftz.f32"):
        assert name in whole


class TestValues:
    @pytest.mark.filterwarnings("ignore:(overflow|invalid value|divide by zero) encountered:RuntimeWarning")
    def test_special_values_are_as_in_torch(self) -> None:
        x = torch.tensor([0.0, -0.0, INF, -INF, NAN, 1e30, -1e30, 3e-38, 89.0, -89.0, 200.0, -200.0])
        for dtype in (torch.float32, torch.bfloat16):
            wide = x.to(dtype).double()
            expected = {
                "silu": torch.nn.functional.silu(wide),
                "none": torch.nn.functional.gelu(wide),
                "tanh": torch.nn.functional.gelu(wide, approximate="tanh"),
            }
            got = {
                "silu": run("silu", dtype, x),
                "none": run("gelu", dtype, x),
                "tanh": run("gelu", dtype, x, approximate="tanh"),
            }
            for name, want in expected.items():
                assert torch.allclose(got[name].double(), want, rtol=0.01, atol=1e-30, equal_nan=True), (name, dtype)
                assert torch.equal(got[name].signbit()[:2], want.signbit()[:2])

    def test_gelu_of_16_bits_rounds_once_also_if_it_is_small(self) -> None:
        """Each result is near its own value, and not only near those of its row. Half an epsilon is a rounding."""
        x = torch.linspace(-5, 5, 4001).half()
        expected = torch.nn.functional.gelu(x.double())
        info = torch.finfo(x.dtype)
        apart = (run("gelu", x.dtype, x).double() - expected).abs()
        assert (apart <= 0.6 * info.eps * expected.abs() + info.tiny * info.eps).all()

    def test_a_sum_of_16_bits_is_rounded_once(self) -> None:
        x, y = torch.linspace(-7, 7, 777).half(), torch.linspace(-1000, 3, 777).half()
        assert torch.equal(run("add", torch.float16, x, y), x + y)

    def test_an_input_may_be_the_output(self) -> None:
        x = torch.linspace(-5, 5, 1000)
        kernel = catalog.load("silu")
        problem = kernel.signature.problem({"N": 1000, "dtype": "fp32"})
        config = kernel.signature.config(
            {"BLOCK": 256, "STEPS": 2, "EVICT_FIRST": False, "num_warps": 1, "num_stages": 2}
        )
        values = x.clone()
        for launch in kernel.launch(problem, config, {"x": values, "out": values}):
            launch()
        assert torch.allclose(values, torch.nn.functional.silu(x), atol=1e-6)


class TestSpace:
    def sizes(self, kernel: Kernel, problem: Problem) -> int:
        return len(list(feasible(kernel, problem, H200.limits)))

    @pytest.mark.parametrize("op", OPS)
    def test_it_is_recorded_in_seconds_and_has_the_usual_winners(self, op: str) -> None:
        kernel = catalog.load(op)
        problem = kernel.signature.problem({"N": 2**22, "M": 4, "dtype": "bf16"})
        assert 100 <= self.sizes(kernel, problem) <= 200
        for block, warps in ((1024, 4), (4096, 8), (8192, 16), (2048, 4)):
            knobs = {"BLOCK": block, "STEPS": 1, "EVICT_FIRST": False, "num_warps": warps, "num_stages": 1}
            assert kernel.valid(problem, kernel.signature.config(knobs), H200.limits)
        looped = {"BLOCK": 1024, "STEPS": 4, "EVICT_FIRST": False, "num_warps": 4, "num_stages": 4}
        assert kernel.valid(problem, kernel.signature.config(looped), H200.limits)

    def test_no_thread_is_without_an_access_and_no_stage_without_a_block(self) -> None:
        kernel = catalog.load("silu")
        problem = kernel.signature.problem({"N": 2**24, "dtype": "bf16"})
        good = {"BLOCK": 1024, "STEPS": 4, "EVICT_FIRST": False, "num_warps": 4, "num_stages": 4}
        assert kernel.valid(problem, good, H200.limits)
        for worse in ({"num_warps": 8}, {"num_warps": 1, "BLOCK": 4096}, {"STEPS": 2}, {"EVICT_FIRST": True}):
            assert not kernel.valid(problem, good | worse, H200.limits)

    def test_one_warp_loops_over_one_row_at_a_time(self) -> None:
        """Triton 3.6 compiles some loops of one warp over several rows wrongly."""
        kernel = catalog.load("silu")
        looped: dict[str, Any] = {"BLOCK": 512, "STEPS": 4, "EVICT_FIRST": False, "num_warps": 1, "num_stages": 4}
        for N, rows, warps in ((1152, 2, [2, 4]), (1024, 1, [1, 2, 4])):
            values = {"M": 64, "N": N, "dtype": "fp32"}
            assert compiled_in(launched("silu", values, **looped), "ROWS") == (rows,)
            problem = kernel.signature.problem(values)
            found = [count for count in (1, 2, 4) if kernel.valid(problem, looped | {"num_warps": count}, H200.limits)]
            assert found == warps

    @pytest.mark.parametrize("op", OPS)
    def test_the_default_spreads_few_elements_over_the_card(self, op: str) -> None:
        kernel = catalog.load(op)
        loop = 2 if op in ("add", "silu_mul") else 4
        for N, steps, block in ((2**26, loop, 1024), (2**20, 1, 2048), (2**17, 1, 256), (1000, 1, 256)):
            problem = kernel.signature.problem({"N": N, "M": 1, "dtype": "bf16"})
            config = kernel.default_config(problem, H200.limits)
            assert (config["STEPS"], config["BLOCK"]) == (steps, block)
            assert kernel.valid(problem, config, H200.limits)

    @pytest.mark.parametrize(("N", "steps"), [(8192, 4), (6144, 2), (5120, 1), (8188, 1), (100, 1)])
    def test_the_default_loops_over_rows_that_are_whole_loops(self, N: int, steps: int) -> None:
        kernel = catalog.load("gelu")
        problem = kernel.signature.problem({"N": N, "M": 2**20, "dtype": "bf16"})
        config = kernel.default_config(problem, H200.limits)
        assert (config["STEPS"], config["num_stages"]) == (steps, steps)
