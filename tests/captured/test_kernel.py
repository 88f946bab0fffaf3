"""Kernels of captured calls, run by Triton's interpreter: the launch, the operands and the reference are the call's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
from calls import SHAPES, blocks, call_of, configs, copied, examined, made, run, tensor
from cpu_worker import on_cpu
from helpers import H200, TOYS

from tuner import catalog
from tuner.captured import document
from tuner.captured.call import Argument, CapturedCall, Contents, DescriptorArgument, DtypeArgument, Grids
from tuner.captured.functions import load
from tuner.captured.kernel import CapturedKernel, kernel_of
from tuner.errors import KernelFault, UsageError
from tuner.kernels.spec import Kernel, Limits
from tuner.measure.messages import Recheck, Task
from tuner.measure.tolerance import tolerances
from tuner.records import Evidence, Measurement, Outcome
from tuner.search.space import FeasibleSpace

N = 100
BLOCKS = configs(BLOCK=(32, 64), num_warps=(1, 4))


def biased(n: int = N, **bias: Any) -> CapturedCall:
    arguments: dict[str, Any] = {"x": tensor(n), "bias": None, "out": tensor(n), "n": n, **bias}
    return call_of("biased", arguments, BLOCKS, blocks(n))


def plain_call(**others: Any) -> CapturedCall:
    arguments: dict[str, Any] = {"x": tensor(N), "out": tensor(N), "n": N}
    return call_of("assigned", arguments, BLOCKS, blocks(N), **others)


def space(kernel: CapturedKernel, limits: Limits = H200.limits) -> list[dict[str, Any]]:
    return [dict(config) for config in FeasibleSpace.of(kernel, kernel.problem, limits)]


class TestLaunch:
    @pytest.mark.parametrize("n", [96, 100])
    def test_heuristics_follow_the_config(self, n: int) -> None:
        """96 is a multiple of 32 and not of 64, so one config runs without a mask and another needs it."""
        kernel = kernel_of(biased(n))
        for config in BLOCKS:
            (launch,) = kernel.launch(kernel.problem, made(kernel, config), dict.fromkeys(("x", "out"), torch.ones(n)))
            given = dict(zip(launch.fn.arg_names, launch.args, strict=False)) | dict(launch.kwargs)
            assert (given["EVEN"], given["HAS_BIAS"]) == (n % int(str(config["BLOCK"])) == 0, False)
            before, after = run(kernel, config)
            assert torch.equal(after["out"], before["x"])

    def test_an_optional_tensor_that_is_given_is_an_operand(self) -> None:
        kernel = kernel_of(biased(bias=tensor(N, dtype="bf16")))
        before, after = run(kernel)
        assert torch.allclose(after["out"], before["x"] + before["bias"].float())

    def test_heuristics_around_the_autotuner_give_what_the_call_does_not_have(self) -> None:
        call = call_of("row_sum", {"x": tensor(N), "out": tensor(1), "n": N}, configs(), lambda meta: (1,), knobs=())
        before, after = run(kernel_of(call))
        assert torch.allclose(after["out"][0], before["x"].sum())

    def test_an_argument_of_the_call_comes_before_a_heuristic_around_the_autotuner(self) -> None:
        call = call_of(
            "row_sum", {"x": tensor(N), "out": tensor(1), "n": N, "POWER": 64}, configs(), lambda meta: (1,), knobs=()
        )
        before, after = run(kernel_of(call))
        assert torch.allclose(after["out"][0], before["x"][:64].sum())

    @pytest.mark.parametrize(("acc", "dtype"), [("float32", torch.float32), ("float16", torch.float16)])
    def test_dtypes_are_those_of_the_language(self, acc: str, dtype: torch.dtype) -> None:
        listed = configs(BLOCK=(64,), ACC=("float32", "float16"))
        arguments: dict[str, Argument] = {
            "x": tensor(N),
            "out": tensor(N, dtype="fp16"),
            "n": N,
            "OUT": DtypeArgument("float16"),
        }
        kernel = kernel_of(call_of("converted", arguments, listed, blocks(N), key=("n", "OUT")))
        assert "OUT=float16" in kernel.problem.text
        before, after = run(kernel, next(each for each in listed if each["ACC"] == acc))
        assert torch.equal(after["out"], before["x"].to(dtype).half())

    def test_an_operand_may_be_two_arguments(self) -> None:
        call = call_of(
            "scale_in_place",
            {"x": tensor(N), "y": tensor(N, same_as="x"), "n": N, "factor": 0.5},
            BLOCKS,
            blocks(N),
            restored=("x",),
        )
        kernel = kernel_of(call)
        assert {name: each.role for name, each in kernel.operands(kernel.problem).items()} == {"x": "inout"}
        before, after = run(kernel)
        assert torch.equal(after["x"], before["x"] / 2)

    @pytest.mark.parametrize("rows", [8, 16, 32])
    def test_the_hook_of_the_nearest_listed_config_sets_the_block_of_a_descriptor(self, rows: int) -> None:
        m, n = 48, 96
        described = DescriptorArgument(tensor(m, n), (m, n), (n, 1), (1, 1))
        listed = configs(ROWS=(8, 16), COLUMNS=(32,))
        call = call_of(
            "copied",
            {"x": described, "out": described, "M": m, "N": n},
            listed,
            lambda meta: (-(-m // meta["ROWS"]), -(-n // meta["COLUMNS"])),
            key=("M", "N"),
            knobs=("ROWS", "COLUMNS"),
        )
        kernel = kernel_of(call, widen=True)
        before, after = run(kernel, {**listed[0], "ROWS": rows})
        assert torch.equal(after["out"], before["x"])
        seen = load(call.function).configs[0].pre_hook.__globals__["SEEN"][-1]
        assert (seen["ROWS"], seen["num_warps"], seen["num_ctas"], seen["M"]) == (rows, 4, 1, m)

    def test_a_parameter_without_a_value_has_its_default(self) -> None:
        call = call_of("plain", {"x": tensor(N), "out": tensor(N), "n": N}, configs(), lambda meta: (2,), knobs=())
        before, after = run(kernel_of(call))
        assert torch.equal(after["out"], before["x"] + 1)

    def test_options_of_the_caller_are_launch_options(self) -> None:
        kernel = kernel_of(plain_call(options={"num_ctas": 1, "debug": True}))
        (launch,) = kernel.launch(kernel.problem, made(kernel, BLOCKS[0]), {"x": torch.ones(N), "out": torch.ones(N)})
        assert dict(launch.kwargs).items() >= {"num_ctas": 1, "debug": True, "num_warps": 1, "num_stages": 2}.items()

    def test_an_option_that_a_config_leaves_out_is_left_to_the_compiler(self) -> None:
        listed = [{**BLOCKS[0], "maxnreg": None}, {**BLOCKS[1], "maxnreg": 64}]
        kernel = kernel_of(replace(plain_call(), configs=tuple(listed)))
        values = {"x": torch.ones(N), "out": torch.ones(N)}
        options = [dict(kernel.launch(kernel.problem, made(kernel, each), values)[0].kwargs) for each in listed]
        assert [each.get("maxnreg", "none") for each in options] == ["none", 64]

    def test_a_fault_of_a_heuristic_names_its_line(self, tmp_path: Path) -> None:
        text = Path(SHAPES).read_text().replace('args["n"] % args["BLOCK"] == 0', 'args["m"]')
        kernel = kernel_of(replace(biased(), function=replace(biased().function, file=copied(text, tmp_path, "k.py"))))
        with pytest.raises(KernelFault, match=r"k\.py line \d+: the heuristic of EVEN raises KeyError: 'm'"):
            run(kernel)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (("x, out, n, BLOCK: tl.constexpr = 64", "x, result, n, BLOCK"), "plain has no out now; capture it again"),
            (("x, out, n, BLOCK: tl.constexpr = 64", "x, out, n, more, BLOCK"), "more is missing; capture it again"),
        ],
    )
    def test_another_function_than_was_captured_is_refused(
        self, tmp_path: Path, change: tuple[str, str], message: str
    ) -> None:
        file = copied(Path(SHAPES).read_text().replace(*change), tmp_path, "k.py")
        with pytest.raises(KernelFault, match=message):
            run(kernel_of(plain_call(file=file)))


class TestOperands:
    def test_they_lie_as_the_tensors_did(self) -> None:
        x = tensor(4, 6, strides=(8, 1), dtype="bf16", offset=6)
        kernel = kernel_of(biased(bias=x))
        operand = kernel.operands(kernel.problem)["bias"]
        assert (operand.shape, operand.strides, operand.offset, operand.role) == ((4, 6), (8, 1), 6, "inout")
        before, _ = run(kernel)
        assert before["x"].shape == (N,)

    def test_tensors_that_are_reset_are_zero(self) -> None:
        total = tensor(1, contents=Contents(low=7.0, high=9.0))
        call = call_of("count", {"x": tensor(N), "total": total, "n": N}, BLOCKS, blocks(N), reset=("total",))
        before, after = run(kernel_of(call))
        assert not before["total"].any()
        assert torch.allclose(after["total"][0], before["x"].sum())

    def test_integers_by_value_are_where_they_were(self) -> None:
        """A mixture of experts reads its rows by the tokens of each expert, so these are kept by value."""
        order = tuple(torch.randperm(N, generator=torch.Generator().manual_seed(1)).tolist())
        index = tensor(N, dtype="int32", contents=Contents(values=order, low=0, high=N - 1))
        call = call_of("gathered", {"x": tensor(N), "index": index, "out": tensor(N), "n": N}, BLOCKS, blocks(N))
        before, after = run(kernel_of(call))
        assert before["index"].tolist() == list(order)
        assert torch.equal(after["out"], before["x"][list(order)])

    def test_expanded_tensors_are_only_read(self) -> None:
        kernel = kernel_of(biased(bias=tensor(7, N, strides=(0, 1))))
        assert kernel.operands(kernel.problem)["bias"].role == "in"

    def test_elements_that_share_memory_otherwise_are_refused(self) -> None:
        kernel = kernel_of(biased(bias=tensor(7, N, strides=(1, 1))))
        with pytest.raises(UsageError, match=r"those of bias overlap by strides \(1, 1\); copy it before the call"):
            kernel.operands(kernel.problem)

    def test_another_problem_is_refused(self) -> None:
        kernel = kernel_of(biased())
        with pytest.raises(UsageError, match=r"has one problem, main_biased n=100 .*, not main_biased n=7 "):
            kernel.operands(kernel.signature.problem({"n": 7}))


class TestConfigs:
    def test_a_search_has_the_listed_ones_and_the_signature_their_neighbours(self) -> None:
        kernel = kernel_of(plain_call())
        assert space(kernel) == BLOCKS
        assert kernel.signature.knobs[2].choices == (16, 32, 64, 128)
        assert dict(kernel.default_config(kernel.problem, H200.limits)) == BLOCKS[0]

    def test_widened_it_has_all_combinations(self) -> None:
        kernel = kernel_of(plain_call(), widen=True)
        assert len(space(kernel)) == 4 * 4 * 3  # BLOCK, num_warps and num_stages
        assert len(space(kernel, replace(H200.limits, threads_per_block=64))) == 4 * 2 * 3

    def test_without_a_grid_a_config_is_not_feasible(self) -> None:
        call = plain_call()
        kernel: Kernel = kernel_of(replace(call, grids=Grids(("BLOCK",), {(32,): (4,)})), widen=True)
        problem = kernel.signature.problem({"n": N, "dtype": "fp32"})
        assert {each["BLOCK"] for each in FeasibleSpace.of(kernel, problem, H200.limits)} == {32}
        refusal = kernel.valid.refusal(problem, BLOCKS[1] | {"BLOCK": 64}, H200.limits)
        rule = "a config needs a captured grid, and none with BLOCK=64 was captured; capture the call again"
        assert str(refusal) == f"valid: {rule}"
        with pytest.raises(KernelFault, match="none with BLOCK=64"):
            kernel.launch(problem, kernel.signature.config(BLOCKS[1] | {"BLOCK": 64}), {"x": None, "out": None})

    def test_while_no_grid_is_known_none_is_refused(self) -> None:
        assert space(kernel_of(replace(plain_call(), grids=Grids((), {})))) == BLOCKS


class TestReference:
    def test_outputs_are_compared_with_the_agreed_config(self) -> None:
        call = replace(biased(), examined=examined(BLOCKS[1], x="in", out="out"))
        kernel = kernel_of(call)
        before, after = run(kernel)
        found = kernel.reference(kernel.problem, {**after, "out": after["out"].new_full((N,), 7.0)}, slice(10, 20))
        assert torch.equal(found["out"], before["x"][10:20])

    def test_what_is_read_and_written_is_not_changed_by_it(self) -> None:
        call = call_of(
            "scale_in_place",
            {"x": tensor(N, offset=4), "y": tensor(N, same_as="x"), "n": N, "factor": 0.5},
            BLOCKS,
            blocks(N),
            examined=examined(BLOCKS[0], x="inout"),
        )
        kernel = kernel_of(call)
        x = torch.arange(float(N))
        found = kernel.reference(kernel.problem, {"x": x}, slice(None))
        assert torch.equal(found["x"], x / 2)
        assert torch.equal(x, torch.arange(float(N)))

    def test_a_call_that_was_not_examined_has_none(self) -> None:
        kernel = kernel_of(biased())
        with pytest.raises(KernelFault, match="the call of biased was not examined; run tuner search --captured"):
            kernel.reference(kernel.problem, {"x": torch.ones(N), "out": torch.ones(N)}, slice(None))

    @staticmethod
    def stated(reference: str) -> tuple[CapturedKernel, CapturedKernel]:
        """Return the kernel of `gathered` with one of the references of its file, and without."""
        call = call_of(
            "gathered",
            {"x": tensor(N), "index": tensor(N, dtype="int32"), "out": tensor(N), "n": N},
            BLOCKS,
            blocks(N),
            examined=examined(None, x="in", index="in", out="out"),
        )
        function = load(call.function)
        stated = type(function)(
            function.fn, function.arg_names, function.configs, function.keys, function.reset_to_zero, []
        )
        stated.reference = run_path(SHAPES)[reference]
        return kernel_of(call, function=stated), kernel_of(call, function=function)

    @pytest.mark.parametrize(("reference", "rows"), [("twice", slice(5, 9)), ("gathered_reference", slice(None))])
    def test_an_author_may_state_one(self, reference: str, rows: slice) -> None:
        x, index = torch.arange(float(N)), torch.arange(N).flip(0).int()
        kernel, plain = self.stated(reference)
        found = kernel.reference(kernel.problem, {"x": x, "index": index, "out": torch.empty(N)}, rows)
        assert torch.equal(found["out"].float(), (x * 2 if reference == "twice" else x.flip(0))[rows])
        assert (kernel.source, plain.definition) == (plain.source, "")
        assert len(kernel.definition) == 16

    @pytest.mark.parametrize(
        ("reference", "message"),
        [
            ("raising", r"shapes.py line \d+: reference raises ZeroDivisionError"),
            ("too_short", r"shapes.py line \d+: reference returns out in shape \(100,\), not \(99,\); correct it"),
            ("of_others", r"reference takes arguments of the kernel by name, and size is none; rename it"),
            ("misnamed", r"reference returns a tensor for each written one, and out is not in y"),
            ("untyped", r"reference returns a tensor for each written one, and out is not in out"),
        ],
    )
    def test_a_wrong_one_is_a_fault_with_its_line(self, reference: str, message: str) -> None:
        kernel, _ = self.stated(reference)
        values = {"x": torch.ones(N), "index": torch.zeros(N, dtype=torch.int32), "out": torch.empty(N)}
        with pytest.raises(KernelFault, match=message):
            kernel.reference(kernel.problem, values, slice(None))

    @pytest.mark.parametrize(
        ("dtypes", "rounding"),
        [(("fp32", "fp32"), 2**-10), (("bf16", "fp32"), 2**-7), (("fp64", "int8"), 0.0), (("fp8e4m3", "fp16"), 2**-10)],
    )
    def test_rounding_is_that_of_the_dtypes(self, dtypes: tuple[str, str], rounding: float) -> None:
        x, out = (tensor(N, dtype=dtype) for dtype in dtypes)
        kernel = kernel_of(call_of("assigned", {"x": x, "out": out, "n": N}, BLOCKS, blocks(N)))
        assert kernel.rounding(kernel.problem) == rounding
        assert tolerances(kernel, kernel.problem).keys() == {"x", "out"}


def written(call: CapturedCall, folder: Path) -> str:
    path = folder / "biased.call.json"
    document.write(call, path)
    return str(path)


def test_the_worker_measures_and_checks_a_captured_call(tmp_path: Path) -> None:
    """Three configs are right; one would be wrong, if its grid were too small."""
    call = replace(biased(), examined=examined(BLOCKS[0], x="in", out="out"))
    grids = Grids(("BLOCK", "num_warps"), {(32, 1): (4,), (32, 4): (4,), (64, 1): (2,), (64, 4): (1,)})
    reference = written(replace(call, grids=grids), tmp_path)
    kernel = catalog.resolve(reference)
    assert isinstance(kernel, CapturedKernel)
    worker = on_cpu(Task(reference, kernel.problem, H200.limits), lambda message: None)
    found = {
        (each["BLOCK"], each["num_warps"]): worker.recheck(Recheck(kernel.signature.config(each), 5)) for each in BLOCKS
    }
    wrong = found.pop((64, 4))
    assert all(isinstance(each, Evidence) for each in found.values()), found
    assert isinstance(wrong, Measurement)
    assert wrong.outcome is Outcome.WRONG_RESULT


def test_the_catalog_finds_it_by_its_document(tmp_path: Path) -> None:
    reference = written(biased(), tmp_path)
    kernel = catalog.resolve(reference)
    assert kernel == catalog.resolve(reference)
    assert catalog.reference_of(kernel) == reference
    assert catalog.signature(reference, dict) == kernel.signature
    assert kernel != kernel_of(biased())
    assert hash(kernel) == hash(kernel_of(biased()))


def test_its_signature_needs_no_code(tmp_path: Path) -> None:
    call = biased()
    reference = written(replace(call, function=replace(call.function, file=str(TOYS / "none.py"))), tmp_path)
    assert catalog.signature(reference, dict).op == "main_biased"
    with pytest.raises(UsageError, match=r"there is no .*none.py; capture it again"):
        catalog.resolve(reference)
