"""Attention: rows without keys, huge scores, infinities and NaN, memory past the keys, shares of keys, the default."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from forks import printed
from helpers import A100, H200
from torch import Tensor

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.attention.reference import mask
from tuner.kernels.attention.sequences import pairs
from tuner.kernels.spec import Config, Problem
from tuner.measure import tensors
from tuner.measure.bounds import within
from tuner.search.space import feasible

pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning"),
]
KERNEL = catalog.load("attention")
INF, NAN = float("inf"), float("nan")
SMALL = {"BLOCK_M": 16, "BLOCK_N": 16, "num_warps": 1, "num_stages": 2}


def problem(**values: Any) -> Problem:
    return KERNEL.signature.problem({"B": 1, "H": 1, "D": 16, "dtype": "fp16", **values})


def drawn(given: Problem) -> dict[str, Tensor]:
    operands = KERNEL.operands(given)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=3)
    tensors.poison(operands, values)
    return values


def run(given: Problem, values: dict[str, Tensor], **knobs: Any) -> dict[str, Tensor]:
    """Return the outputs of the default with other knobs."""
    config: Config = KERNEL.signature.config({**KERNEL.default_config(given, A100.limits), **SMALL, **knobs})
    assert KERNEL.valid(given, config, A100.limits)
    work = tensors.workspace(KERNEL.workspace(given, config, A100.limits), "cpu")
    with within([*values.values(), *work.values()]):
        for launch in KERNEL.launch(given, config, {**values, **work}):
            launch()
    return {name: values[name].clone() for name in ("out", "lse") if name in values}


def close(found: Tensor, expected: Tensor) -> bool:
    return bool(torch.allclose(found.double(), expected.double(), atol=2e-3, equal_nan=True))


@pytest.mark.parametrize("splits", [1, 3])
def test_rows_that_see_no_key_are_zeros(splits: int) -> None:
    given = problem(M=40, N=33, causal=True, lse=True)
    found = run(given, drawn(given), SPLITS=splits)
    assert not found["out"][0, 0, :7].any()
    assert torch.equal(found["lse"][0, 0, :7], torch.full((7,), -INF))
    assert bool(found["lse"][0, 0, 7:].isfinite().all())


def test_special_scores_are_as_torchs() -> None:
    """A row: huge scores, +inf, -inf for some keys, -inf for all, NaN, and 0."""
    given = problem(M=6, N=20, lse=True)
    values = drawn(given)
    q, k = values["q"][0, 0], values["k"][0, 0]
    q.zero_()
    k[:, 0], k[:, 1], k[3, 1] = torch.linspace(-1, 1, 20), 1.0, -1.0
    q[0, 0], q[1, 1], q[2, 0], q[4, 2] = 60000.0, INF, -INF, NAN
    q[3, 1], k[3, 1] = -INF, 1.0
    found = run(given, values)
    expected = KERNEL.reference(given, {**KERNEL.scalars, **values}, slice(None))
    assert close(found["out"], expected["out"])
    assert close(found["lse"], expected["lse"])
    assert bool(found["out"][0, 0, [1, 4]].isnan().all())
    assert not found["out"][0, 0, 3].any()
    assert close(found["out"][0, 0, 0], values["v"][0, 0, 19])


@pytest.mark.parametrize("splits", [1, 2])
def test_memory_past_the_keys_reaches_no_row(splits: int) -> None:
    given = problem(H=2, G=1, M=3, N=70, page=32, causal=True)
    values = drawn(given)
    expected = run(given, values, SPLITS=splits)["out"]
    last = int(values["table"][0, 2])
    values["k"][last, 6:], values["v"][last, 6:] = NAN, INF
    assert torch.equal(run(given, values, SPLITS=splits)["out"], expected)


def test_shares_of_the_keys_and_packed_heads_are_one_result() -> None:
    given = problem(B=2, H=2, G=1, M=2, N=40, lengths=True, causal=True, lse=True)
    values = drawn(given)
    whole = run(given, values, SPLITS=1, PACK=False)
    for splits, pack in ((1, True), (2, False), (3, True)):
        found = run(given, values, SPLITS=splits, PACK=pack)
        assert close(found["out"], whole["out"])
        assert close(found["lse"], whole["lse"])


def test_a_cap_keeps_the_precision_of_scores_near_zero() -> None:
    given = problem(M=33, N=9, D=64, causal=True, window=3, capped=True, lse=True)
    values = drawn(given)
    values["q"] /= 8
    found = run(given, values, BLOCK_M=32)["lse"]
    expected = KERNEL.reference(given, {**KERNEL.scalars, **values}, slice(None))["lse"]
    sees = expected.isfinite()
    assert float((found - expected)[sees].abs().max()) < 5e-7  # 2e-6 if tanh is rounded at 1


COMPILE = """
    import sys
    sys.path.insert(0, {tests!r})
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import compile_config

    kernel = catalog.load("attention")
    roles = {{"BLOCK_M": 128, "BLOCK_N": 64, "VARIANT": "specialized", "num_warps": 4, "num_stages": 2}}
    sizes = {{"B": 2, "H": 4, "G": 2, "M": 256, "N": 4096, "D": 64}}
    problem = kernel.signature.problem({{**sizes, "page": 16, "packed": True}})
    config = kernel.signature.config({{**roles, "SPLITS": 2}})
    assert kernel.valid(problem, config, H200.limits)
    compiled = compile_config(kernel, problem, config, H200.limits)
    print(compiled.outcome, compiled.error)
"""


def test_warps_with_roles_compile_for_pages_and_split_keys() -> None:
    """The default of dense sequences is compiled with those of the other ops."""
    code = dedent(COMPILE).format(tests=str(Path(__file__).parents[1]))
    assert printed(code).splitlines()[-1].startswith("ok ")


SHARED = """
    import sys
    sys.path.insert(0, {tests!r})
    from helpers import H200
    from tuner import catalog
    from tuner.kernels.attention.space import shared_bytes
    from tuner.measure.compile import compile_config

    kernel = catalog.load("attention")
    sizes = {{"B": 1, "H": 28, "G": 4, "M": 256, "N": 4160, "D": 128, "causal": True, "page": 64}}
    problem = kernel.signature.problem(sizes)
    tile = {{"VARIANT": "tiles", "BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}}
    for stages in (2, 3, 5):
        config = kernel.signature.config({{**tile, "num_stages": stages}})
        assert kernel.valid(problem, config, H200.limits)
        compiled = compile_config(kernel, problem, config, H200.limits)
        print(compiled.shared_bytes - shared_bytes(problem, config, H200.limits))
"""


def test_blocks_of_pages_take_the_stated_shared_memory() -> None:
    """Beside them are the places of blocks, 1 KB."""
    code = dedent(SHARED).format(tests=str(Path(__file__).parents[1]))
    assert [0 <= int(line) <= 1024 for line in printed(code).splitlines()[-3:]] == [True] * 3


def test_a_fourth_stage_of_pages_is_not_searched() -> None:
    given = problem(M=256, N=4096, H=4, G=4, D=128, page=64)
    space = [each for each in feasible(KERNEL, given, H200.limits) if each["VARIANT"] == "tiles"]
    assert {each["num_stages"] for each in space} == {1, 2, 3, 5}


def test_pairs_are_counted_as_the_mask_has_them() -> None:
    for rows, keys in ((1, 1), (7, 5), (5, 7), (1, 30), (30, 1)):
        for values in ({}, {"causal": True}, {"window": 3}, {"causal": True, "window": 3}, {"window": 40}):
            given = problem(M=rows, N=keys, **values)
            seen = mask(given, range(rows), rows, keys, "cpu")
            assert pairs(given, rows, keys) == (rows * keys if seen is None else int(seen.sum())), given.text


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"M": 1, "D": 12}, "head size is a multiple of 8 up to 256, not 12"),
        ({"M": 1, "D": 320}, "head size is a multiple of 8 up to 256, not 320"),
        ({"M": 1, "H": 3, "G": 2}, "shares heads of k evenly, not 2 among 3"),
        ({"M": 1, "window": "x"}, "window is a whole number from 0 to 999999999, not 'x'"),
        ({"M": 1, "page": 16, "lengths": True}, "lengths=True is for dense keys"),
        ({"M": 2**20, "H": 2**12}, "B H M is at most"),
    ],
)
def test_problems_that_there_are_not(values: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        KERNEL.operands(problem(**values))


def config(**values: Any) -> Config:
    given = KERNEL.signature.problem({"H": 32, "G": 8, **values})
    return KERNEL.default_config(given, H200.limits)


def test_many_rows_of_pages_have_three_blocks_of_keys() -> None:
    found = config(B=4, H=40, G=8, M=16, N=32768, D=128, causal=True, page=256)
    assert (found["VARIANT"], found["BLOCK_M"], found["num_stages"]) == ("tiles", 128, 5)


def test_the_default_packs_heads_and_fills_the_card_with_shares() -> None:
    decode = config(B=1, M=1, N=131072, page=16)
    assert decode["PACK"]
    assert decode["SPLITS"] * 8 >= 132
    assert config(B=64, M=1, N=131072, page=16)["SPLITS"] <= 2
    assert config(B=1, M=256, N=131072, page=16, causal=True)["SPLITS"] > 1
    assert config(B=1, M=256, N=131072, page=16, causal=True)["VARIANT"] == "specialized"
    assert config(B=2, M=4096)["SPLITS"] == 1
    assert config(B=1, M=1, N=256)["SPLITS"] == 1


def test_heads_share_a_tile_if_a_window_is_no_wider_than_it() -> None:
    """A tile with fewer rows of each head reads fewer keys; a wide window has as many either way."""
    sizes: dict[str, Any] = {"B": 1, "H": 64, "M": 8192, "D": 64, "causal": True}
    packed = {"VARIANT": "specialized", "BLOCK_N": 64, "PACK": True, "num_stages": 4}
    apart = {"VARIANT": "specialized", "BLOCK_N": 128, "PACK": False, "num_stages": 2}
    for values, expected in (
        ({"window": "128"}, packed),
        ({"window": "64", "causal": False}, packed),
        ({"window": "128", "causal": False}, apart),
        ({"window": "1024"}, apart),
        ({"window": "128", "G": 64}, apart),
        ({}, apart),
    ):
        found = config(**{**sizes, **values})
        assert {name: found[name] for name in expected} == expected, values


def test_split_keys_in_several_pages_have_three_stages_and_the_room_of_out() -> None:
    """16 rows on 8 x 16,384 keys in pages of 16: 83 us, 86 with two stages, 100 with out's rows (H200, 2026-12-01)."""
    values = {"B": 8, "H": 32, "G": 4, "M": 16, "N": 16384, "D": 128, "dtype": "bf16", "causal": True}
    paged = KERNEL.signature.problem({**values, "page": 16})
    found = KERNEL.default_config(paged, H200.limits)
    assert (found["VARIANT"], found["BLOCK_N"], found["num_stages"]) == ("specialized", 128, 3)
    assert found["SPLITS"] == 4
    assert not KERNEL.valid(paged, KERNEL.signature.config({**found, "SPLITS": 1}), H200.limits)
    for page in (0, 256):
        dense = KERNEL.default_config(KERNEL.signature.problem({**values, "page": page}), H200.limits)
        assert (dense["BLOCK_N"], dense["num_stages"]) == (128, 2)
