"""Contract of every kernel: our own ops, which are discovered, and a user's few lines."""

from __future__ import annotations

import ast
import json
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from textwrap import dedent
from types import MappingProxyType

import pytest
from forks import printed
from helpers import (
    A100,
    B200,
    H200,
    OURS,
    RTX_4090,
    able,
    drawn,
    possible,
    problems,
    resized,
    toy,
    usual,
    wrongness,
)
from stated_tests import KERNELS, Planted, Values, stated_tests
from triton.runtime.interpreter import InterpretedFunction

import tuner
from tuner import catalog
from tuner.errors import KernelFault, UsageError
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Problem, Signature
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

CARDS = (H200, B200, A100, RTX_4090)


@pytest.fixture(params=[*OURS, toy("double"), toy("halve")], ids=lambda name: Path(name).stem)
def kernel(request: pytest.FixtureRequest) -> Kernel:
    return catalog.resolve(request.param)


class TestKernelContract:
    def test_signature_survives_json(self, kernel: Kernel) -> None:
        assert Signature.from_json(json.loads(json.dumps(kernel.signature.as_json()))) == kernel.signature

    def test_source_is_a_stable_hash(self, kernel: Kernel) -> None:
        assert len(kernel.source) == 16
        assert int(kernel.source, 16) >= 0

    def test_every_dim_and_knob_of_ours_explains_itself(self, kernel: Kernel) -> None:
        if kernel.op in OURS:
            signature = kernel.signature
            helps = [part.help for parts in (signature.dims, signature.attributes, signature.knobs) for part in parts]
            assert all(helps)

    def test_bytes_count_each_operand_once_a_direction(self, kernel: Kernel) -> None:
        problem = usual(kernel.op) if kernel.op in OURS else kernel.signature.problem({"N": 64})
        operands = kernel.operands(problem).values()
        assert kernel.bytes(problem) == sum(o.bytes for o in operands) + sum(
            o.bytes for o in operands if o.role == "inout"
        )


MAY_IMPORT = {"tuner.errors"} | {f"tuner.kernels.{name}" for name in ("spec", "calling", "overlap", "shared")}


def imported(file: Path) -> set[str]:
    """Return the modules of ours that a file imports."""
    found = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)]
    of_each = (
        [node.module or ""] if isinstance(node, ast.ImportFrom) else [n.name for n in node.names] for node in found
    )
    return {name for name in chain.from_iterable(of_each) if name.partition(".")[0] == "tuner"}


@pytest.mark.parametrize("package", [*OURS, "shared"])
def test_an_op_imports_no_other_op(package: str) -> None:
    allowed = MAY_IMPORT | {f"tuner.kernels.{package}"}
    for file in (KERNELS / package).rglob("*.py"):
        others = {name for name in imported(file) if not any(f"{name}.".startswith(f"{own}.") for own in allowed)}
        assert others == set(), file


@pytest.mark.parametrize("file", ["kernels/calling.py", "catalog.py", "launching/calls.py", "ops.py"])
def test_general_code_names_no_op(file: str) -> None:
    """A method may have the name of an op, as `add` of a set; names, texts and imports may not."""
    path = Path(tuner.__file__).parent / file
    nodes = [*ast.walk(ast.parse(path.read_text()))]
    words = {node.id for node in nodes if isinstance(node, ast.Name)} | imported(path)
    words |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    assert {word.removeprefix("tuner.kernels.").partition(".")[0] for word in words} & set(OURS) == set()


@pytest.mark.parametrize(
    ("op", "limits"),
    [pytest.param(op, card.limits, id=f"{op} {card.id}") for op in OURS for card in CARDS if able(op, card.limits)],
)
def test_default_is_feasible_at_every_size(op: str, limits: Limits) -> None:
    """A default that is not among the choices would never be measured. Each card has sizes of its own."""
    kernel = catalog.load(op)
    dice = random.Random(f"{op} {limits.sm_count}")
    sizes = [2**power for power in range(15)]
    of_all_kinds = [*problems(op)]
    starts = [usual(op)] * 30 + dice.choices(of_all_kinds, k=90)
    drawn = [
        possible(kernel, {**start.values, **{dim.name: dice.choice(sizes) for dim in kernel.signature.dims}})
        for start in starts
    ]
    large = [kernel.signature.problem(values) for values in stated_tests(op).large]
    by_models = [kernel.signature.problem(kernel.draw(dice)) for _ in range(40)] if kernel.draw else []
    for problem in filter(None, [*large, *of_all_kinds, *drawn, *by_models]):
        config = kernel.default_config(problem, limits)
        choices = {knob.name: knob.choices for knob in kernel.signature.knobs}
        assert all(value in choices[name] for name, value in config.items()), (problem.text, config)
        assert kernel.valid(problem, config, limits), (problem.text, config)


def test_no_config_steps_past_a_32_bit_offset() -> None:
    kernel = catalog.load("gemm")
    for sizes in ({"M": 16, "N": 1 << 24, "K": 256}, {"M": 1 << 25, "N": 16, "K": 256, "layout": "tn"}):
        problem = kernel.signature.problem(sizes)
        space = list(feasible(kernel, problem, H200.limits))
        assert max(config["BLOCK_K"] for config in space) * max(problem.sizes) < 2**31
        assert kernel.default_config(problem, H200.limits) in space


def test_the_gemm_space_is_wide() -> None:
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 4096})
    space = list(feasible(kernel, problem, H200.limits))
    assert len(space) > 1000
    known_good = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 3}
    assert kernel.signature.config(known_good) in space
    assert kernel.signature.config(known_good | {"VARIANT": "persistent"}) in space


@pytest.mark.parametrize("op", OURS)
def test_nothing_is_launched_if_nothing_is_written(op: str) -> None:
    kernel = catalog.load(op)
    problem = usual(op)
    config = kernel.default_config(problem, H200.limits)
    empty = [dim for dim in dict(problem.dims) if writes_nothing(kernel, resized(problem, **{dim: 0}))]
    assert empty
    for dim in empty:
        resized_to_0 = resized(problem, **{dim: 0})
        stand_ins = {name: StandIn(operand) for name, operand in kernel.operands(resized_to_0).items()}
        assert kernel.launch(resized_to_0, config, stand_ins) == (), dim


def writes_nothing(kernel: Kernel, problem: Problem) -> bool:
    """Return whether no operand that is written has elements; False if an op has no such operands."""
    try:
        operands = kernel.operands(problem)
    except (KernelFault, UsageError):
        return False
    return not any(operand.bytes for operand in operands.values() if operand.role != "in")


def runnable(kernel: Kernel, problem: Problem, config: Config) -> bool:
    """Return whether Triton interprets a config: it does not run Gluon, host calls, and programs that wait."""
    tensors = kernel.tensors(problem, config, B200.limits)
    stand_ins = {name: StandIn(operand) for name, operand in tensors.items()}
    launches = kernel.launch(problem, config, stand_ins)
    interpreted = (isinstance(launch.fn, InterpretedFunction) for launch in launches)
    return all(interpreted) and stated_tests(kernel.op).interpretable(config)


def some(kernel: Kernel, problem: Problem, count: int, given: Values = MappingProxyType({})) -> list[Config]:
    """Return the default and configs by seed that the interpreter runs; `given` are values that each of them has."""
    found = dict[Config, None]()
    for config in default_and_drawn(kernel, problem, given):
        if config not in found and runnable(kernel, problem, config):
            found[config] = None
            if len(found) == count:
                break
    return list(found)


def default_and_drawn(kernel: Kernel, problem: Problem, given: Values) -> Iterator[Config]:
    """Yield the default, and only if more are wanted draw configs, which takes longer."""
    default = kernel.default_config(problem, B200.limits)
    if given.items() <= default.items():
        yield default
    yield from drawn(kernel, problem, B200.limits, 8, seed=len(problem.text), given=given)


def interpreted(op: str) -> list[Problem]:
    """Return up to `_INTERPRETED` problems in fp16 and fp32 that Triton interprets; none of an op in Gluon."""
    kernel = catalog.load(op)
    dtypes = [dtype for dtype in ("fp16", "fp32") if dtype in kernel.signature.dtypes]
    if not dtypes or not some(kernel, next(problems(op, dtypes=(dtypes[0],))), 1):
        return []
    first, *others = problems(op, dtypes=tuple(dtypes))
    return [first, *random.Random(op).sample(others, min(len(others), _INTERPRETED - 1))]


_INTERPRETED = 9
INTERPRETED = [
    pytest.param(reference, problem, id=f"{Path(reference).stem}-{problem.text}")
    for reference, of_one in {
        **{op: interpreted(op) for op in OURS},
        toy("double"): [catalog.resolve(toy("double")).signature.problem({"N": n}) for n in (1, 127, 1000)],
    }.items()
    for problem in of_one
]


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # rows past the end, never stored
@pytest.mark.filterwarnings("ignore:overflow encountered in exp:RuntimeWarning")  # silu of large negatives: x / inf
@pytest.mark.parametrize(("reference", "problem"), INTERPRETED)
def test_configs_are_right_under_the_interpreter(reference: str, problem: Problem) -> None:
    """The limits are those of a card without Hopper's instructions."""
    kernel = catalog.resolve(reference)
    for config in some(kernel, problem, 2):
        error, allowed = wrongness(kernel, problem, config, "cpu")
        assert error <= allowed, config


PLANTED = [pytest.param(op, bug, id=f"{op} {n}") for op in OURS for n, bug in enumerate(stated_tests(op).planted)]


@pytest.mark.parametrize("op", OURS)
def test_each_op_states_its_problems_and_bugs(op: str) -> None:
    stated = stated_tests(op)
    assert stated.odd
    assert stated.large
    assert stated.planted


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")
@pytest.mark.parametrize(("op", "bug"), PLANTED)
def test_the_check_finds_a_planted_bug(op: str, bug: Planted, tmp_path: Path) -> None:
    """The kernel without the bug passes. Ops that the interpreter does not run are tested on a card."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(bug.problem)
    configs = some(kernel, problem, 2, bug.config)
    wrong = bug.kernel(op, tmp_path)
    assert wrong.definition == kernel.definition
    if not configs:
        pytest.skip("the interpreter runs no such config")
    for config in configs:
        error, allowed = wrongness(kernel, problem, config, "cpu")
        assert error <= allowed, config
    found = (wrongness(wrong, problem, config, "cpu") for config in configs)
    assert any(not error <= allowed for error, allowed in found)


@pytest.mark.parametrize("op", ["gemm", "scaled_gemm"])
def test_slices_have_room_in_the_workspace_however_tensors_lie(op: str) -> None:
    """Tensors that descriptors cannot describe go through pointers, with the workspace of the config."""
    kernel = catalog.load(op)
    seen = set()
    few = {"M": 16, "N": 6144, "K": 4096} | ({"layout": "nt"} if op == "gemm" else {})
    for values in ({"M": 256, "N": 6144, "K": 4096}, {"M": 1024, "N": 2048, "K": 4096}, {"M": 5120}, few):
        problem = kernel.signature.problem(values)
        for config in drawn(kernel, problem, H200.limits, count=150):
            described = dict(kernel.tensors(problem, config, H200.limits))
            described["a"] = replace(described["a"], strides=(described["a"].shape[1] + 1, 1))
            stand_ins = {name: StandIn(operand) for name, operand in described.items()}
            (launch,) = kernel.launch(problem, config, stand_ins)
            assert isinstance(launch, Launch)
            if launch.kwargs.get("SPLIT_K", 1) > 1:
                assert launch.grid[0] <= described["partials"].shape[0], config.text
            seen.add((config["VARIANT"], launch.fn.__name__.endswith("tiles")))
    others = {("persistent", True), ("specialized", True)} | ({("streamed", True)} if op == "gemm" else set())
    assert others <= seen


def test_every_way_through_gemm_is_interpreted() -> None:
    """Pointers or copy engine, whole or in slices along K, or vectors."""
    kernel = catalog.load("gemm")
    ways = {}
    for rows in (33, 3):
        problem = kernel.signature.problem({"M": rows, "N": 48, "K": 1032, "dtype": "fp16", "bias": True})
        for config in feasible(kernel, problem, B200.limits):
            ways[config["VARIANT"], config["SPLIT_K"] > 1] = problem, config
    sliced = {(variant, sliced) for variant in ("tiles", "persistent") for sliced in (False, True)}
    assert ways.keys() == {*sliced, ("vectors", False)}
    for problem, config in ways.values():
        error, allowed = wrongness(kernel, problem, config, "cpu", B200.limits)
        assert error <= allowed, config


COMPILE_ALL = """
    import sys
    sys.path.insert(0, {tests!r})
    from helpers import H200
    from tuner import catalog
    from tuner.measure.compile import compile_config
    from tuner.search.space import feasible

    kernel = catalog.load({op!r})
    chosen = [kernel.signature.problem(values) for values in {problems!r}]
    found = {{}}
    for problem in chosen:
        for config in feasible(kernel, problem, H200.limits):
            found.setdefault((config["VARIANT"], config["SPLIT_K"] > 1, problem.attributes), (problem, config))
    for (variant, *_), (problem, config) in found.items():
        compiled = compile_config(kernel, problem, config, H200.limits)
        print(compiled.outcome, variant, problem.text, config.text, compiled.error)
"""


@pytest.mark.parametrize(
    ("op", "values", "ways"),
    [
        ("gemm", [{"M": 5120}, {"M": 3, "N": 4096, "K": 4096}], 9),
        ("scaled_gemm", [{"M": 768}, {"M": 768, "scales": "block"}], 14),
    ],
)
def test_every_way_through_a_product_compiles_for_hopper(op: str, values: list[dict[str, object]], ways: int) -> None:
    """Gluon is not interpreted, and variants share device code: a change for one may break another."""
    code = dedent(COMPILE_ALL).format(tests=str(Path(__file__).parents[1]), op=op, problems=values)
    lines = [line for line in printed(code).splitlines() if line.startswith(("ok ", "compile_error ", "error "))]
    assert len(lines) == ways
    assert [line for line in lines if not line.startswith("ok ")] == []
