"""Random suites: the same problems for a seed whatever is beside them, and problems of each op as models have them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from helpers import H200, OURS, able, toy

from tuner import catalog
from tuner.errors import KernelFault, UsageError
from tuner.kernels.shared.decoder_models import PUBLISHED
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.suites.drawn import draw_suite

DOUBLE = catalog.resolve(toy("double"))
DRAWN = [op for op in OURS if catalog.load(op).draw is not None]


def drawing(kernel: Kernel = DOUBLE, low: int = 1, high: int = 10**6) -> Kernel:
    return replace(kernel, draw=lambda random: {"N": random.randint(low, high)})


def texts(name: str, *kernels: Kernel, dtype: str | None = None) -> list[str]:
    return [entry.problem.text for entry in draw_suite(name, [(k.op, k) for k in kernels], dtype).entries]


def test_problems_depend_on_op_and_seed_alone() -> None:
    first, softmax = drawing(), catalog.load("softmax")
    twenty = texts("random:20:7", first)
    assert len(set(twenty)) == 20
    assert texts("random:10:7", first) == twenty[:10]
    assert texts("random:20:7", softmax, first)[20:] == twenty
    assert texts("random:20:8", first) != twenty
    assert twenty[:2] == ["double N=694585 dtype=fp32", "double N=773309 dtype=fp32"]  # on every machine


def test_a_kernel_that_draws_none_is_left_out_and_named() -> None:
    suite = draw_suite("random:2:1", [("mine.py", DOUBLE), ("softmax", catalog.load("softmax"))])
    assert {entry.reference for entry in suite.entries} == {"softmax"}
    assert suite.note == "Left out: the kernel mine.py states no draw."
    with pytest.raises(UsageError) as refused:
        texts("random:2:1", DOUBLE)
    assert str(refused.value) == (
        "random:2:1 has problems that kernels draw, and the kernel double states no draw; give a suite file.json"
    )


def test_a_dtype_replaces_that_of_all_and_attributes_of_another_are_dropped() -> None:
    gemm = catalog.load("gemm")
    drawn = draw_suite("random:60:1", [("gemm", gemm), ("scaled_gemm", catalog.load("scaled_gemm"))], "float16")
    assert {entry.problem.dtype for entry in drawn.entries} == {"fp16"}
    assert len(drawn.entries) == 60
    assert drawn.note == "Left out: scaled_gemm has no dtype fp16."


def test_each_op_that_draws_problems_has_as_many() -> None:
    drawn = draw_suite("random:2:7", [(op, catalog.load(op)) for op in OURS])
    assert Counter(entry.reference for entry in drawn.entries) == dict.fromkeys(DRAWN, 2)


@pytest.mark.parametrize("name", ["random:", "random:0:1", "random:3", "random:3:x", "random:3:-1", "random:10000:1"])
def test_another_form_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^a random suite is random:COUNT:SEED with 1 to 9999 .*not '{name}'$"):
        texts(name, drawing())


@pytest.mark.parametrize("op", DRAWN)
def test_each_draw_is_a_problem(op: str) -> None:
    """One that a kernel refuses ends the whole suite, however rare it is."""
    kernel, random = catalog.load(op), Random("refused")
    assert kernel.draw is not None
    for _ in range(2000):
        kernel.operands(kernel.signature.problem(kernel.draw(random)))


def test_a_kernel_that_draws_too_few_or_no_problems_is_named() -> None:
    with pytest.raises(UsageError, match=r"^double draws 3 different problems, not 4; give a smaller COUNT$"):
        texts("random:4:1", drawing(high=3))
    with pytest.raises(KernelFault, match=r"draw: double: N is a whole number from 1 to .*, not 0; correct it"):
        texts("random:4:1", drawing(low=0, high=0))

    def refused(problem: Problem) -> dict[str, Operand]:
        raise UsageError("double: N is even, not odd")

    with pytest.raises(KernelFault, match=r"draw: double: N is even, not odd; correct it"):
        texts("random:4:1", replace(drawing(), operands=refused))


def test_drawn_products_are_mostly_projections_of_models() -> None:
    entries = draw_suite("random:400:1", [("gemm", catalog.load("gemm"))]).entries
    problems = [entry.problem for entry in entries]
    assert 0.6 < sum(problem["layout"] == "nt" for problem in problems) / 400 < 0.8
    assert sum(min(problem["N"], problem["K"]) < 256 for problem in problems) < 60
    assert 0.25 < sum(problem["M"] % 64 == 0 for problem in problems) / 400 < 0.45
    ranges = Counter(entry.signature.dims[0].range_of(entry.problem["M"]) for entry in entries)
    assert min(ranges[f"M {name}"] for name in ("1-16", "17-96", "97-1,200", "above 1,200")) > 40


def test_published_models_divide_their_heads() -> None:
    for model in PUBLISHED:
        assert model.heads % model.key_heads == 0
        assert model.hidden % 64 == 0
    assert len(set(PUBLISHED)) == len(PUBLISHED)


@pytest.mark.parametrize("op", DRAWN)
def test_drawn_problems_are_like_those_of_models(op: str) -> None:
    """Sizes of a few KB to 1 GiB over several magnitudes, some odd; all choices occur, and several of a range."""
    kernel = catalog.load(op)
    assert kernel.draw is not None
    random = Random(op)
    problems = [kernel.signature.problem(kernel.draw(random)) for _ in range(600)]
    sizes = sorted(sum(operand.bytes for operand in kernel.operands(problem).values()) for problem in problems)
    assert sizes[0] >= 1024
    assert sizes[-1] <= 2**30
    assert sizes[540] > 30 * sizes[60]
    odd = sum(any(size > 8 and size % 8 for size in problem.sizes) for problem in problems)
    assert odd > 100
    for attribute in kernel.signature.attributes:
        seen = Counter(problem.values[attribute.name] for problem in problems if attribute.name in problem.values)
        choices = {*(attribute.choices or ())}
        is_range = len(choices) > 16  # of paddings, say
        assert len(seen) > 1 if is_range else seen.keys() >= choices, (attribute.name, seen)
    dtypes = Counter(problem.dtype for problem in problems)
    assert {"bf16", "fp16"} & {*kernel.signature.dtypes} <= dtypes.keys()
    if able(op, H200.limits):
        for problem in problems[:100]:
            assert kernel.valid(problem, kernel.default_config(problem, H200.limits), H200.limits), problem.text
