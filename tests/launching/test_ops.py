"""The ops without a GPU: refused calls, tracing by torch, and the problem of a call."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import problems, reaching
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tuner import catalog, ops
from tuner.errors import UsageError
from tuner.launching import calls
from tuner.measure.tensors import dtype_of

A, B, X = torch.empty(3, 5), torch.empty(5, 7), torch.empty(3, 5)

REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: ops.softmax(X), "softmax runs on a GPU, and its tensors are on cpu; move them with .cuda()"),
    (lambda: ops.gemm(A, B), "gemm runs on a GPU, and its tensors are on cpu; move them with .cuda()"),
    (lambda: ops.softmax(X[0]), "softmax takes matrices, and x has shape (5,); make it one, as in x.reshape(-1,"),
    (lambda: ops.gemm(A, B[0]), "gemm takes matrices, and b has shape (7,)"),
    (lambda: ops.transpose(torch.empty(2, 3, 4)), "transpose takes matrices, and x has shape (2, 3, 4)"),
    (lambda: ops.gemm(A, A), "gemm multiplies a (M, K) by b (K, N), not (3, 5) by (3, 5)"),
    (lambda: ops.gemm(A, B.half()), "of one dtype, and a is torch.float32 but b is torch.float16; convert one of them"),
    (lambda: ops.gemm(A, B.to("meta")), "on one device, and a is on cpu but b is on meta; move one of them"),
    (lambda: ops.softmax(X.double()), "softmax takes fp32, fp16, bf16, and x is torch.float64; convert it with .to()"),
    (lambda: ops.gemm(A.int(), B.int()), "gemm takes bf16, fp16, fp32, and a is torch.int32"),
    (
        lambda: ops.transpose(X.to(torch.complex128)),
        "transpose takes elements of 1, 2, 4 or 8 bytes, and x is torch.complex128",
    ),
    (lambda: ops.softmax(X, out=A.t()), "softmax writes to an out of shape (3, 5) here, not (5, 3); omit out"),
    (lambda: ops.gemm(A, B, out=A), "gemm writes to an out of shape (3, 7) here, not (3, 5)"),
    (lambda: ops.softmax(X, out=X.half()), "of one dtype, and x is torch.float32 but out is torch.float16"),
    (lambda: ops.softmax(torch.nn.Parameter(X)), "tuner.ops has no backward pass, and a tensor requires a gradient"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:40] for _, message in REFUSED])
def test_a_call_that_does_not_fit_is_refused_with_the_rule_the_value_and_the_way_out(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert message in str(refused.value)
    assert ";" in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_parameter_is_accepted_without_gradients() -> None:
    with torch.no_grad(), pytest.raises(UsageError, match="runs on a GPU"):
        ops.softmax(torch.nn.Parameter(X))


def test_a_subclass_of_tensor_is_treated_as_a_tensor() -> None:
    class Named(Tensor):  # type: ignore[misc]
        pass

    with pytest.raises(UsageError, match="runs on a GPU"):
        ops.softmax(X.as_subclass(Named))


class TestFake:
    """Tensors without memory, on a GPU that this machine does not have."""

    def test_results_have_shape_dtype_and_device(self) -> None:
        with FakeTensorMode():
            a, b = (torch.empty(size, dtype=torch.bfloat16, device="cuda:1") for size in ((3, 5), (5, 7)))
            results = [ops.gemm(a, b), ops.softmax(a), ops.transpose(a)]
        assert [tuple(result.shape) for result in results] == [(3, 7), (3, 5), (5, 3)]
        assert {(result.dtype, str(result.device)) for result in results} == {(torch.bfloat16, "cuda:1")}

    def test_out_is_returned(self) -> None:
        with FakeTensorMode():
            x, out = torch.empty(3, 5, device="cuda"), torch.empty(3, 5, device="cuda")
            assert ops.softmax(x, out) is out

    def test_tensors_that_do_not_fit_are_refused_when_they_are_traced(self) -> None:
        with FakeTensorMode(), pytest.raises(UsageError, match="gemm multiplies"):
            ops.gemm(torch.empty(3, 5, device="cuda"), torch.empty(3, 5, device="cuda"))


class TestCompile:
    def traced(self, model: Callable[..., Any], *inputs: Tensor) -> list[str]:
        """Return the ops that `torch.compile` finds, in one graph."""
        found: list[str] = []

        def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
            found.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
            return module.forward  # type: ignore[no-any-return]

        torch.compile(model, backend=backend, fullgraph=True)(*inputs)
        return found

    def test_a_model_is_one_graph_with_our_ops_in_it(self) -> None:
        inputs = torch.empty(3, 5, device="meta"), torch.empty(5, 7, device="meta")
        found = self.traced(lambda a, b: ops.transpose(ops.softmax(ops.gemm(a, b))) + 1, *inputs)
        assert [name for name in found if name.startswith("tuner")] == [
            "tuner.gemm.default",
            "tuner.softmax.default",
            "tuner.transpose.default",
        ]

    def test_sizes_may_be_unknown(self) -> None:
        shapes: list[tuple[Any, ...]] = []

        def backend(module: torch.fx.GraphModule, example: list[Any]) -> Callable[..., Any]:
            shapes.append(tuple(example))
            return module.forward  # type: ignore[no-any-return]

        model = torch.compile(lambda x: ops.softmax(x), backend=backend, fullgraph=True, dynamic=True)
        assert [tuple(model(torch.empty(rows, 64, device="meta")).shape) for rows in (3, 5, 9)] == [
            (3, 64),
            (5, 64),
            (9, 64),
        ]
        assert len(shapes) == 1

    def test_the_compiled_model_runs_the_op_itself(self) -> None:
        model = torch.compile(lambda x: ops.softmax(x), backend="aot_eager", fullgraph=True)
        with pytest.raises(UsageError, match="runs on a GPU"):
            model(X)


class TestProblem:
    def text(self, op: str, *tensors: Tensor) -> str:
        names = {"gemm": ("a", "b", "out")}.get(op, ("x", "out"))
        return calls.load(op).problem(dict(zip(names, tensors, strict=True))).text

    @pytest.mark.parametrize(
        ("a", "b", "layout"),
        [
            (torch.empty(3, 5), torch.empty(5, 7), ""),
            (torch.empty(3, 5), torch.empty(7, 5).t(), " layout=nt"),
            (torch.empty(5, 3).t(), torch.empty(5, 7), " layout=tn"),
            (torch.empty(5, 3).t(), torch.empty(7, 5).t(), " layout=tt"),
            (torch.empty(3, 10)[:, ::2], torch.empty(5, 7), ""),
            (torch.empty(3, 5), torch.empty(7, 9)[:, :5].t(), " layout=nt"),
            (torch.empty(1, 5), torch.empty(5, 1), ""),
        ],
        ids=["nn", "nt", "tn", "tt", "strided", "padded nt", "vectors"],
    )
    def test_a_t_in_the_layout_is_an_input_whose_columns_lie_together(self, a: Tensor, b: Tensor, layout: str) -> None:
        out = torch.empty(a.shape[0], b.shape[1])
        assert (
            self.text("gemm", a.half(), b.half(), out.half())
            == f"gemm M={len(a)} N={b.shape[1]} K=5 dtype=fp16{layout}"
        )

    def test_bias_and_activation_are_attributes(self) -> None:
        tensors = {"a": A, "b": B, "out": torch.empty(3, 7), "bias": torch.empty(7)}
        text = calls.load("gemm").problem(tensors, activation="silu").text
        assert text == "gemm M=3 N=7 K=5 dtype=fp32 activation=silu bias=True"

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            (
                {"bias": torch.empty(5)},
                r"gemm adds a bias with an element for each column, of shape \(7,\) here",
            ),
            ({"bias": torch.empty(7).half()}, "gemm takes tensors of one dtype, and a is torch.float32 but bias is"),
            ({"activation": "relu"}, "gemm's activation is one of none, silu, gelu, not 'relu'"),
        ],
    )
    def test_arguments_that_do_not_fit_are_refused(self, given: dict[str, Any], message: str) -> None:
        """Fake tensors too, so that tracing a model shows it."""
        meta = {name: x.to("meta") if isinstance(x, Tensor) else x for name, x in given.items()}
        with pytest.raises(UsageError, match=message):
            ops.gemm(A.to("meta"), B.to("meta"), **meta)

    def test_fp32_products_follow_the_setting_of_torch(self) -> None:
        tensors = A, B, torch.empty(3, 7)
        assert self.text("gemm", *tensors) == "gemm M=3 N=7 K=5 dtype=fp32"
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        try:
            assert self.text("gemm", *tensors) == "gemm M=3 N=7 K=5 dtype=fp32 precision=tf32"
        finally:
            torch.set_float32_matmul_precision(before)

    @pytest.mark.parametrize(
        ("dtype", "moved_as"), [("bool", "int8"), ("float8_e5m2", "int8"), ("uint16", "int16"), ("bfloat16", "bf16")]
    )
    def test_elements_that_only_move_may_have_any_dtype(self, dtype: str, moved_as: str) -> None:
        x = torch.empty(3, 5, dtype=getattr(torch, dtype))
        assert self.text("transpose", x, x.t()) == f"transpose M=3 N=5 dtype={moved_as}"

    @pytest.mark.parametrize(
        ("op", "name", "tensor", "accepted"),
        [
            ("softmax", "x", torch.empty(3, 10)[:, :5], True),
            ("softmax", "x", torch.empty(3, 10)[:, ::2], False),
            ("softmax", "x", torch.empty(1, 5).expand(3, 5), True),
            ("softmax", "out", torch.empty(5, 3).t(), False),
            ("softmax", "x", torch.empty(3, 9)[:, ::9], True),
            ("transpose", "x", torch.empty(5, 3).t(), False),
            ("gemm", "a", torch.empty(5, 3).t(), True),
            ("gemm", "a", torch.empty(1, 1).expand(3, 5), True),
            ("gemm", "a", torch.empty_strided((1, 2), (2**24, 2**19)), False),
            ("gemm", "b", torch.empty_strided((2, 1), (2**19, 1)), False),
            ("gemm", "b", torch.empty_strided((2, 1), (2**19 - 1, 1)), True),
        ],
    )
    def test_strides_that_the_kernel_does_not_take_are_known(
        self, op: str, name: str, tensor: Tensor, accepted: bool
    ) -> None:
        call = calls.load(op)
        assert call.accepts(name, tensor) == accepted
        assert call.accepts(name, tensor.contiguous())


WITH_A_FUNCTION = [op for op in catalog.shipped() if catalog.call_module(op)]


@pytest.mark.parametrize("op", WITH_A_FUNCTION)
class TestEveryOp:
    def test_it_is_a_function_and_a_custom_op_of_torch(self, op: str) -> None:
        assert getattr(ops, op) is calls.load(op).function
        assert hasattr(torch.ops.tuner, op)
        assert op in dir(ops)

    def test_a_call_on_the_operands_of_a_problem_is_that_problem(self, op: str) -> None:
        call = calls.load(op)
        for problem in problems(op):
            given = {name: size for name, size in problem.dims if name in call.takes_attributes}
            if problem.stated.keys() <= {*dict(problem.dims), "dtype"}:
                operands = call.kernel.operands(problem)
                made = {
                    name: torch.empty_strided(x.shape, x.element_strides, dtype=dtype_of(x.dtype), device="meta")
                    for name, x in operands.items()
                }
                call.check(made, **given)
                assert call.problem(made, **given) == problem
                assert call.operands(made, **given) is not None  # without copies


def test_type_checkers_see_functions_that_exist() -> None:
    """The stub may leave a function to its `__getattr__`, but lists none that does not exist."""
    stub = (Path(ops.__file__).with_suffix(".pyi")).read_text()
    listed = re.findall(r"^from (\S+) import (\w+) as \2$", stub, re.MULTILINE)
    assert listed
    assert all(getattr(ops, name) is getattr(importlib.import_module(module), name) for module, name in listed)


def test_an_op_of_an_installed_package_is_imported_when_it_is_named(tmp_path: Path) -> None:
    package, info = tmp_path / "their_op", tmp_path / "their_op-1.dist-info"
    package.mkdir()
    info.mkdir()
    (package / "__init__.py").write_text("from tuner.kernels.softmax.definition import KERNEL\n")
    (package / "call.py").write_text(
        "from dataclasses import replace\n"
        "from tuner.kernels.softmax import call\n"
        "CALL = replace(call.CALL, function=len)\n"
    )
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-op\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tuner.kernels]\ntheir_op = their_op\n")
    code = "import sys; from tuner import ops; assert 'their_op' not in sys.modules; assert ops.their_op is len"
    environment = {**os.environ, **reaching(tmp_path)}
    subprocess.run([sys.executable, "-P", "-c", code], env=environment, check=True)


def test_an_op_that_is_unknown_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gemmm'"):
        ops.gemmm  # noqa: B018


def test_tensors_on_the_cpu_are_refused_before_their_strides_are_checked() -> None:
    with pytest.raises(UsageError, match="runs on a GPU"):
        calls.check_memory(calls.load("softmax"), {"x": X, "out": torch.empty(1, 5).expand(3, 5)})


def test_only_importing_the_ops_imports_torch() -> None:
    code = "import tuner, sys; assert 'tuner.ops' not in sys.modules and 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-P", "-c", code], check=True)
