"""The ops on a real card: on tensors of any strides, by the intended path, wherever model code calls them."""

from __future__ import annotations

import logging
import subprocess
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from threading import Barrier, Thread
from typing import Any

import pytest
import torch
import triton
from fresh_client import forget
from helpers import toy
from stored_on_card import keep
from torch import Tensor
from torch.nn.functional import gelu, silu

from tuner import best_config, catalog, ops, precompile
from tuner.errors import UsageError
from tuner.kernels.calling import PreparedLaunch
from tuner.kernels.softmax.one_pass import softmax_one_pass
from tuner.kernels.spec import Value
from tuner.launching.calls import PREPARED, CallSettings
from tuner.launching.launcher import prepare_launch
from tuner.measure import device

pytestmark = pytest.mark.gpu
FIRST_CAPTURE_WARNS = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")
"""About itself, when it first captures (PyTorch 2.11)."""


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A database that does not exist yet, and no prepared launches."""
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    PREPARED.prepared.clear()
    yield tmp_path / "tuner.db"
    forget()
    PREPARED.prepared.clear()


def draw(*size: int, dtype: torch.dtype = torch.float32, card: str = "cuda") -> Tensor:
    return torch.randn(*size, device=card).to(dtype)


def right(result: Tensor, reference: Tensor) -> bool:
    """Return whether a result is within the rounding of its dtype; sums in fp32 round at each step."""
    eps = torch.finfo(result.dtype).eps
    apart = (result.double() - reference).abs().max() / reference.abs().max()
    return bool(apart <= (32 if result.dtype == torch.float32 else 2) * eps)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a.double() @ b.double()


class TestGemm:
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
    @pytest.mark.parametrize("size", [(1, 1, 1), (3, 129, 127), (127, 129, 65), (128, 256, 64), (100, 3, 1311)])
    def test_odd_sizes(self, size: tuple[int, int, int], dtype: torch.dtype) -> None:
        M, N, K = size
        a, b = draw(M, K, dtype=dtype), draw(K, N, dtype=dtype)
        for _ in range(2):
            assert right(ops.gemm(a, b), product(a, b))

    def test_any_strides(self) -> None:
        a, b = draw(300, 200, dtype=torch.float16), draw(200, 260, dtype=torch.float16)
        views = [
            (a.t().contiguous().t(), b),
            (a, b.t().contiguous().t()),
            (a.t().contiguous().t(), b.t().contiguous().t()),
            (a[::2, ::2], b[::2, 1::3]),
            (a[1:, 1:], b[1:, 3:]),
            (a[:1].expand(50, 200), b),
        ]
        for left, right_ in views:
            out = torch.full((2 * len(left), 3 * right_.shape[1]), 7.0, dtype=torch.float16, device="cuda")
            assert right(ops.gemm(left, right_), product(left, right_))
            assert right(ops.gemm(left, right_, out=out[::2, ::3]), product(left, right_))
            assert bool((out[1::2] == 7).all())

    @pytest.mark.parametrize("activation", ["none", "silu", "gelu"])
    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
    def test_bias_and_activation(self, dtype: torch.dtype, activation: str) -> None:
        """Twice, and with a bias with gaps."""
        a, b, bias = draw(100, 72, dtype=dtype), draw(72, 136, dtype=dtype), draw(272, dtype=dtype)[::2]
        for added in (bias.contiguous(), bias, bias.contiguous()):
            expected = product(a, b) + added.double()
            expected = {"none": expected, "silu": silu(expected), "gelu": gelu(expected)}[activation]
            assert right(ops.gemm(a, b, bias=added, activation=activation), expected)

    def test_a_launch_prepared_for_one_tensor_twice_does_not_serve_two(self) -> None:
        x, y = draw(64, 64), draw(64, 64)
        bias = x[0]
        for b, added in ((x, bias), (y, bias), (y, y[0]), (x, bias)):
            assert right(ops.gemm(x, b), product(x, b))
            assert right(ops.gemm(x, b, bias=added), product(x, b) + added.double())

    def test_slices_along_k_are_summed_alike_every_time(self, database: Path) -> None:
        sizes: dict[str, object] = {"M": 64, "N": 512, "K": 4096, "dtype": "fp16"}
        a, b = draw(64, 4096, dtype=torch.float16), draw(4096, 512, dtype=torch.float16)
        tile: dict[str, Value] = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4}
        for variant, split_k in (("tiles", 8), ("persistent", 16)):
            keep(database, "gemm", sizes, **{**tile, "STORES": 1, "VARIANT": variant, "SPLIT_K": split_k})
            ops.refresh()
            first = ops.gemm(a, b)
            assert right(first, product(a, b))
            assert all(torch.equal(ops.gemm(a, b), first) for _ in range(50))

    def test_a_stride_along_k_that_32_bits_cannot_step(self) -> None:
        far = torch.zeros(2**30 + 2**24, dtype=torch.float16, device="cuda")
        a = far.as_strided((4, 64), (1, 2**24))
        a.copy_(draw(4, 64, dtype=torch.float16))
        b = draw(64, 32, dtype=torch.float16)
        assert right(ops.gemm(a, b), product(a, b))

    def test_pointers_that_are_aligned_to_nothing(self) -> None:
        whole = draw(64 * 64 + 1, dtype=torch.float16)
        a, b = whole[:-1].view(64, 64), draw(64, 64, dtype=torch.float16)
        assert right(ops.gemm(a, b), product(a, b))
        shifted = whole[1:].view(64, 64)
        assert shifted.data_ptr() % 16 == 2
        assert right(ops.gemm(shifted, b), product(shifted, b))
        assert right(ops.gemm(a, b), product(a, b))

    def test_tf32_follows_the_setting_of_torch(self) -> None:
        a, b = draw(256, 256), draw(256, 256)
        exact = product(a, b)
        assert right(ops.gemm(a, b), exact)
        before = torch.backends.cuda.matmul.fp32_precision
        torch.backends.cuda.matmul.fp32_precision = "tf32"
        try:
            coarse = ops.gemm(a, b)
        finally:
            torch.backends.cuda.matmul.fp32_precision = before
        apart = float((coarse - exact).abs().max() / exact.abs().max())
        assert 2**-16 < apart < 2**-9
        assert right(ops.gemm(a, b), exact)

    def test_an_empty_product_is_0_and_one_without_rows_is_empty(self) -> None:
        out = draw(3, 5)
        assert ops.gemm(draw(3, 0), draw(0, 5), out=out) is out
        assert bool((out == 0).all())
        assert ops.gemm(draw(0, 3), draw(3, 5)).shape == (0, 5)

    def test_a_parameter_under_no_grad(self) -> None:
        weight = torch.nn.Parameter(draw(64, 64))
        with torch.no_grad():
            x = draw(3, 64)
            assert right(ops.gemm(x, weight), product(x, weight))
        with pytest.raises(UsageError, match="no backward pass"):
            ops.gemm(x, weight)


class TestSoftmax:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("size", [(1, 1), (3, 127), (129, 3), (1823, 781), (2, 40_000)])
    def test_odd_sizes(self, size: tuple[int, int], dtype: torch.dtype) -> None:
        x = draw(*size, dtype=dtype)
        for _ in range(2):
            assert right(ops.softmax(x), x.double().softmax(1))

    def test_strided_offset_and_unaligned_views(self) -> None:
        x = draw(130, 301)
        for view in (x[:, :300], x[1:, 1:], x[::2, ::3], x.t(), x[:1].expand(9, 301), x[:, :1]):
            out = torch.full_like(view.contiguous().repeat(2, 2), 7.0)
            assert right(ops.softmax(view), view.double().softmax(1))
            assert right(ops.softmax(view, out=out[::2, ::2]), view.double().softmax(1))
            assert bool((out[1::2] == 7).all())
            assert bool((out[:, 1::2] == 7).all())

    @pytest.mark.parametrize("size", [(127, 1000), (3, 40_000)])
    def test_in_place(self, size: tuple[int, int]) -> None:
        x = draw(*size)
        expected = x.double().softmax(1)
        assert ops.softmax(x, out=x) is x
        assert right(x, expected)

    def test_another_dtype_or_shape_at_the_same_place_is_another_call(self) -> None:
        memory = draw(64 * 64)
        for x in (memory.view(64, 64), memory.view(32, 128), memory.view(torch.float16).view(64, 128)):
            x.copy_(torch.randn(x.shape))
            assert right(ops.softmax(x), x.double().softmax(1))


class TestTranspose:
    @pytest.mark.parametrize(
        "dtype", ["float32", "bfloat16", "int8", "int32", "bool", "uint8", "float8_e5m2", "uint16", "int16"]
    )
    def test_every_type_of_1_2_or_4_bytes(self, dtype: str) -> None:
        x = torch.randint(0, 2, (127, 131), device="cuda").to(getattr(torch, dtype))
        for view in (x, x[:, 1:], x[::2, ::3], x.t(), x[1:, :64]):
            for _ in range(2):
                result = ops.transpose(view)
                assert result.is_contiguous()
                assert torch.equal(result.view(torch.uint8), view.t().contiguous().view(torch.uint8))

    def test_twice_is_the_identity(self) -> None:
        x = draw(1311, 77)
        assert torch.equal(ops.transpose(ops.transpose(x)), x)


class TestRefused:
    def test_out_that_shares_its_own_or_its_inputs_memory(self) -> None:
        x = draw(64, 64)
        with pytest.raises(UsageError, match="to a place of its own, and out has strides"):
            ops.softmax(x, out=x[:1].expand(64, 64))
        with pytest.raises(UsageError, match="transpose cannot write over what it reads, and out shares memory with x"):
            ops.transpose(x, out=x)
        with pytest.raises(UsageError, match="gemm cannot write over what it reads, and out shares memory with b"):
            ops.gemm(draw(64, 64), x, out=x)

    def test_a_tensor_elsewhere_after_a_call_that_was_right(self) -> None:
        x, out = draw(64, 64), draw(64, 64)
        ops.softmax(x, out)
        for bad in (x.cpu(), x.double(), x[:, 0]):
            with pytest.raises(UsageError):
                ops.softmax(bad, out)
        with pytest.raises(UsageError, match="on one device"):
            ops.softmax(x, out.cpu())


class TestWhichPath:
    """What is compiled and launched, by Triton's own hooks."""

    def launched(self, call: Any) -> list[dict[str, Any]]:
        seen: list[dict[str, Any]] = []
        hook = triton.knobs.runtime.launch_enter_hook

        def enter(metadata: Any) -> None:
            seen.append(dict(metadata.get()))

        hook.add(enter)
        try:
            call()
        finally:
            hook.remove(enter)
        return seen

    def test_the_tuned_config_is_what_runs(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        config = keep(database, "softmax", {"M": 64, "N": 1000}, num_warps=2, ROWS=4)
        x = draw(64, 1000)
        with caplog.at_level(logging.DEBUG, "tuner"):
            assert right(ops.softmax(x), x.double().softmax(1))
        assert caplog.messages == [f"softmax M=64 N=1000 dtype=fp32: launched with {config.text} (exact)"]
        (seen,) = self.launched(lambda: ops.softmax(x))
        loaded = softmax_one_pass.device_caches[0][0].values()
        (ran,) = [code for code in loaded if code.function == seen["function"]]
        assert ran.metadata.num_warps == 2

    def test_the_default_runs_if_nothing_is_tuned(self, caplog: pytest.LogCaptureFixture) -> None:
        kernel = catalog.load("softmax")
        default = kernel.default_config(kernel.signature.problem({"M": 64}), device.describe(0).limits)
        with caplog.at_level(logging.DEBUG, "tuner"):
            ops.softmax(draw(64, 64))
        assert caplog.messages[-1] == f"softmax M=64 N=64 dtype=fp32: launched with {default.text} (none)"

    def test_an_answer_that_is_no_longer_feasible_is_not_launched(
        self, database: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keep(database, "transpose", {"M": 256}, VEC=4, PAD=1)  # a misaligned address, which would end the process
        x = draw(256, 256)
        assert torch.equal(ops.transpose(x), x.t())
        assert "is not valid on this card" in caplog.text

    def test_a_hook_is_called_and_the_same_kernel_runs(self) -> None:
        x, out = draw(64, 100), draw(64, 100)
        ops.softmax(x, out)
        out.zero_()
        (seen,) = self.launched(lambda: ops.softmax(x, out))
        assert seen["name"] == "softmax_one_pass"
        assert seen["stream"] == torch.cuda.current_stream().cuda_stream
        assert right(out, x.double().softmax(1))

    def test_the_second_call_does_not_ask_triton(self, monkeypatch: pytest.MonkeyPatch) -> None:
        x, out = draw(64, 100), draw(64, 100)
        ops.softmax(x, out)
        asked: list[object] = []
        monkeypatch.setattr(triton.JITFunction, "run", lambda *_, **__: asked.append(1))
        ops.softmax(x, out)
        ops.softmax(draw(64, 100), draw(64, 100))
        assert asked == []
        assert right(out, x.double().softmax(1))

    def test_after_precompiling_nothing_is_compiled(self, database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        keep(database, "gemm", {"M": 48, "N": 80, "K": 144}, num_warps=2)
        done = precompile()
        assert (done.compiled + done.cached, done.failed) == (1, ())
        compiled: list[object] = []
        monkeypatch.setattr(triton.knobs.compilation, "listener", lambda **facts: compiled.append(facts))
        a, b = draw(48, 144, dtype=torch.bfloat16), draw(144, 80, dtype=torch.bfloat16)
        assert right(ops.gemm(a, b), product(a, b))
        assert compiled == []

    def test_a_refresh_uses_what_was_tuned_since(self, database: Path, caplog: pytest.LogCaptureFixture) -> None:
        x = draw(64, 1000)
        keep(database, "softmax", {"M": 64, "N": 1000}, num_warps=1)
        ops.softmax(x)
        later = keep(database, "softmax", {"M": 64, "N": 1000}, num_warps=2)
        with caplog.at_level(logging.DEBUG, "tuner"):
            ops.softmax(x)
            assert caplog.messages == []
            ops.refresh()
            assert right(ops.softmax(x), x.double().softmax(1))
        assert caplog.messages == [f"softmax M=64 N=1000 dtype=fp32: launched with {later.text} (exact)"]
        best = best_config("softmax", M=64, N=1000)
        assert best.config == later

    def test_a_prepared_launch_keeps_no_tensor(self) -> None:
        x, out = draw(64, 100), draw(64, 100)
        ops.softmax(x, out)
        freed = weakref.ref(x), weakref.ref(out)
        del x, out
        assert [tensor() for tensor in freed] == [None, None]

    def test_at_the_limit_the_oldest_is_prepared_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(PREPARED, "settings", CallSettings(most_prepared=3))
        tensors = [draw(rows, 64) for rows in (1, 2, 3, 4, 5)]
        for x in (*tensors, *tensors):
            assert right(ops.softmax(x), x.double().softmax(1))
            assert len(PREPARED.prepared) <= 3


class TestWhereModelsCall:
    def test_in_a_captured_graph(self) -> None:
        a, b = draw(64, 64), draw(64, 64)
        ops.softmax(ops.gemm(a, b))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            result = ops.softmax(ops.gemm(a, b))
        a.copy_(draw(64, 64))
        graph.replay()
        assert right(result, product(a, b).softmax(1))

    @FIRST_CAPTURE_WARNS
    @pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
    def test_compiled_whole(self, mode: str) -> None:
        def model(a: Tensor, b: Tensor) -> Tensor:
            return ops.transpose(ops.softmax(ops.gemm(a, b) * 2)) + 1

        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(4):
            a, b = draw(64, 32), draw(32, 48)
            assert right(compiled(a, b), (product(a, b) * 2).softmax(1).t() + 1)

    @FIRST_CAPTURE_WARNS
    def test_compiled_with_out(self) -> None:
        compiled = torch.compile(lambda x, out: ops.softmax(x, out), fullgraph=True)
        x, out = draw(64, 32), draw(64, 32)
        compiled(x, out)
        assert right(out, x.double().softmax(1))

    def test_from_threads_on_streams_of_their_own(self) -> None:
        wrong: list[int] = []
        at_once = Barrier(8)

        def work(number: int) -> None:
            stream = torch.cuda.Stream()
            at_once.wait()
            with torch.cuda.stream(stream):
                for rows in range(1, 40):
                    x = draw(rows, 100 + number % 2)
                    if not right(ops.softmax(x), x.double().softmax(1)):
                        wrong.append(number)

        threads = [Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert wrong == []

    def test_on_the_current_stream_in_its_order(self) -> None:
        x, out = torch.zeros(64, 64, device="cuda"), draw(64, 64)
        ops.softmax(x, out)
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            x.copy_(draw(64, 64))
            ops.softmax(x, out)
            result = out.clone()
        side.synchronize()
        assert right(result, x.double().softmax(1))

    @pytest.mark.skipif(device.count() < 2, reason="there is one GPU here")
    def test_on_the_tensors_card_whichever_is_current(self) -> None:
        first, second = draw(64, 100, card="cuda:0"), draw(64, 100, card="cuda:1")
        for _ in range(2):
            for x in (first, second, first):
                with torch.cuda.device(0):
                    result = ops.softmax(x)
                assert result.device == x.device
                assert right(result, x.double().softmax(1))
        with pytest.raises(UsageError, match="on one device, and a is on cuda:0 but b is on cuda:1"):
            ops.gemm(first, second.t())

    def test_a_child_of_a_parent_with_a_card_gets_the_error_of_torch(self) -> None:
        code = """
import os, torch
from tuner import ops
x, out = torch.randn(64, 100, device="cuda"), torch.empty(64, 100, device="cuda")
ops.softmax(x, out)
child = os.fork()
if child == 0:
    try:
        ops.softmax(x, out)
    except RuntimeError as error:
        os._exit(0 if "Cannot re-initialize CUDA in forked subprocess" in str(error) else 1)
    os._exit(2)
assert torch.allclose(ops.softmax(x), x.softmax(1))
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0

    def test_a_child_of_a_parent_without_a_card_runs(self) -> None:
        code = """
import os, torch
from tuner import ops
child = os.fork()
if child == 0:
    x = torch.randn(64, 100, device="cuda")
    os._exit(0 if torch.allclose(ops.softmax(x), x.softmax(1)) else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        assert subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode == 0

    def test_what_the_docs_say(self) -> None:
        page = (Path(__file__).parents[2] / "docs" / "ops.md").read_text()
        story = page.split("```python\n")[1].split("```")[0]
        names: dict[str, Any] = {}
        exec(story, names)
        logits = names["out"]
        assert right(logits, product(names["a"], names["b"]))
        assert right(names["y"], logits.double().softmax(1).t())


class TestDescriptorsAndWorkspace:
    """A kernel that needs both: each stream has its own count, and descriptors follow the addresses."""

    @pytest.fixture
    def call(self) -> PreparedLaunch:
        kernel = catalog.resolve(toy("described"))
        problem = kernel.signature.problem({"M": 256, "N": 64})
        x, out = draw(256, 64), draw(64)
        limits = device.describe(0).limits
        return prepare_launch(kernel, problem, kernel.default_config(problem, limits), {"x": x, "out": out}, limits)

    def sums(self, call: PreparedLaunch, x: Tensor) -> bool:
        out = torch.zeros(64, device="cuda")
        call((x.data_ptr(), out.data_ptr()))
        return bool(torch.allclose(out, x.sum(0), atol=1e-3))

    def test_other_addresses_have_other_descriptors(self, call: PreparedLaunch) -> None:
        several = [draw(256, 64) for _ in range(5)]
        assert all(self.sums(call, x) for _ in range(3) for x in several)

    def test_a_hook_sees_both_launches(self, call: PreparedLaunch) -> None:
        names: list[str] = []

        def enter(metadata: Any) -> None:
            names.append(metadata.get()["name"])

        triton.knobs.runtime.launch_enter_hook.add(enter)
        try:
            assert self.sums(call, draw(256, 64))
        finally:
            triton.knobs.runtime.launch_enter_hook.remove(enter)
        assert names == ["add_up", "give"]

    def test_streams_at_once_do_not_share_a_workspace(self, call: PreparedLaunch) -> None:
        streams = [torch.cuda.Stream() for _ in range(4)]
        inputs = [draw(256, 64) for _ in streams]
        outs = [torch.zeros(200, 64, device="cuda") for _ in streams]
        torch.cuda.synchronize()
        for turn in range(200):
            for stream, x, out in zip(streams, inputs, outs, strict=True):
                with torch.cuda.stream(stream):
                    call((x.data_ptr(), out[turn].data_ptr()))
        torch.cuda.synchronize()
        for x, out in zip(inputs, outs, strict=True):
            assert torch.allclose(out, x.sum(0).expand(200, 64), atol=1e-3)

    def test_threads_on_one_stream_do_not_come_between_two_launches(self, call: PreparedLaunch) -> None:
        inputs = [draw(256, 64) for _ in range(4)]
        outs = [torch.zeros(500, 64, device="cuda") for _ in inputs]

        def work(x: Tensor, out: Tensor) -> None:
            for row in out:
                call((x.data_ptr(), row.data_ptr()))

        threads = [Thread(target=work, args=pair) for pair in zip(inputs, outs, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for x, out in zip(inputs, outs, strict=True):
            assert torch.allclose(out, x.sum(0).expand(500, 64), atol=1e-3)

    def test_graphs_replayed_at_once_do_not_share_one_either(self, call: PreparedLaunch) -> None:
        inputs, graphs = [draw(256, 64) for _ in range(3)], []
        outs = [torch.zeros(50, 64, device="cuda") for _ in inputs]
        for x, out in zip(inputs, outs, strict=True):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                for row in out:
                    call((x.data_ptr(), row.data_ptr()))
            graphs.append((graph, torch.cuda.Stream()))
        for _ in range(20):
            for graph, stream in graphs:
                with torch.cuda.stream(stream):
                    graph.replay()
            assert self.sums(call, inputs[0])
        torch.cuda.synchronize()
        for x, out in zip(inputs, outs, strict=True):
            assert torch.allclose(out, x.sum(0).expand(50, 64), atol=1e-3)
