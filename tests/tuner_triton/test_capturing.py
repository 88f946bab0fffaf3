"""Mode capture: which calls are stored, what is stored of them, and what is refused with one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from autotuned import Card, Recorded, grid, pair_, scale_, tensors, tiled_
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.captured.call import Contents, DescriptorArgument, DtypeArgument, Grids, TensorArgument
from tuner.triton.describe import complete, describe
from tuner.triton.refusal import CannotCapture
from tuner.triton.settings import AutotuneSettings

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    monkeypatch.setenv("TUNER_AUTOTUNE", "capture")
    made = Card(tmp_path / "tuner.db", monkeypatch)
    monkeypatch.setenv("TUNER_AUTOTUNE", "capture")
    return made


def test_a_miss_is_stored_once_for_a_key_and_a_hit_is_not(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(500), config=STORED)
    for n in (1000, 1000, 2000, 500):
        tuner[grid](*tensors(n))
    assert tuner.fn.blocks == [64, 64, 64, 128]
    found = card.captured()
    assert [(stored.problem, stored.count, stored.device) for stored in found] == [
        ("autotuned_scale n=1000 dtype=fp32", 1, "nvidia-h200"),
        ("autotuned_scale n=2000 dtype=fp32", 1, "nvidia-h200"),
    ]
    call = found[0].call
    assert (call.function.module, call.function.name) == ("autotuned", "scale")
    assert call.key == {"n": 1000}
    assert call.configs == tuple(
        {"BLOCK": b, "num_warps": w, "num_stages": 3} for b, w in ((64, 2), (128, 4), (256, 8))
    )
    assert call.grids == Grids(("BLOCK",), {(b,): (-(-1000 // b),) for b in (64, 128, 256, 32, 512)})
    x = call.arguments["x"]
    assert isinstance(x, TensorArgument)
    assert (x.shape, x.strides, x.dtype, x.contents.low, x.contents.high) == ((1000,), (1,), "fp32", 0.0, 999.0)
    assert x.contents.mean == pytest.approx(499.5)
    assert x.contents.deviation == pytest.approx(288.675, abs=0.01)


def test_an_answer_that_is_stored_later_ends_capturing(card: Card) -> None:
    tuner = card.tuner()
    tuner[grid](*tensors())
    call = card.captured()[0]
    card.keep(tuner, *tensors(), config=STORED)
    card.client.refresh()
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64, 128]
    assert [stored.count for stored in card.captured()] == [call.count]


def test_values_of_small_integer_tensors_are_kept_and_can_be_kept_out(card: Card) -> None:
    integers = torch.tensor([3, 1, 4, 1, 5], dtype=torch.int32)
    flags = torch.tensor([[True, False], [False, True]])
    offsets = torch.arange(0, 80, 8)
    _, out, n = tensors(4)
    tuner = card.tuner()

    def contents(**options: Any) -> list[Contents]:
        args = integers, flags, n, offsets
        call = complete(describe(tuner, args, {}), tuner, args, {}, (1,), **options)
        return [each.contents for each in call.arguments.values() if isinstance(each, TensorArgument)]

    assert contents() == [
        Contents((3, 1, 4, 1, 5)),
        Contents((1, 0, 0, 1)),
        Contents(tuple(range(0, 80, 8))),
    ]
    out_of_values = [Contents(low=1, high=5), Contents(low=0, high=1), Contents(low=0, high=72, is_sorted=True)]
    assert contents(values=False) == out_of_values
    assert contents(settings=AutotuneSettings(max_values=3)) == out_of_values
    card.patch.setenv("TUNER_CAPTURE_VALUES", "0")
    tuner[grid](integers, out, n)
    assert card.captured()[0].call.arguments["x"].contents == Contents(low=1, high=5)


def test_floats_are_described_by_a_sample_of_the_finite_ones(card: Card) -> None:
    x = torch.randn(300, 400).mul(3).add(1).bfloat16()[:, ::2]
    x[0, 0], x[1, 1] = float("inf"), float("nan")
    tuner = card.tuner()

    def contents(given: torch.Tensor) -> Contents:
        args = (given, torch.empty(3), 8)
        call = complete(describe(tuner, args, {}), tuner, args, {}, (1,), settings=AutotuneSettings(max_sampled=10_000))
        found = call.arguments["x"]
        assert isinstance(found, TensorArgument)
        return found.contents

    found = contents(x)
    assert found.low is not None
    assert found.high is not None
    assert found.mean is not None
    assert found.deviation is not None
    assert -20 < found.low < -6
    assert 8 < found.high < 20
    assert found.mean == pytest.approx(1, abs=0.2)
    assert found.deviation == pytest.approx(3, abs=0.2)
    assert contents(torch.full((4,), float("nan"))) == Contents()
    assert contents(torch.empty(0)) == Contents()


def test_tensors_that_are_the_same_or_slices_of_one_are_told(card: Card) -> None:
    x, out, n = tensors()
    tuner = card.tuner()
    in_place = complete(describe(tuner, (x, x, n), {}), tuner, (x, x, n), {}, (1,))
    same = in_place.arguments["out"]
    assert isinstance(same, TensorArgument)
    assert same.same_as == "x"
    qkv = torch.randn(32, 3, 4, 16, dtype=torch.float16)
    q, k, v = qkv[:, 0], qkv[:, 1], qkv[:, 2]
    pair = card.tuner(Recorded(pair_), name="pair")
    args = q, k, v, 32, tl.float32
    call = complete(describe(pair, args, {}), pair, args, {}, (1,))
    assert [each.same_as for each in call.arguments.values() if isinstance(each, TensorArgument)] == ["", "", ""]
    assert call.arguments["OUT"] == DtypeArgument("float32")
    with pytest.raises(
        CannotCapture, match=r"^tensors of a captured call are the same or share no memory, and out overl"
    ):
        complete(describe(tuner, (x, x[1:], n), {}), tuner, (x, x[1:], n), {}, (1,))
    shifted = describe(tuner, (x[1:], out, n), {}).arguments["x"]
    assert isinstance(shifted, TensorArgument)
    assert shifted.offset == 4


def test_arguments_are_plain_as_triton_takes_them(card: Card) -> None:
    import numpy

    pair = card.tuner(Recorded(pair_), key=("n", "OUT"), name="pair")
    base = torch.empty(64, 32, dtype=torch.bfloat16)
    descriptor = TensorDescriptor(base, [64, 32], [32, 1], [16, 32])
    args = descriptor, torch.tensor(5), float("inf"), numpy.int64(7), tl.constexpr("text")
    call = describe(pair, args, {"grid": (1,), "warmup": False, "launch_pdl": True})
    assert call.key == {"n": 7, "OUT": "text"}
    assert call.options == {"launch_pdl": True}
    assert call.arguments == {
        "q": DescriptorArgument(TensorArgument((64, 32), (32, 1), "bf16", 0), (64, 32), (32, 1), (16, 32)),
        "k": TensorArgument((), (), "int64", args[1].data_ptr() % 16),
        "v": float("inf"),
        "n": 7,
        "OUT": "text",
    }
    assert describe(pair, (base, base, base, 1, tl.bfloat16), {}).key == {"n": 1, "OUT": "bfloat16"}


def test_reset_restored_and_options_of_the_configs_are_kept(card: Card) -> None:
    configs = [triton.Config({"BLOCK": 64}, num_ctas=2), triton.Config({"BLOCK": 32, "MORE": 1}, maxnreg=64)]
    tuner = card.tuner(configs=configs, reset_to_zero=["out"], restore_value=["x"])
    call = describe(tuner, tensors(), {})
    assert (call.reset, call.restored) == (("out",), ("x",))
    x, _, n = tensors()
    assert describe(tuner, (x, None, n), {}).reset == ()
    assert call.configs == (
        {"BLOCK": 64, "MORE": None, "num_warps": 4, "num_stages": 3, "num_ctas": 2, "maxnreg": None},
        {"BLOCK": 32, "MORE": 1, "num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": 64},
    )


def tiled(card: Card, function: Any = None) -> Any:
    configs = [
        triton.Config({"BLOCK_M": m, "BLOCK_N": n, "SPLIT": s}, num_warps=w)
        for m, n, s, w in ((64, 32, 1, 4), (128, 32, 2, 8))
    ]
    fn = Recorded(tiled_)
    return card.tuner(function(fn) if function else fn, configs, ("n", "m"), name="tiled")


def grids_of(tuner: Any, grid: Any, **options: Any) -> Grids:
    args, kwargs = (torch.empty(8), 256, 512), {"grid": grid, "warmup": False, **options}
    return complete(describe(tuner, args, kwargs), tuner, args, kwargs, grid).grids


def test_a_grid_depends_on_the_knobs_that_it_reads(card: Card) -> None:
    tuner = tiled(card)
    by_m = grids_of(tuner, lambda meta: (triton.cdiv(meta["n"], meta["BLOCK_M"]),))
    assert by_m == Grids(("BLOCK_M",), {(32,): (8,), (64,): (4,), (128,): (2,), (256,): (1,)})
    assert grids_of(tuner, (3, 4)) == Grids((), {(): (3, 4)})
    assert grids_of(tuner, lambda meta: [meta["n"], 1, 2]) == Grids((), {(): (256, 1, 2)})
    rarely = grids_of(tuner, lambda meta: (meta["BLOCK_N"] if meta["SPLIT"] > 1 else 1,))
    assert rarely.knobs == ("BLOCK_N", "SPLIT")
    assert rarely.of({"BLOCK_N": 64, "SPLIT": 2}) == (64,)
    everything = grids_of(tuner, lambda meta: (len({**meta}),))
    assert everything.knobs == ("BLOCK_M", "BLOCK_N", "SPLIT")
    failing = grids_of(tuner, lambda meta: (64 // (meta["BLOCK_M"] - 32),))
    assert failing.sizes == {(64,): (2,), (128,): (0,), (256,): (0,)}


def test_a_grid_depends_on_the_knobs_that_its_heuristics_read(card: Card) -> None:
    steps = triton.heuristics({"STEPS": lambda args: args["num_warps"] * args["BLOCK_M"]})
    found = grids_of(tiled(card, steps), lambda meta: (meta["STEPS"], meta["BLOCK_N"]))
    assert found.knobs == ("BLOCK_M", "BLOCK_N", "num_warps")
    assert found.of({"BLOCK_M": 128, "BLOCK_N": 32, "num_warps": 8}) == (1024, 32)


def test_too_many_grids_are_those_of_the_listed_configs(card: Card) -> None:
    tuner, everything = tiled(card), (lambda meta: (meta["BLOCK_M"], meta["BLOCK_N"], meta["SPLIT"]))
    args, kwargs = (torch.empty(8), 256, 512), {"grid": everything}
    call = describe(tuner, args, kwargs)
    found = complete(call, tuner, args, kwargs, everything, settings=AutotuneSettings(max_grids=8)).grids
    assert found.sizes == {(64, 32, 1): (64, 32, 1), (128, 32, 2): (128, 32, 2)}


def boom(meta: Any) -> Any:
    raise KeyError("K")


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        (lambda card: describe(card.tuner(), (1, (2, 3), 4), {}), "a captured call has no tuples, and out is (2, 3)"),
        (
            lambda card: describe(card.tuner(), (1, card, 4), {}),
            "the argument out is a number, a text, a bool, None or",
        ),
        (
            lambda card: describe(card.tuner(), (torch.empty(2, dtype=torch.complex64), 1, 4), {}),
            "the argument x: a dtype is one of fp64",
        ),
        (
            lambda card: describe(card.tuner(key=("x",)), tensors(), {}),
            "a key has numbers, texts and dtypes, and x is a tensor; name its sizes instead",
        ),
        (
            lambda card: describe(card.tuner(configs=[triton.Config({"BLOCK": (1, 2)})]), tensors(), {}),
            "the value of BLOCK in a config is a number, a text, a bool, None or a dtype, not (1, 2)",
        ),
        (
            lambda card: describe(card.tuner(configs=[triton.Config({}, ir_override="x.ttir")]), tensors(), {}),
            "a config of a captured function has no ir_override, and one has; remove it",
        ),
        (lambda card: grids_of(tiled(card), boom), "the grid is evaluated for each config, and raises KeyError: 'K'"),
        (
            lambda card: grids_of(tiled(card), (1, 2, 3, 4)),
            "a grid is a tuple of one to three numbers, not (1, 2, 3, 4)",
        ),
    ],
)
def test_what_cannot_be_captured_is_refused_with_one_line(card: Card, wrong: Any, line: str) -> None:
    with pytest.raises(CannotCapture) as refused:
        wrong(card)
    assert str(refused.value).startswith(line)
    assert "\n" not in str(refused.value)


def test_a_refusal_is_one_line_a_function_and_launches(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    x, _, n = tensors()
    tuner = card.tuner()
    for size in (n, n - 1):
        tuner[grid](x, x[1:], size)
    inside = card.tuner(Recorded(scale_), name="inside")
    card.patch.delattr("autotuned.inside")
    card.patch.delattr("autotuned.scale")
    for size in (n, n - 1):
        inside[grid](*tensors(size))
    assert (tuner.fn.blocks, inside.fn.blocks) == ([64, 64], [64, 64])
    assert [line for line in caplog.messages if "captured" in line and "launched" not in line] == [
        "scale_ is not captured: tensors of a captured call are the same or share no memory, and out overlaps x "
        "partly; pass a copy of one",
        "scale_ is not captured: a captured function is defined at the top level of its module, and scale_ of "
        "autotuned is not; move it there, so that a worker process can load it",
    ]


def test_a_call_during_graph_capture_is_captured_later(card: Card) -> None:
    tuner = card.tuner()
    tuner[grid](*tensors())
    card.is_recording = True
    tuner[grid](*tensors(2000))
    assert len(card.captured()) == 1
    card.is_recording = False
    tuner[grid](*tensors(2000))
    assert len(card.captured()) == 2


def test_a_process_captures_a_bounded_number(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    card.context.settings = AutotuneSettings(max_captured=2)
    tuner = card.tuner()
    for n in (1, 2, 3, 4):
        tuner[grid](*tensors(n))
    assert len(card.captured()) == 2
    assert caplog.messages[-1] == "a process captures up to 2 calls; no more are captured"


def test_a_database_that_cannot_be_written_costs_one_line(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    tuner = card.tuner()
    tuner[grid](*tensors(1))
    with closing(sqlite3.connect(card.path)) as connection, connection:
        connection.execute("ALTER TABLE captured RENAME TO gone")
    for n in (2, 3):
        tuner[grid](*tensors(n))
    assert tuner.fn.blocks == [64] * 3
    assert len([line for line in caplog.messages if line.startswith("no more calls are captured, since")]) == 1


def test_a_script_has_the_name_of_its_file(card: Card) -> None:
    from tuner.captured.call import Function
    from tuner.triton.place import op_of

    assert op_of(Function("__main__", "/home/me/03-matrix-multiplication.py", "matmul_kernel")) == (
        "matrix_multiplication_matmul_kernel"
    )
    assert op_of(Function("__main__", "/x/trainer/__main__.py", "add")) == "trainer_add"
    assert op_of(Function("fla.ops.common.chunk_o", "/x/chunk_o.py", "chunk_fwd")) == "fla_ops_common_chunk_o_chunk_fwd"


def test_a_function_may_be_tuned_in_another_module_than_its_own(card: Card) -> None:
    tuner = card.tuner(name="scale")
    card.patch.delattr("autotuned.scale")
    card.patch.setattr("helpers.scaled_elsewhere", tuner, raising=False)
    tuner[grid](*tensors())
    assert [stored.problem for stored in card.captured()] == ["helpers_scaled_elsewhere n=1000 dtype=fp32"]


def test_an_op_of_ones_own_is_captured_under_it(card: Card) -> None:
    from tuner.triton.choice import Stated

    tuner = card.tuner(stated=Stated(op="my_scale", values=False))
    tuner[grid](*tensors())
    assert [stored.problem for stored in card.captured()] == ["my_scale n=1000 dtype=fp32"]
