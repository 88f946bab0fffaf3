"""Products whose rows are not aligned to 16 bytes: operands are copied to rows that are."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from compiled_gemm import problem
from forks import printed
from helpers import A100, B200, H200, wrongness

from tuner.kernels.gemm import KERNEL
from tuner.kernels.gemm.default import COPYING
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.shared.aligned_rows import aligned_operand, copied
from tuner.kernels.shared.product_copies import factors_copied, of_copies
from tuner.kernels.shared.product_rows import padded, unaligned
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

PERSISTENT: dict[str, Any] = {
    "VARIANT": "persistent", "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1,
    "num_warps": 4, "num_stages": 3, "ALIGN": True,
}  # fmt: skip
TILES: dict[str, Any] = PERSISTENT | {"VARIANT": "tiles"}


@pytest.mark.parametrize(
    "values",
    [
        {"M": 67, "N": 131, "K": 77, "layout": "nn", "bias": True, "activation": "gelu"},
        {"M": 67, "N": 131, "K": 77, "layout": "nt", "bias": True},
        {"M": 67, "N": 131, "K": 77, "layout": "tn", "activation": "silu"},
        {"M": 67, "N": 131, "K": 77, "layout": "tt"},
        {"M": 67, "N": 131, "K": 77, "layout": "tt", "dtype": "fp32", "precision": "tf32"},
        {"M": 82, "N": 68, "K": 70, "layout": "tn"},
        {"M": 82, "N": 68, "K": 70, "layout": "nt"},
    ],
)
def test_products_of_rows_that_are_not_aligned_are_right(values: dict[str, object]) -> None:
    """Copied for the copy engine, copied for loads by threads, and loaded as they lie."""
    asked = problem(**{"dtype": "fp16", **values})
    for config in (PERSISTENT, TILES, TILES | {"ALIGN": False}, TILES | {"SPLIT_K": 1, "BLOCK_K": 32}):
        full = KERNEL.signature.config(config)
        assert KERNEL.valid(asked, full, B200.limits)
        error, allowed = wrongness(KERNEL, asked, full, "cpu", B200.limits)
        assert error <= allowed, config


@pytest.mark.parametrize(
    "values", [{"M": 82, "N": 64, "K": 72, "layout": "tn"}, {"M": 40, "N": 65, "K": 64, "layout": "nt"}]
)
def test_a_single_operand_is_copied(values: dict[str, object]) -> None:
    asked = problem(**{"dtype": "fp16", **values})
    assert len(unaligned(asked)) == 1
    error, allowed = wrongness(KERNEL, asked, KERNEL.signature.config(PERSISTENT), "cpu", B200.limits)
    assert error <= allowed


def launches(asked: Any, config: Any, **strides: tuple[int, int]) -> list[str]:
    """Return the names of the functions that are launched with tensors of these strides."""
    full = KERNEL.signature.config(config)
    operands = dict(KERNEL.tensors(asked, full, B200.limits))
    operands |= {name: replace(operands[name], strides=of) for name, of in strides.items()}
    stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
    return [launch.fn.fn.__name__ for launch in KERNEL.launch(asked, full, stand_ins)]


def test_only_what_is_not_aligned_is_copied() -> None:
    odd = problem(M=67, N=131, K=77)
    assert unaligned(odd) == ("a", "b", "out")
    assert launches(odd, PERSISTENT) == ["copy_rows", "gemm_persistent", "copy_rows"]
    assert launches(odd, PERSISTENT, out=(136, 1)) == ["copy_rows", "gemm_persistent"]
    aligned = {"a": (80, 1), "b": (136, 1), "out": (136, 1)}
    assert launches(odd, PERSISTENT, **aligned) == ["gemm_persistent"]
    assert launches(odd, TILES, **aligned) == ["copy_rows", "gemm_tiles"]  # 77 elements are loaded one by one
    tn = problem(M=82, N=64, K=72, layout="tn")
    assert unaligned(tn) == ("a",)
    assert launches(tn, PERSISTENT) == ["copy_rows", "gemm_persistent"]
    assert launches(tn, PERSISTENT, b=(65, 1)) == ["gemm_tiles"]  # has no room in the workspace


@pytest.mark.parametrize("is_t", [False, True])
@pytest.mark.parametrize(("rows", "columns", "stride", "step"), [
    (5, 8447, 8447, 1), (300, 3, 3, 1), (67, 82, 82, 1), (33, 20, 68, 1), (70, 41, 90, 2), (1, 2047, 2049, 1),
])  # fmt: skip
def test_each_element_is_copied_there_and_back(rows: int, columns: int, stride: int, step: int, is_t: bool) -> None:
    def filled(fill: float) -> torch.Tensor:
        memory = torch.full((rows * stride,), fill, dtype=torch.float16)
        matrix = memory.as_strided((rows, columns), (stride, step))
        return matrix.t() if is_t else matrix

    a, other = filled(-1), filled(-1)
    a.copy_(torch.arange(rows * columns).remainder(2048).reshape(a.shape))
    operands = [aligned_operand(rows, columns, "fp16", is_t), aligned_operand(7, 9, "fp16")]
    work, work_b = (torch.empty_strided(o.shape, o.element_strides, dtype=torch.float16).fill_(-1) for o in operands)
    b = torch.arange(63).to(torch.float16).reshape(7, 9)
    copied([(a, work, is_t), (b, work_b, False)])()
    assert torch.equal(work[: a.shape[0], : a.shape[1]], a)
    assert torch.equal(work_b[:7, :9], b)
    copied([(other, work, is_t)], back=True)()
    assert torch.equal(other, a)
    assert int((other.as_strided((rows * stride,), (1,)) != -1).sum()) == rows * columns  # nothing beside it


def test_only_unaligned_problems_have_the_choice() -> None:
    """Variants with descriptors require ALIGN, `tiles` allows both, `vectors` and `streamed` never copy."""
    ways: list[Counter[tuple[object, object]]] = []
    for M, card in ((255, H200), (256, H200), (255, A100)):
        space = feasible(KERNEL, problem(M=M), card.limits)
        ways.append(Counter((config["VARIANT"], config["ALIGN"]) for config in space))
    odd, aligned, on_ampere = ways
    described = ("persistent", "specialized", "swapped")
    assert odd.keys() == {("tiles", False), *((variant, True) for variant in ("tiles", *described))}
    assert aligned.keys() == {(variant, False) for variant in ("tiles", *described)}
    assert on_ampere.keys() == {("tiles", False), ("tiles", True)}
    assert all(odd[variant, True] == aligned[variant, False] for variant in described)
    exact = problem(M=255, dtype="fp32")
    assert KERNEL.valid(exact, KERNEL.signature.config(TILES | {"ALIGN": False}), H200.limits)
    assert not KERNEL.valid(exact, KERNEL.signature.config(TILES), H200.limits)


def test_a_step_across_padded_rows_is_a_32_bit_offset() -> None:
    """With padding, 256 rows of 2^23 - 1 elements take 2^31 elements."""
    long = problem(M=64, N=2**23 - 1, K=512)
    for block_k, align, fits in ((256, True, False), (256, False, True), (128, True, True)):
        config = KERNEL.signature.config(TILES | {"BLOCK_K": block_k, "ALIGN": align})
        assert KERNEL.valid(long, config, H200.limits) is fits
    longest = problem(M=64, N=2**26 - 1, K=512)
    assert not KERNEL.default_config(longest, H200.limits)["ALIGN"]


COMPILE = """
    import json, re, sys
    sys.path.insert(0, {tests!r})
    from helpers import A100, H200
    from tuner.kernels.gemm import KERNEL
    from tuner.kernels.shared.aligned_rows import aligned_operand, copied
    from tuner.kernels.spec import Operand
    from tuner.measure.compile import set_target
    from tuner.measure.stand_ins import StandIn

    set_target({card}.limits)

    def bytes_at_once(launch):
        code = launch.warmup().asm["ptx"]
        copies = {{int(size, 16) for size in re.findall(r"cp\\.async\\.c[ag].*?, (0x\\w+)", code)}}
        return sorted(copies), sorted({{*re.findall(r"(?:ld|st)\\.global\\.[\\w.]*", code)}})

    found = []
    for values in {problems!r}:
        problem, config = KERNEL.signature.problem(values), KERNEL.signature.config({config!r})
        assert KERNEL.valid(problem, config, H200.limits)
        (launch,) = KERNEL.launch(problem, config, {{name: StandIn(o) for name, o in KERNEL.operands(problem).items()}})
        found.append(bytes_at_once(launch))
    for back in (False, True):
        matrix, copy = (StandIn(o) for o in (Operand((64, 8447), "bf16"), aligned_operand(64, 8447, "bf16")))
        found.append(bytes_at_once(copied([(matrix, copy, False)], back=back)))
    print(json.dumps(found))
"""


@pytest.mark.parametrize("card", ["A100", "H200"])
def test_as_many_elements_are_loaded_at_once_as_rows_are_multiples_of(card: str) -> None:
    """The compiler looks for multiples of 16: it loaded 2 bytes at once, and waited for them."""
    values = [{"M": 82, "N": 96, "K": 96, "layout": "tn"}, {"M": 32, "N": 64, "K": 72, "layout": "nt"},
              {"M": 32, "N": 20, "K": 96}]  # fmt: skip
    config = TILES | {"BLOCK_N": 32, "BLOCK_K": 32, "ALIGN": False}
    given = {"tests": str(Path(__file__).parents[1]), "card": card, "problems": values, "config": config}
    a_in_4, whole, b_in_8, there, back = json.loads(printed(dedent(COMPILE).format(**given)))
    assert a_in_4 == [[4, 16], ["st.global.v4.b32"]]
    assert whole == [[16], ["st.global.v4.b32"]]
    assert b_in_8 == [[8, 16], ["st.global.v2.b32"]]
    assert there == [[], ["ld.global.b16", "st.global.v4.b32"]]
    assert back == [[], ["ld.global.v4.b32", "st.global.b16"]]


@pytest.mark.parametrize(
    "values",
    [
        {"M": 82, "N": 4608, "K": 8448, "layout": "tn"},
        {"M": 4097},
        {"M": 1311, "N": 4352, "K": 2049},
        {"M": 40, "N": 3001, "K": 2049, "layout": "nt"},
        {"M": 5346, "N": 2048, "K": 8192, "layout": "tt"},  # an H200: 458 us as it lies, 4 bytes at once; 314 copied
    ],
)
def test_the_default_of_large_unaligned_products_is_that_of_aligned_ones(values: dict[str, object]) -> None:
    asked = problem(**values)
    default = KERNEL.default_config(asked, H200.limits)
    assert default["ALIGN"]
    assert KERNEL.valid(asked, default, H200.limits)
    assert {**default, "ALIGN": False} == {**KERNEL.default(padded(asked), H200.limits)}
    cost = estimate(asked, default, H200.limits)
    assert 0 < cost.parts["copies"] < cost.us
    assert cost.us > estimate(padded(asked), {**default, "ALIGN": False}, H200.limits).us


@pytest.mark.parametrize(
    "values", [{"M": 22208, "N": 151, "K": 604, "layout": "tn"}, {"M": 3704, "N": 2223, "K": 73, "layout": "nt"}]
)
def test_a_large_output_of_few_steps_is_not_copied(values: dict[str, object]) -> None:
    asked = problem(**values)
    default = KERNEL.default_config(asked, H200.limits)
    assert (default["VARIANT"], default["ALIGN"]) == ("tiles", True)
    assert "aligned_out" not in KERNEL.workspace(asked, default, H200.limits)
    assert KERNEL.valid(asked, default, H200.limits)


def test_tiles_on_copies_are_those_of_the_least_estimate() -> None:
    """The choice depended on the order of the settings: each tile had to be 5 % faster than the one before."""
    rng, chosen = random.Random(0), 0
    for _ in range(12):
        asked = problem(M=rng.randint(2000, 9000), N=rng.randint(1000, 4000) | 1, K=rng.randint(60, 260), layout="tn")
        tiles = [estimate(asked, config, H200.limits).us for config in factors_copied(COPYING, asked, H200.limits)]
        default = KERNEL.default_config(asked, H200.limits)
        if default["ALIGN"] and default["VARIANT"] == "tiles":
            chosen += 1
            assert estimate(asked, default, H200.limits).us == min(tiles)
    assert chosen >= 6


def test_what_no_copy_can_replace_computes_no_other_default() -> None:
    def aligned() -> Any:
        raise AssertionError

    asked = problem(M=3, N=4097, K=4095)
    default = KERNEL.default_config(asked, H200.limits)
    assert of_copies(COPYING, asked, default, aligned, H200.limits) is default


@pytest.mark.parametrize("values", [{"M": 33}, {"M": 3, "N": 4097, "K": 4095}, {"M": 4097, "dtype": "fp32"}])
def test_small_products_and_those_without_tensor_cores_are_computed_as_they_lie(values: dict[str, object]) -> None:
    assert not KERNEL.default_config(problem(**values), H200.limits)["ALIGN"]
