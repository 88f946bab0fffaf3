"""Every kernel's configs on a real card, at odd sizes, against a reference in higher precision."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from helpers import OURS, able, drawn, problems, wrongness
from stated_tests import Planted, stated_tests

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Problem
from tuner.measure.check import error
from tuner.measure.stand_ins import StandIn
from tuner.measure.tensors import allocate, draw, workspace, written
from tuner.measure.tolerance import tolerances
from tuner.search.space import feasible

pytestmark = pytest.mark.gpu


def limits() -> Limits:
    from tuner.measure.device import describe

    return describe(0).limits


def _pairs(op: str) -> Iterator[tuple[Problem, Config]]:
    """Return 48 seeded configs, each at an odd problem, with each dtype, layout and precision."""
    kernel = catalog.load(op)
    signature = kernel.signature
    dice = random.Random(op)
    found = [*problems(op)]
    dice.shuffle(found)
    chosen = [*(signature.problem(values) for values in stated_tests(op).on_card), *found][:48]
    chosen += dice.choices(chosen, k=48 - len(chosen))
    for index, problem in enumerate(chosen):
        yield problem, drawn(kernel, problem, limits(), count=1, seed=index)[0]


def wrong(kernel: Kernel, pairs: list[tuple[Problem, Config]]) -> list[object]:
    """Return the wrong configs with their error and the tolerance. All are compiled first, several at once."""

    def compile(problem: Problem, config: Config) -> None:
        torch.cuda.set_device(0)  # a thread begins without a context
        operands = kernel.tensors(problem, config, limits())
        stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
        for launch in kernel.launch(problem, config, stand_ins):
            if isinstance(launch, Launch):
                launch.fn.warmup(*launch.args, grid=launch.grid, **launch.kwargs)

    with ThreadPoolExecutor(16) as threads:
        list(threads.map(compile, *zip(*pairs, strict=True)))
    found = [(pair, *wrongness(kernel, *pair, "cuda", limits())) for pair in pairs]
    return [(pair, error, allowed) for pair, error, allowed in found if not error <= allowed]


@pytest.mark.parametrize("op", OURS)
def test_seeded_configs_are_right_at_odd_sizes(op: str) -> None:
    if not able(op, limits()):
        pytest.skip("this card multiplies no 8-bit floats")
    pairs = list(_pairs(op))
    assert len(pairs) == 48
    assert not wrong(catalog.load(op), pairs)


PLANTED = [pytest.param(op, bug, id=f"{op} {n}") for op in OURS for n, bug in enumerate(stated_tests(op).planted)]


@pytest.mark.parametrize(("op", "bug"), PLANTED)
def test_the_check_finds_a_planted_bug(op: str, bug: Planted, tmp_path: Path) -> None:
    if not able(op, limits()):
        pytest.skip(f"{op} needs other instructions")
    kernel = catalog.load(op)
    problem = kernel.signature.problem(bug.problem)
    configs = [kernel.default_config(problem, limits()), *drawn(kernel, problem, limits(), 400)]
    meant = [config for config in configs if bug.config.items() <= config.items()][:4]
    assert not wrong(kernel, [(problem, config) for config in meant])
    assert wrong(bug.kernel(op, tmp_path), [(problem, config) for config in meant])


@pytest.mark.parametrize(
    "variant", ["tiles", "persistent", "specialized", "swapped", "stream_k", "streamed", "vectors"]
)
def test_every_variant_of_gemm_is_right_in_every_layout(variant: str) -> None:
    """At sizes that no tile divides and that the copy engine takes."""
    kernel = catalog.load("gemm")
    special: dict[str, dict[str, object]] = {
        "vectors": {"M": 3, "N": 1048, "K": 2056},
        "streamed": {"M": 13, "N": 1044, "K": 2056},
        "stream_k": {"M": 2056, "N": 2056, "K": 520},  # 153 tiles of 128 x 256 and more of smaller ones
    }
    sizes = special.get(variant, {"M": 328, "N": 1048, "K": 520})
    count = 12 if variant == "streamed" else 3  # which is for one layout alone
    pairs: list[tuple[Problem, Config]] = []
    for layout in ("nn", "nt", "tn", "tt"):
        for dtype, more in (("bf16", {}), ("fp16", {"bias": True, "activation": "gelu"})):
            problem = kernel.signature.problem({**sizes, "dtype": dtype, "layout": layout, **more})
            space = [config for config in feasible(kernel, problem, limits()) if config["VARIANT"] == variant]
            pairs += [(problem, config) for config in random.Random(len(pairs)).sample(space, min(count, len(space)))]
    assert len(pairs) == 24
    assert not wrong(kernel, pairs)


@pytest.mark.parametrize("variant", ["specialized", "swapped"])
@pytest.mark.parametrize("M", [40, 200, 328, 2056])
def test_warps_with_roles_are_right_in_slices_and_by_wide_products(M: int, variant: str) -> None:
    """At sizes that no tile divides: groups of 64 and of 128 rows, all in one wave and in several."""
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": M, "N": 1048, "K": 4104, "layout": "nt", "bias": True})
    space = [config for config in feasible(kernel, problem, limits()) if config["VARIANT"] == variant]
    kinds: dict[tuple[object, ...], list[Config]] = {}
    for config in space:
        kinds.setdefault((config["GROUPS"], config["WIDE"], config["SPLIT_K"] > 1), []).append(config)
    chosen = [random.Random(M).choice(configs) for configs in kinds.values()]
    assert {bool(config["WIDE"]) for config in chosen} == {False, True}
    assert not wrong(kernel, [(problem, config) for config in chosen])


@pytest.mark.parametrize("variant", ["specialized", "swapped"])
@pytest.mark.parametrize("M", [40, 200, 2056])
def test_sums_of_wide_products_are_right_outside_of_tensor_cores(M: int, variant: str) -> None:
    """8-bit products, whole, in slices along K and with shared tiles."""
    if limits().capability[0] != 9:
        pytest.skip("warps with roles are for Hopper")
    kernel = catalog.load("scaled_gemm")
    problem = kernel.signature.problem({"M": M, "N": 1040, "K": 4112})
    space = [each for each in feasible(kernel, problem, limits()) if each["VARIANT"] == variant and each["WIDE"]]
    kinds: dict[tuple[object, ...], list[Config]] = {}
    for config in space:
        kinds.setdefault((config["GROUPS"], config["SPLIT_K"], config["BLOCK_K"]), []).append(config)
    assert kinds
    assert not wrong(kernel, [(problem, random.Random(M).choice(configs)) for configs in kinds.values()])


@pytest.mark.parametrize("tile", [(128, 256), (128, 192), (256, 128)])
def test_programs_that_share_tiles_agree_with_all_that_run_beside_them(tile: tuple[int, int]) -> None:
    """Each launch gives the same bits on two streams at once, and leaves the workspaces unchanged."""
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 5120, "N": 5120, "K": 1032, "dtype": "bf16"})
    space = [config for config in feasible(kernel, problem, limits()) if config["VARIANT"] == "stream_k"]
    config = next(config for config in space if (config["BLOCK_M"], config["BLOCK_N"]) == tile)
    operands = kernel.operands(problem)
    tensors = allocate(operands, "cuda")
    draw(operands, tensors, seed=1)
    assert kernel.vendor is not None
    kernel.vendor(problem, tensors)
    vendor_error = error(kernel, problem, tensors, written(operands, tensors))
    (limit,) = tolerances(kernel, problem).values()
    allowed = limit.beside(vendor_error).allowed
    results: list[list[torch.Tensor]] = []
    works, streams = [], [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            works.append(workspace(kernel.workspace(problem, config, limits()), "cuda"))
            results.append([torch.full_like(tensors["out"], float("nan")) for _ in range(8)])
    for nth in range(8):
        for stream, work, outs in zip(streams, works, results, strict=True):
            with torch.cuda.stream(stream):
                (launch,) = kernel.launch(problem, config, {**tensors, "out": outs[nth], **work})
                launch()
    torch.cuda.synchronize()
    assert error(kernel, problem, tensors, {"out": results[0][0]}) <= allowed
    assert all(torch.equal(out, results[0][0]) for outs in results for out in outs)
    assert all(not bool(work["arrived"].any()) for work in works)


@pytest.mark.parametrize("variant", ["tiles", "persistent", "specialized", "swapped"])
@pytest.mark.parametrize("M", [5, 300, 301])
def test_every_variant_of_scaled_gemm_is_right_with_both_kinds_of_scales(M: int, variant: str) -> None:
    """At sizes that no tile divides and that the copy engine takes; persistent programs have several tiles."""
    kernel = catalog.load("scaled_gemm")
    pairs: list[tuple[Problem, Config]] = []
    for N, K in ((1048, 1296), (20_008, 528)):
        for scales in ("tensor", "block"):
            problem = kernel.signature.problem({"M": M, "N": N, "K": K, "scales": scales, "out_dtype": "fp16"})
            space = [config for config in feasible(kernel, problem, limits()) if config["VARIANT"] == variant]
            pairs += [(problem, config) for config in random.Random(len(pairs)).sample(space, min(6, len(space)))]
    if not pairs:
        pytest.skip("this card has not the variant, or it wants more rows")
    assert not wrong(kernel, pairs)


@pytest.mark.parametrize(("M", "N"), [(300, 70_001), (1, 131_072), (4096, 65_536)])
def test_programs_that_share_rows_agree_with_all_that_run_beside_them(M: int, N: int) -> None:
    """Twice on one workspace, which each launch leaves unchanged."""
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": M, "N": N})
    shared = [config for config in feasible(kernel, problem, limits()) if config["SHARED"]]
    for config in [shared[0], shared[-1], *random.Random(N).sample(shared, 2)]:
        operands = kernel.operands(problem)
        tensors = allocate(operands, "cuda")
        draw(operands, tensors, seed=1)
        tensors["x"][0, : N // 2] = -float("inf")
        tensors["x"][-1, N // 2 :] = -1000.0
        work = workspace(kernel.workspace(problem, config, limits()), "cuda")
        for _ in range(2):
            tensors["out"].fill_(float("nan"))
            for launch in kernel.launch(problem, config, {**tensors, **work}):
                launch()
            assert error(kernel, problem, tensors, written(operands, tensors)) <= 2 * torch.finfo(torch.float32).eps
            assert all(not bool(work[name].any()) for name in ("started", "arrived"))


@pytest.mark.parametrize("N", [1, 3, 1000, 131_072, 150_000, 1_048_577, 2_000_003])
def test_softmax_rows_of_any_length(N: int) -> None:
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": 3, "N": N})
    for config in [kernel.default_config(problem, limits()), *drawn(kernel, problem, limits(), 2)]:
        found, allowed = wrongness(kernel, problem, config, "cuda", limits())
        assert found <= allowed, config


@pytest.mark.parametrize("N", [513, 1025, 4097])
def test_softmax_of_one_warp_is_right_at_sizes_that_16_does_not_divide(N: int) -> None:
    """Blocks of 512 columns, 2 rows and 3 or 4 stages were miscompiled."""
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": 1823, "N": N})
    warps = [config for config in feasible(kernel, problem, limits()) if config["num_warps"] == 1]
    assert any(config["num_stages"] > 2 for config in warps)
    assert not wrong(kernel, [(problem, config) for config in warps])


def test_ieee_products_are_not_tf32() -> None:
    kernel = catalog.load("gemm")
    errors = {}
    for precision in ("ieee", "tf32"):
        problem = kernel.signature.problem({"M": 1024, "dtype": "fp32", "precision": precision})
        config = kernel.signature.config(
            {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP_M": 8, "num_warps": 4, "num_stages": 3}
        )
        errors[precision], allowed = wrongness(kernel, problem, config, "cuda", limits())
        assert errors[precision] <= allowed
    assert errors["ieee"] < 5e-6  # 1.3e-6 on an H200: 1024 additions in fp32
    assert errors["tf32"] > 10 * errors["ieee"]


def test_sums_in_fp32_are_closer_than_those_that_hopper_keeps() -> None:
    kernel = catalog.load("scaled_gemm")
    if limits().capability[0] != 9:
        pytest.skip("other cards add up in fp32")
    errors = {}
    for accumulate in ("fp32", "fast"):
        values = {"M": 256, "N": 256, "K": 65536, "out_dtype": "fp16", "accumulate": accumulate}
        problem = kernel.signature.problem(values)
        config = kernel.default_config(problem, limits())
        errors[accumulate], allowed = wrongness(kernel, problem, config, "cuda", limits())
        assert errors[accumulate] <= allowed
    assert errors["fp32"] < 2 * torch.finfo(torch.float16).eps
    assert errors["fast"] > 4 * errors["fp32"]


@pytest.mark.parametrize("op", [op for op in OURS if stated_tests(op).huge is not None])
def test_more_than_2_to_the_31_elements(op: str) -> None:
    """46341 x 46341 is 2,147,488,281 elements: the last rows lie past a 32-bit offset."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(stated_tests(op).huge or {})
    found, allowed = wrongness(kernel, problem, kernel.default_config(problem, limits()), "cuda", limits())
    assert found <= allowed
