"""The largest sizes: what 32-bit indices cannot count is refused, in one line, wherever a problem is named."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_launches import on_cpu
from fresh_client import forget
from helpers import H200
from invoked import Invoked
from served import serving

from tuner import best_config, catalog, ops
from tuner.api.app import create_app
from tuner.db.store import Store
from tuner.errors import KernelFault, UsageError
from tuner.kernels.gemm import call as gemm_call
from tuner.kernels.scaled_gemm import call as scaled_call
from tuner.kernels.shared.product_rows import LONGEST_ROW
from tuner.kernels.spec import MAX_SIZE, Attribute, Dim, Knob, Signature, SizeLimit
from tuner.launching import calls
from tuner.records.signatures import signature_from_json

REFUSED: dict[str, tuple[str, dict[str, object], str]] = {
    "softmax": ("softmax", {"M": 1, "N": MAX_SIZE, "dtype": "fp16"}, "softmax: N is at most 2147221504, since"),
    "transpose": ("transpose", {"M": MAX_SIZE, "N": 1, "dtype": "int8"}, "transpose: M is at most 2147483392, since"),
    "gemm": ("gemm", {"M": 1, "N": 1, "K": MAX_SIZE}, "gemm: K is at most 2147479552, since"),
    "gemm, long rows": ("gemm", {"M": 1, "N": 2**26, "K": 8}, "gemm: N is at most 67108863 with layout=nn, since"),
    "gemm, by default": ("gemm", {"M": 2**26, "layout": "tt"}, "gemm: M is at most 67108863 with layout=tt, since"),
    "scaled_gemm": ("scaled_gemm", {"M": 1, "N": 1, "K": MAX_SIZE}, "scaled_gemm: K is at most 2147475456, since"),
}
LARGEST: dict[str, tuple[str, dict[str, object]]] = {
    "softmax rows": ("softmax", {"M": MAX_SIZE, "N": 1}),
    "softmax columns": ("softmax", {"M": 1, "N": 2**31 - 2**18, "dtype": "fp16"}),
    "transpose rows": ("transpose", {"M": 2**31 - 256, "N": 1, "dtype": "int8"}),
    "transpose columns": ("transpose", {"M": 1, "N": MAX_SIZE, "dtype": "int8"}),
    "gemm depth": ("gemm", {"M": 1, "N": 1, "K": 2**31 - 4096}),
    "gemm rows": ("gemm", {"M": 2**31 - 4096, "N": 1, "K": 8}),
    "gemm columns": ("gemm", {"M": 1, "N": 2**31 - 4096, "K": 8, "layout": "nt"}),
    "gemm long rows": ("gemm", {"M": 1, "N": LONGEST_ROW, "K": 8}),
    "gemm long rows, fp32": ("gemm", {"M": 64, "N": LONGEST_ROW, "K": 64, "dtype": "fp32", "precision": "tf32"}),
    "scaled_gemm depth": ("scaled_gemm", {"M": 1, "N": 1, "K": 2**31 - 8192}),
    "scaled_gemm columns": ("scaled_gemm", {"M": 1, "N": 2**31 - 8192, "K": 128, "scales": "block"}),
}


@pytest.mark.parametrize("case", REFUSED)
class TestRefused:
    def test_by_the_signature(self, case: str) -> None:
        op, sizes, message = REFUSED[case]
        with pytest.raises(UsageError) as refused:
            catalog.load(op).signature.problem(sizes)
        assert str(refused.value).startswith(f"{message} the kernel counts in 32 bits, not ")
        assert str(refused.value).endswith("; split the problem")

    def test_by_a_search_and_a_lookup(self, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        op, sizes, message = REFUSED[case]
        run = Invoked.alone(tmp_path, monkeypatch)
        options = [part for name, size in sizes.items() for part in (f"--{name}", str(size))]
        for command in ("search", "best"):
            done = run(command, op, *options)
            assert isinstance(done.exception, UsageError)
            assert str(done.exception).startswith(message)

    def test_by_best_config_which_logs_it(
        self, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        op, sizes, message = REFUSED[case]
        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        forget()
        with caplog.at_level(logging.WARNING, "tuner"):
            assert best_config(op, device=H200.id, **sizes).config is None
        assert message in caplog.text


def test_the_service_refuses_them_with_422(tmp_path: Path) -> None:
    signatures = {op: catalog.load(op).signature for op in catalog.shipped()}
    store = Store.open(tmp_path / "tuner.db")
    with serving(create_app(store, signatures=signatures)) as client:
        for op, sizes, message in REFUSED.values():
            params: dict[str, Any] = {"op": op, **sizes}
            response = client.get("/best-config", params=params)
            assert response.status_code == 422
            assert message in response.text
    store.close()


@pytest.mark.parametrize("case", LARGEST)
def test_the_default_of_the_largest_sizes_is_feasible(case: str) -> None:
    op, sizes = LARGEST[case]
    kernel = catalog.load(op)
    problem = kernel.signature.problem(sizes)
    config = kernel.default_config(problem, H200.limits)
    assert kernel.valid(problem, config, H200.limits)
    for launch in kernel.launch(problem, config, stand_ins(op, sizes)):
        assert launch.grid[0] <= MAX_SIZE
        assert all(size <= 65535 for size in launch.grid[1:])


def stand_ins(op: str, sizes: dict[str, object]) -> dict[str, torch.Tensor]:
    kernel = catalog.load(op)
    problem = kernel.signature.problem(sizes)
    config = kernel.default_config(problem, H200.limits)
    operands = kernel.tensors(problem, config, H200.limits)
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "fp8e4m3": torch.float8_e4m3fn}
    return {
        name: torch.empty_strided(x.shape, x.element_strides, dtype=dtypes.get(x.dtype, torch.int8), device="meta")
        for name, x in operands.items()
    }


class TestOfTensors:
    def test_a_problem_of_tensors_is_refused(self) -> None:
        call, row = calls.load("softmax"), torch.empty(1, MAX_SIZE, device="meta")
        with pytest.raises(UsageError, match="softmax: N is at most 2147221504"):
            call.problem({"x": row, "out": row})

    def test_a_factor_of_the_longest_rows_is_copied_so_that_it_lies_along_k(self) -> None:
        at_most, longer = (torch.empty(8, N, device="meta") for N in (LONGEST_ROW, LONGEST_ROW + 1))
        assert gemm_call.accepts("b", at_most)
        assert not gemm_call.accepts("b", longer)
        assert gemm_call.accepts("a", at_most.t())
        assert not gemm_call.accepts("a", longer.t())
        copy = gemm_call.laid_out("b", longer)
        assert gemm_call.accepts("b", copy)
        tensors = {"a": torch.empty(1, 8), "b": copy, "out": torch.empty(1, LONGEST_ROW + 1, device="meta")}
        assert calls.load("gemm").problem(tensors)["layout"] == "nt"

    def test_a_factor_of_one_long_row_is_refused(self) -> None:
        with on_cpu(), pytest.raises(UsageError, match="gemm: N is at most 67108863 with layout=nn"):
            ops.gemm(torch.ones(1, 1, dtype=torch.half), torch.empty(1, LONGEST_ROW + 1, dtype=torch.half))

    def test_scales_whose_offsets_need_64_bits_are_copied(self) -> None:
        for strides in ((2**31, 1), (1, 2**31)):
            far = torch.empty_strided((2, 2), strides, device="meta")
            assert not scaled_call.accepts("scale_a", far)
            assert scaled_call.accepts("scale_a", scaled_call.laid_out("scale_a", far))
        assert scaled_call.accepts("scale_a", torch.empty(2**20, 64, device="meta"))


def test_a_signature_with_size_limits_is_read_again_and_one_without_is_written_as_before() -> None:
    for op in catalog.shipped():
        signature = catalog.load(op).signature
        assert signature_from_json(json.loads(json.dumps(signature.as_json()))) == signature
    knobs = tuple(Knob(name, (1,)) for name in ("num_warps", "num_stages"))
    plain = Signature("double", (Dim("N"),), ("fp32",), knobs)
    assert "size_limits" not in plain.as_json()
    assert "ranges" not in plain.as_json()["dims"][0]


@pytest.mark.parametrize(
    ("limit", "message"),
    [
        (SizeLimit("K", 5), "double: a SizeLimit names a dim (N), not 'K'; correct it"),
        (SizeLimit("N", 2**31), "SizeLimit of N: most is"),
        (SizeLimit("N", 5, "layout", ("n",)), "SizeLimit of N: attribute is one of kind, not 'layout'"),
        (SizeLimit("N", 5, "kind", ("c",)), "SizeLimit of N: choices are those of its attribute, not 'c'; correct it"),
    ],
)
def test_a_limit_that_names_nothing_is_a_fault_of_the_kernel(limit: SizeLimit, message: str) -> None:
    knobs = tuple(Knob(name, (1,)) for name in ("num_warps", "num_stages"))
    kinds = (Attribute("kind", ("a", "b"), "a"),)
    signature = Signature("double", (Dim("N"),), ("fp32",), knobs, kinds, size_limits=(limit,))
    with pytest.raises(KernelFault) as fault:
        signature.check()
    assert message in str(fault.value)
    with pytest.raises(UsageError):
        signature_from_json(json.loads(json.dumps(signature.as_json())))
