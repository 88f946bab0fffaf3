"""`tuner.launch`: kernels of users on tensors, without a GPU: the reference is computed in place of the kernel."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from calls import blocks, call_of, configs, tensor
from helpers import H200, toy
from torch import Tensor

from tuner import catalog
from tuner.captured.kernel import kernel_of
from tuner.client import Client
from tuner.errors import UnknownName, UsageError
from tuner.kernels.calling import Tensors
from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Launch, Limits, Operand, Problem, Signature
from tuner.launching.inferred import check_strides, problem_of
from tuner.launching.launch import Launches, LaunchSettings, Ready

DOUBLE = catalog.resolve(toy("double"))
X, OUT = torch.ones(96), torch.zeros(96)


class Card:
    """Stand-in for a card: a launch writes twice `x` to `out`, given addresses or tensors."""

    def __init__(self, by_tensor: bool = False) -> None:
        self.prepared: list[str] = []
        self.launched: list[tuple[int, ...]] = []
        self.by_tensor = by_tensor

    def ready(self, client: Client, kernel: Kernel, problem: Problem, tensors: Tensors) -> Ready:
        check_strides(kernel, problem, tensors, H200.limits)
        self.prepared.append(problem.text)
        places = {tensor.data_ptr(): weakref.ref(tensor) for tensor in tensors.values()}
        if self.by_tensor:
            return Ready(None, lambda given: given["out"].copy_(2 * given["x"]))
        assert places
        return Ready(self.launched.append)


@pytest.fixture
def card() -> Card:
    return Card()


@pytest.fixture
def launches(card: Card) -> Launches:
    return Launches(Client(), ready_of=card.ready, runs_on="cpu")


def test_a_kernel_is_launched_on_its_tensors(launches: Launches, card: Card) -> None:
    for _ in range(3):
        launches.launch(toy("double"), x=X, out=OUT)
    assert card.prepared == ["double N=96 dtype=fp32"]
    assert card.launched == [(X.data_ptr(), OUT.data_ptr())] * 3
    x, out = torch.ones(96), torch.ones(96)
    launches.launch(toy("double"), out=out, x=x)
    assert card.launched[-1] == (x.data_ptr(), out.data_ptr())
    x, out = torch.ones(97), torch.ones(97)
    launches.launch(toy("double"), out=out, x=x)
    assert card.launched[-1] == (x.data_ptr(), out.data_ptr())
    assert len(card.prepared) == 2


@pytest.mark.parametrize("named", [toy("double"), Path(toy("double")), DOUBLE, replace(DOUBLE)])
def test_a_kernel_is_a_file_or_the_kernel_itself(named: Any, launches: Launches, card: Card) -> None:
    for _ in range(2):
        launches.launch(named, x=X, out=OUT)
    assert len(card.launched) == 2
    assert len(card.prepared) == 1


def test_an_op_is_found_by_its_name(launches: Launches, card: Card) -> None:
    a, b, out = (torch.empty(size).bfloat16() for size in ((32, 48), (48, 64), (32, 64)))
    launches.launch("gemm", a=a, b=b, out=out, activation="silu")
    launches.launch("gemm", a=a, b=b, out=out)
    assert card.prepared == [
        "gemm M=32 N=64 K=48 dtype=bf16 activation=silu",
        "gemm M=32 N=64 K=48 dtype=bf16",
    ]


def test_a_launch_that_needs_its_tensors_gets_them() -> None:
    card = Card(by_tensor=True)
    launches = Launches(Client(), ready_of=card.ready, runs_on="cpu")
    for x in (torch.ones(8), torch.full((8,), 3.0)):
        out = torch.zeros(8)
        launches.launch(toy("double"), x=x, out=out)
        assert torch.equal(out, 2 * x)
    assert len(card.prepared) == 1


DIFFERENT: dict[str, Callable[[], Mapping[str, Any]]] = {
    "shape": lambda: {"x": torch.ones(97), "out": torch.ones(97)},
    "alignment": lambda: {"x": torch.ones(97)[1:], "out": OUT},
    "type": lambda: {"x": torch.nn.Parameter(torch.ones(96), requires_grad=False), "out": OUT},
    "a stated dim": lambda: {"x": X, "out": OUT, "N": 96},
    "no attribute": lambda: {"x": X, "out": OUT, "bias": None},
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_tensors_of_another_kind_are_prepared_for(what: str, launches: Launches, card: Card) -> None:
    launches.launch(toy("double"), x=X, out=OUT)
    for _ in range(2):
        given = DIFFERENT[what]()
        launches.launch(toy("double"), **given)
    assert len(card.prepared) == (1 if what == "type" else 2)
    launches.launch(toy("double"), x=X, out=OUT)
    assert card.launched[-1] == (X.data_ptr(), OUT.data_ptr())
    assert len(card.prepared) == (1 if what == "type" else 2)


def packed(problem: Problem) -> dict[str, Operand]:
    M, N, K = problem.sizes
    if K % 64:
        raise ValueError("K is a multiple of 64")
    outs = {"out": Operand((M, N), "fp32", "out")}
    halves = {"w": Operand((N, K // 2), "uint8"), "scales": Operand((K // 64, N), problem.dtype)}
    return {"a": Operand((M, K), problem.dtype), **halves, **outs} | (
        {"bias": Operand((N,), problem.dtype)} if problem["bias"] else {}
    )


def launch_of(problem: Problem, config: Any, tensors: Tensors) -> tuple[Launch, ...]:
    a, out = tensors["a"], tensors["out"]
    own = {"num_warps": 4, "num_stages": 1}
    return (Launch(jit(), (1,), (a, a.stride(0), tensors["w"], out, out.stride(0), out.stride(1)), own),)


def jit() -> Any:
    class Jit:
        warmup, __getitem__, arg_names = (None, None, ())

    return Jit


PACKED = Kernel(
    signature=Signature(
        op="packed",
        dims=(Dim("M"), Dim("N"), Dim("K")),
        dtypes=("bf16", "fp16"),
        attributes=(Attribute("bias", (False, True), False),),
        knobs=(Knob("num_warps", (4,)), Knob("num_stages", (1,))),
    ),
    operands=packed,
    launch=launch_of,
    reference=lambda problem, tensors, rows: {},
    default=lambda problem, limits: {"num_warps": 4, "num_stages": 1},
)


def tensors_of(M: int = 3, N: int = 5, K: int = 128, dtype: torch.dtype = torch.float16) -> dict[str, Tensor]:
    return {
        "a": torch.zeros(M, K, dtype=dtype),
        "w": torch.zeros(N, K // 2, dtype=torch.uint8),
        "scales": torch.zeros(K // 64, N, dtype=dtype),
        "out": torch.zeros(M, N),
    }


def test_dims_and_dtype_are_read_from_the_tensors() -> None:
    for dtype, name in ((torch.float16, "fp16"), (torch.bfloat16, "bf16")):
        problem = problem_of(PACKED, tensors_of(3, 7, 192, dtype), {})
        assert problem.text == f"packed M=3 N=7 K=192 dtype={name}"
    bias = {"bias": torch.zeros(5, dtype=torch.float16)}
    assert problem_of(PACKED, {**tensors_of(), **bias}, {"bias": True, "K": 128}).text.endswith("bias=True")


def without(name: str) -> dict[str, Tensor]:
    return {other: tensor for other, tensor in tensors_of().items() if other != name}


MISFITS: list[tuple[dict[str, Tensor], dict[str, object], str]] = [
    (
        {**tensors_of(), "out": torch.zeros(5, 3)},
        {},
        "packed takes out of shape (3, 5) here, not (5, 3); correct it",
    ),
    (
        {**tensors_of(), "w": torch.zeros(5, 64)},
        {},
        "packed takes w of dtype uint8 here, not float32; convert it with .to()",
    ),
    (without("scales"), {}, "packed also takes scales, a tensor of shape (2, 5) and dtype float16 here; pass scales="),
    ({**tensors_of(), "b": torch.zeros(5)}, {}, "packed takes a, w, scales, out here, not b; leave it out"),
    (tensors_of(), {"K": 256}, "packed takes a of shape (3, 256) here, not (3, 128)"),
    (tensors_of(), {"bias": True}, "packed also takes bias, a tensor of shape (5,) and dtype float16 here"),
    (tensors_of(), {"bias": "maybe"}, "packed: bias is"),
    ({"w": torch.zeros(5, 64, dtype=torch.uint8)}, {}, "packed: M cannot be read from shapes of w; give M=SIZE"),
]


@pytest.mark.parametrize(("tensors", "stated", "message"), MISFITS, ids=[message[:50] for *_, message in MISFITS])
def test_tensors_that_do_not_fit_are_named_with_what_is_expected(
    tensors: dict[str, Tensor], stated: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        problem_of(PACKED, tensors, stated)
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_strides_that_launch_passes_on_are_taken_and_no_others() -> None:
    usual = tensors_of()
    problem = problem_of(PACKED, usual, {})
    wide, columns = torch.zeros(3, 256, dtype=torch.float16), torch.zeros(5, 3).t()
    check_strides(PACKED, problem, usual | {"a": wide[:, :128], "out": columns}, H200.limits)
    with pytest.raises(UsageError) as refused:
        check_strides(PACKED, problem, usual | {"a": wide[:, ::2]}, H200.limits)
    assert str(refused.value) == "packed takes a with strides (128, 1) here, not (256, 2); pass a.contiguous()"
    with pytest.raises(UsageError, match=r"packed takes w with strides \(64, 1\) here"):
        check_strides(PACKED, problem, usual | {"w": torch.zeros(64, 5, dtype=torch.uint8).t()}, H200.limits)


def test_a_captured_call_is_launched_on_tensors_like_its_own(launches: Launches, card: Card) -> None:
    blocks_of = configs(BLOCK=(32, 64), num_warps=(1, 4))
    arguments: dict[str, Any] = {"x": tensor(96), "out": tensor(96), "n": 96}
    kernel = kernel_of(call_of("assigned", arguments, blocks_of, blocks(96)))
    for _ in range(2):
        launches.launch(kernel, x=X, out=OUT)
    assert card.prepared == [kernel.problem.text]
    assert len(card.launched) == 2
    with pytest.raises(UsageError, match=r"takes x of shape \(96,\) here, not \(95,\)"):
        launches.launch(kernel, x=X[1:], out=OUT)
    with pytest.raises(UsageError, match="a captured call has one problem"):
        launches.launch(kernel, x=X, out=OUT, n=97)


LINE = torch.zeros(200)
REFUSED: dict[str, tuple[Callable[[Launches], object], str]] = {
    "no tensors": (lambda it: it.launch(DOUBLE), "double got none; add x=x"),
    "no tensor": (lambda it: it.launch(DOUBLE, x=[1.0], out=OUT), "double takes tensors, and x is list; convert"),
    "no kernel": (lambda it: it.launch(toy, x=X), "a kernel file or a Kernel, not function; call a decorated function"),  # type: ignore[arg-type]
    "an unknown name": (lambda it: it.launch(DOUBLE, x=X, out=OUT, y=3), "double takes tensors, and y is int"),
    "a gradient": (
        lambda it: it.launch(DOUBLE, x=torch.ones(96, requires_grad=True), out=OUT),
        "tuner.launch has no backward pass, and a tensor requires a gradient; call it under torch.no_grad()",
    ),
    "the CPU": (lambda it: replace_card(it).launch(DOUBLE, x=X, out=OUT), "double runs on a GPU, and its tensors are"),
    "two devices": (lambda it: it.launch(DOUBLE, x=X, out=OUT.to("meta")), "x is on cpu but out is on meta; move"),
    "out is x": (lambda it: it.launch(DOUBLE, x=X, out=X), "double cannot write over what it reads, and out shares"),
    "an overlap": (lambda it: it.launch(DOUBLE, x=LINE[:96], out=LINE[90:186]), "out shares memory with x; pass x.cl"),
    "out expanded": (lambda it: it.launch(DOUBLE, x=X, out=torch.zeros(1).expand(96)), "out has strides (0,); pass a"),
    "negative": (
        lambda it: it.launch(DOUBLE, x=torch._neg_view(X), out=OUT),
        "x is a negative view; pass x.resolve_neg()",
    ),
    "another dtype": (lambda it: it.launch(DOUBLE, x=X.half(), out=OUT), "double takes x of dtype float32 here"),
    "another shape": (lambda it: it.launch(DOUBLE, x=X, out=OUT[:95]), "double takes out of shape (96,) here"),
    "strides": (lambda it: it.launch(DOUBLE, x=LINE[:192:2], out=OUT), "double takes x with strides (1,) here, not"),
    "sparse": (lambda it: it.launch(DOUBLE, x=X.to_sparse(), out=OUT), "double takes dense tensors, and x is sparse"),
}


def replace_card(launches: Launches) -> Launches:
    return Launches(Client(), ready_of=launches.ready_of)


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("after", ["nothing", "a launch"])
def test_a_call_that_does_not_fit_is_refused(what: str, after: str, launches: Launches, card: Card) -> None:
    if after == "a launch" and what != "two devices":  # both have no index here
        launches.launch(DOUBLE, x=LINE[:96], out=OUT)
        launches.launch(DOUBLE, x=X, out=OUT)
    call, message = REFUSED[what]
    before = len(card.launched)
    with pytest.raises(UsageError) as refused:
        call(launches)
    assert message in str(refused.value)
    assert ";" in str(refused.value)
    assert "\n" not in str(refused.value)
    assert len(card.launched) == before


def test_scalars_are_given_by_name() -> None:
    prepared: list[Mapping[str, Any]] = []

    def ready(client: Client, kernel: Kernel, problem: Problem, operands: Mapping[str, Any]) -> Ready:
        prepared.append({name: value for name, value in operands.items() if not isinstance(value, Tensor)})
        return Ready(lambda at: None)

    launches, x = Launches(Client(), ready_of=ready, runs_on="cpu"), torch.ones(3, 8)
    given = {"x": x, "out": torch.empty(3, 8), "weight": False}
    for eps in ({"eps": 1e-3}, {}, {"eps": 1e-3}, {"eps": 1}):
        launches.launch("rms_norm", **given, **eps)
    assert prepared == [{"eps": 1e-3}, {"eps": 1e-6}, {"eps": 1.0}]
    for wrong in ("1e-3", torch.tensor(1e-3)):
        with pytest.raises(UsageError, match=r"rms_norm's eps is a number, not .*; convert it with float\(\)"):
            launches.launch("rms_norm", **given, eps=wrong)


def test_a_tensor_without_memory_is_refused_after_one_with_memory(launches: Launches, card: Card) -> None:
    freed = X.clone()
    launches.launch(DOUBLE, x=freed, out=OUT)
    freed.untyped_storage().resize_(0)
    with pytest.raises(UsageError, match="reads and writes memory, and x has none"):
        launches.launch(DOUBLE, x=freed, out=OUT)


def test_an_unknown_kernel_is_named(launches: Launches) -> None:
    with pytest.raises(UnknownName, match="no kernel is called 'gem'"):
        launches.launch("gem", x=X)


def test_tensors_beside_each_other_are_launched(launches: Launches, card: Card) -> None:
    for _ in range(2):
        launches.launch(DOUBLE, x=LINE[:96], out=LINE[96:192])
    assert len(card.launched) == 2


def test_a_refresh_prepares_again(launches: Launches, card: Card) -> None:
    launches.launch(DOUBLE, x=X, out=OUT)
    launches._prepare_again()
    launches.launch(DOUBLE, x=X, out=OUT)
    assert len(card.prepared) == 2


def test_names_beyond_the_limit_are_prepared_again(card: Card) -> None:
    launches = Launches(Client(), LaunchSettings(most_forms=2), card.ready, "cpu")
    for stated in ({}, {"N": 96}, {"dtype": "fp32"}, {}):
        launches.launch(DOUBLE, x=X, out=OUT, **stated)
    assert len(card.prepared) == len(card.launched) == 4
    launches.launch(DOUBLE, x=X, out=OUT)
    assert len(card.prepared) == 4


def test_no_tensor_is_kept_and_no_more_launches_than_is_set(card: Card) -> None:
    launches = Launches(Client(), LaunchSettings(most_prepared=3, most_kernels=2), card.ready, "cpu")
    watched = []
    for size in range(1, 8):
        x, out = torch.ones(size), torch.ones(size)
        launches.launch(DOUBLE, x=x, out=out)
        watched += [weakref.ref(x), weakref.ref(out)]
    del x, out
    gc.collect()
    assert [each() for each in watched] == [None] * 14
    assert launches.kept == 3
    for _ in range(3):
        launches.launch(replace(DOUBLE), x=X, out=OUT)
    assert len(launches.calls) == len(launches._forms) == 2


def test_threads_launch_what_they_ask_for(launches: Launches, card: Card) -> None:
    def work(number: int) -> list[tuple[int, ...]]:
        own = []
        for step in range(50):
            x, out = torch.ones(1 + (number + step) % 5), torch.ones(1 + (number + step) % 5)
            launches.launch(DOUBLE, **({"x": x, "out": out} if step % 2 else {"out": out, "x": x}))
            own.append(tuple(sorted((x.data_ptr(), out.data_ptr()))))
        return own

    with ThreadPoolExecutor(8) as pool:
        asked = [pair for own in pool.map(work, range(8)) for pair in own]
    assert sorted(tuple(sorted(pair)) for pair in card.launched) == sorted(asked)


def test_a_launch_costs_the_host_little(launches: Launches) -> None:
    """Host time of a call beside the launcher in C, in us. The limit is loose, since other processes share the host."""
    from timeit import repeat

    quick = Launches(Client(), ready_of=lambda *_: Ready(lambda pointers: None), runs_on="cpu")
    file = toy("double")
    quick.launch(file, x=X, out=OUT)
    us = min(repeat(lambda: quick.launch(file, x=X, out=OUT), number=1000, repeat=7)) * 1000
    assert us < 20
    assert isinstance(H200.limits, Limits)
