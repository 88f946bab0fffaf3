"""Reductions: NaN, infinities, ties and rows at any address, which path runs, and what is in the spaces."""

from __future__ import annotations

import json
from textwrap import dedent
from typing import Any

import pytest
import torch
from forks import printed
from helpers import H200, drawn
from torch import Tensor

from tuner import catalog
from tuner.kernels.reduce.over_rows import reduce_over_rows
from tuner.kernels.reduce.within_rows import reduce_within_rows
from tuner.kernels.spec import Problem
from tuner.measure import tensors
from tuner.measure.bounds import within
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

pytestmark = [
    pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:divide by zero encountered in log:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:All-NaN slice encountered:RuntimeWarning"),
    pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning"),
]
KERNEL = catalog.load("reduce")
INF, NAN = float("inf"), float("nan")
ONE = {"BLOCK_N": 64, "DEPTH": 1, "SPLIT": 1, "num_warps": 1, "num_stages": 1}


def problem_of(x: Tensor, **values: Any) -> Problem:
    M, N = x.shape
    return KERNEL.signature.problem({"M": M, "N": N, "dtype": x.dtype, **values})


def run(x: Tensor, config: dict[str, Any], **values: Any) -> tuple[Tensor, Tensor]:
    """Return results and indices. Reads outside of x are errors, and nothing is left in counters."""
    problem, full = problem_of(x, **values), KERNEL.signature.config(config)
    made = tensors.allocate(KERNEL.operands(problem), "cpu") | {"x": x}
    tensors.poison(KERNEL.operands(problem), made)
    work = tensors.workspace(KERNEL.workspace(problem, full, H200.limits), "cpu")
    with within([*made.values(), *work.values()]):
        for launch in KERNEL.launch(problem, full, {**made, **work}):
            launch()
    assert not any(work["arrived"]) if work else True
    return made["out"], made.get("indices", made["out"])


SPECIAL = torch.randn(9, 150, generator=torch.Generator().manual_seed(1)).round(decimals=1)
SPECIAL[0] = -INF
SPECIAL[1, 70] = INF
SPECIAL[2, 149] = NAN
SPECIAL[3, 5:9] = NAN
SPECIAL[4, 10:] = 0.0
SPECIAL[4, :10] = -0.0
SPECIAL[5, 100:120] = 7.0
SPECIAL[6, 3], SPECIAL[6, 140] = INF, -INF
SPECIAL[7] = 1e38
SPECIAL[8, 0] = NAN
WITHIN = {"one step": ONE | {"BLOCK_N": 256, "DEPTH": 8}, "loop": ONE, "split": ONE | {"SPLIT": 2}}
"""Configs for 150 columns in fp32, in runs of 4."""


@pytest.mark.parametrize("config", WITHIN.values(), ids=WITHIN)
@pytest.mark.parametrize("kind", ["max", "min"])
def test_nan_ties_and_infinities_are_as_in_torch(kind: str, config: dict[str, Any]) -> None:
    for x in (SPECIAL, SPECIAL[:, :149].contiguous()):  # the second has rows at any address
        out, indices = run(x, config, kind=kind, index=True)
        expected = getattr(torch, kind)(x, 1)
        assert torch.equal(out.nan_to_num(9.0), expected.values.nan_to_num(9.0))
        assert torch.equal(indices, expected.indices)


@pytest.mark.parametrize("config", WITHIN.values(), ids=WITHIN)
def test_logsumexp_of_infinities_and_very_negative_values_is_that_of_torch(config: dict[str, Any]) -> None:
    for x in (SPECIAL, SPECIAL - 1000):  # exp(1000) is inf
        out, _ = run(x, config, kind="logsumexp")
        assert torch.allclose(out, x.logsumexp(1), rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("split", [1, 2])
def test_columns_have_the_same_special_values(split: int) -> None:
    x = SPECIAL.t().contiguous()  # (150, 9): in steps of 8 rows of each of two lanes
    config = ONE | {"BLOCK_N": 16, "DEPTH": 4, "SPLIT": split}
    out, indices = run(x, config, kind="min", axis="rows", index=True)
    assert torch.equal(indices, x.min(0).indices)
    assert torch.equal(out.nan_to_num(9.0), x.min(0).values.nan_to_num(9.0))
    for values in (x, x - 1000):
        out, _ = run(values, config, kind="logsumexp", axis="rows")
        assert torch.allclose(out, values.logsumexp(0), rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("N", [33, 61])
def test_everything_has_one_index_whatever_lies_between_rows(N: int) -> None:
    x = torch.randn(7, 64, generator=torch.Generator().manual_seed(2))[:, :N].round(decimals=1)
    for split in (1, 3):
        out, indices = run(x, ONE | {"SPLIT": split}, kind="max", axis="all", index=True)
        assert (out, indices) == (x.max(), x.argmax())
        out, _ = run(x, ONE | {"SPLIT": split}, kind="mean", axis="all")
        assert torch.allclose(out, x.mean())


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_rows_of_16_bit_floats_begin_anywhere(offset: int) -> None:
    """Runs of 16 bytes are read only if the matrix begins at such an address, and not beyond its end."""
    memory = torch.randn(2000, generator=torch.Generator().manual_seed(3)).half()
    x = memory[offset:].as_strided((5, 131), (133, 1))
    out, _ = run(x, ONE | {"BLOCK_N": 256, "DEPTH": 2}, kind="sum")
    assert torch.allclose(out, x.float().sum(1).half(), rtol=2e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("sizes", "offset", "expected"),
    [
        ({"N": 4096}, 0, {"RUN": 8, "ALIGN": 0}),
        ({"N": 4097}, 0, {"RUN": 8, "ALIGN": 64}),
        ({"N": 1002}, 0, {"RUN": 8, "ALIGN": 8}),
        ({"N": 4100}, 0, {"RUN": 4, "ALIGN": 0}),
        ({"N": 4096}, 2, {"RUN": 1, "ALIGN": 0}),
        ({"N": 3}, 0, {"RUN": 1, "ALIGN": 0}),
        ({"N": 4097, "axis": "all"}, 0, {"RUN": 8, "ALIGN": 64}),
        ({"N": 32, "axis": "all"}, 0, {"BLOCK_M": 1, "BLOCK_N": 32768}),  # dense rows are one
        ({"N": 4098, "axis": "rows"}, 0, {"RUN": 2}),
    ],
)
def test_accesses_are_as_wide_as_rows_allow(sizes: dict[str, Any], offset: int, expected: dict[str, Any]) -> None:
    problem = KERNEL.signature.problem({"M": 1001, "dtype": "bf16", **sizes})
    config = KERNEL.default_config(problem, H200.limits)
    described = dict(KERNEL.tensors(problem, config, H200.limits))
    described["x"] = type(described["x"])(described["x"].shape, "bf16", offset=offset)
    (launch,) = KERNEL.launch(problem, config, {name: StandIn(operand) for name, operand in described.items()})
    assert launch.fn is (reduce_over_rows if sizes.get("axis") == "rows" else reduce_within_rows)
    assert {name: launch.kwargs[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({"M": 1_048_576, "N": 32}, {"BLOCK_N": 32, "DEPTH": 4, "num_warps": 8}),
        ({"M": 65_536, "N": 512}, {"BLOCK_N": 512, "DEPTH": 8, "num_warps": 4}),
        ({"M": 4096, "N": 4096}, {"BLOCK_N": 4096, "DEPTH": 4, "num_warps": 4}),
        ({"M": 8, "N": 1_048_576}, {"BLOCK_N": 4096, "DEPTH": 4, "num_warps": 4, "SPLIT": 64, "num_stages": 3}),
        ({"M": 4096, "axis": "rows"}, {"BLOCK_N": 32, "DEPTH": 4, "num_warps": 16, "SPLIT": 1}),
        ({"M": 8, "N": 1_048_576, "axis": "rows"}, {"BLOCK_N": 1024, "DEPTH": 8, "num_warps": 4}),
        ({"M": 1, "N": 67_108_864, "axis": "all"}, {"BLOCK_N": 8192, "DEPTH": 4, "num_warps": 8, "SPLIT": 1024}),
    ],
)
def test_spaces_are_small_and_have_the_good_configs(values: dict[str, Any], config: dict[str, Any]) -> None:
    problem = KERNEL.signature.problem({"dtype": "bf16", **values})
    space = list(feasible(KERNEL, problem, H200.limits))
    assert 20 <= len(space) <= 1000
    assert KERNEL.signature.config({"SPLIT": 1, "num_stages": 1} | config) in space
    assert KERNEL.default_config(problem, H200.limits) in space


def test_programs_share_results_only_if_there_are_few() -> None:
    def most(**values: Any) -> int:
        problem = KERNEL.signature.problem({"dtype": "bf16", **values})
        return max(int(config["SPLIT"]) for config in drawn(KERNEL, problem, H200.limits, 200))

    assert most(M=16384, N=65536) == 1
    assert most(M=1, N=2**26, axis="all") == 2048
    assert most(M=2**20, N=32, axis="rows") >= 256


LOADS = """
    import json, re
    from tuner import catalog
    from tuner.kernels.spec import Limits
    from tuner.measure.compile import compile_launches, set_target

    limits = Limits((9, 0), 132, 232448)
    set_target(limits)
    kernel, found = catalog.load("reduce"), []
    for values, config in CASES:
        problem = kernel.signature.problem({"dtype": "bf16", **values})
        (code,) = compile_launches(kernel, problem, kernel.signature.config(config), limits)
        found.append([len(re.findall(r"ld\\.global[^;]*v4\\.b32", code.asm["ptx"])), code.metadata.shared])
    print(json.dumps(found))
"""


def test_threads_read_16_bytes_four_times_and_exchange_only_states() -> None:
    """Also if rows begin anywhere; columns of few rows need no other thread at all."""
    four = {"DEPTH": 4, "SPLIT": 1, "num_warps": 8, "num_stages": 1}
    cases = [
        ({"M": 65536, "N": 256}, four | {"BLOCK_N": 256}),
        ({"M": 4096, "N": 50257, "kind": "max", "index": True}, four | {"BLOCK_N": 8192}),
        ({"M": 8, "N": 2**20, "axis": "rows"}, four | {"BLOCK_N": 2048, "DEPTH": 8}),
    ]
    short, odd, few = json.loads(printed(dedent(LOADS).replace("CASES", repr(cases))).splitlines()[-1])
    assert short[0] == 4
    assert odd[0] == 8  # at the ends of a row, and inside
    assert max(short[1], odd[1]) <= 512
    assert few == [8, 0]
