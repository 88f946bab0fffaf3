"""Stand-ins for tensors: they answer what tensors answer, and compile to the same code with torch and without."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from helpers import H200, reaching, toy
from triton.experimental.gluon.language import NVMMASharedLayout
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.spec import Config, Operand, Problem
from tuner.measure.compile_pool import CompilePool
from tuner.measure.messages import Compile, Compiled
from tuner.measure.stand_ins import StandIn, stand_in
from tuner.records import Outcome

OPERAND = Operand((8, 48), "fp16", strides=(64, 1))

QUESTIONS: dict[str, Callable[[Any], object]] = {
    "shape": lambda x: tuple(x.shape),
    "size": lambda x: (tuple(x.size()), x.size(0), x.size(-1), len(x)),
    "stride": lambda x: (tuple(x.stride()), x.stride(0), x.stride(-1)),
    "dims": lambda x: (x.dim(), x.ndim, x.numel(), x.nelement()),
    "bytes": lambda x: (x.element_size(), x.itemsize, x.nbytes, x.dtype.itemsize),
    "dtype": lambda x: (str(x.dtype), x.dtype.is_floating_point, x.is_floating_point()),
    "memory": lambda x: (x.is_contiguous(), x.storage_offset(), x.data_ptr() % 16, x.requires_grad),
    "views": lambda x: [
        (tuple(y.shape), y.stride(), y.storage_offset())
        for y in (x.T, x[1:, ::2], x[3], x[:, None], x.transpose(0, 1), x.unsqueeze(0), x.as_strided((2,), (3,)))
    ],
    "other dtypes": lambda x: [(y.dtype, tuple(y.shape)) for y in (x[0].view(torch.int16), x.float(), x.int())],
    "new tensors": lambda x: [(y.stride(), y.dtype) for y in (torch.empty_like(x), x.clone(), torch.stack([x, x]))],
    "descriptor": lambda x: TensorDescriptor.from_tensor(x, [8, 16]).strides == (64, 1),
    "Gluon's descriptor": lambda x: (
        GluonDescriptor.from_tensor(x, [8, 16], NVMMASharedLayout(32, 16, 2)).block_shape
    ),
}  # fmt: skip


@pytest.mark.parametrize("question", QUESTIONS)
def test_it_answers_as_a_tensor_does(question: str) -> None:
    ask = QUESTIONS[question]
    real = torch.empty_strided(OPERAND.shape, OPERAND.element_strides, dtype=torch.float16)
    assert ask(stand_in(OPERAND)) == ask(StandIn(OPERAND)) == ask(real)


@pytest.mark.parametrize("made", [stand_in, StandIn])
def test_it_says_that_it_is_on_a_gpu(made: Callable[[Operand], Any]) -> None:
    x = made(OPERAND)
    assert (x.is_cuda, str(x.device), x.device.type, x.device.index) == (True, "cuda:0", "cuda", 0)
    assert x[1:].is_cuda
    assert x[1:].data_ptr() == 128


@pytest.mark.parametrize("made", [stand_in, StandIn])
def test_it_has_the_address_of_its_operand(made: Callable[[Operand], Any]) -> None:
    x = made(Operand((8, 48), "fp16", strides=(64, 1), offset=4))
    assert (x.data_ptr(), x.stride(), x.T[1:].stride()) == (4, (64, 1), (1, 64))


def test_it_is_a_tensor_if_torch_is_there() -> None:
    x = stand_in(OPERAND)
    assert isinstance(x, torch.Tensor)
    assert x.dtype == torch.float16
    assert "shape=(8, 48)" in repr(x)


@pytest.mark.parametrize("ask", [lambda x: x[0, 0].item(), lambda x: x[0].tolist(), lambda x: bool((x > 0).any())])
def test_its_elements_cannot_be_read(ask: Callable[[Any], object]) -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match=r"meta|subclass"):
        ask(stand_in(OPERAND))


def compiled_in_pool(kernel: str, problem: Problem, configs: list[Config]) -> list[Compiled]:
    """Compile configs as a search does."""
    pool = CompilePool(jobs=1)
    child = pool.take(kernel, problem, H200.limits)
    try:
        for config in configs:
            child.send(Compile(problem, config))
        return [child.receive() for _ in configs]
    finally:
        pool.give_back(idle=False)
        pool.close()


LAUNCH = """
    assert x.is_cuda and x.is_contiguous() and x.stride() == (1,) and x.numel() == x.size(0) == problem["N"]
    x, out = x.view(2, -1)[0].flatten(), out.reshape(-1)
"""


def test_a_launch_may_make_views(tmp_path: Path) -> None:
    text = Path(toy("double")).read_text()
    assert 'tensors["x"], tensors["out"]' in text
    text = text.replace('tensors["x"], tensors["out"]', "x, out")
    head = "def launch(problem, config, tensors):\n"
    file = tmp_path / "views.py"
    file.write_text(text.replace(head, f'{head}    x, out = tensors["x"], tensors["out"]{LAUNCH}'))
    kernel = catalog.resolve(str(file))
    problem = kernel.signature.problem({"N": 300})
    (done,) = compiled_in_pool(str(file), problem, [kernel.default_config(problem, H200.limits)])
    assert done.outcome is Outcome.OK, done.error


def test_a_launch_that_reads_elements_is_a_fault_with_its_line(tmp_path: Path) -> None:
    head = "def launch(problem, config, tensors):\n"
    file = tmp_path / "reads.py"
    file.write_text(Path(toy("double")).read_text().replace(head, f'{head}    first = tensors["x"][0].item()\n'))
    kernel = catalog.resolve(str(file))
    problem = kernel.signature.problem({"N": 300})
    tensors = {name: stand_in(operand) for name, operand in kernel.operands(problem).items()}
    with pytest.raises(KernelFault, match=r"reads.py line \d+: launch raises RuntimeError: .*meta"):
        kernel.launch(problem, kernel.default_config(problem, H200.limits), tensors)


COMPILED = """
import sys
from helpers import H200
from tuner import catalog
from tuner.measure.compile import compile_config
if sys.argv[1] == "with torch":
    import torch
kernel = catalog.load("gemm")
problem = kernel.signature.problem({"M": 256})
assert ("torch" in sys.modules) == (sys.argv[1] == "with torch")
done = compile_config(kernel, problem, kernel.default_config(problem, H200.limits), H200.limits)
assert done.outcome == "ok", done
print(done.compile_s is not None)
"""


def test_both_compile_to_the_same_code(tmp_path: Path) -> None:
    """The second process finds in Triton's cache what the first compiled."""
    where = {**os.environ, **reaching(Path(__file__).parents[1]), "TRITON_CACHE_DIR": str(tmp_path)}
    where.pop("TRITON_INTERPRET", None)

    def compiled(how: str) -> str:
        done = subprocess.run([sys.executable, "-P", "-c", COMPILED, how], env=where, capture_output=True, text=True)
        return done.stdout.strip() or done.stderr

    assert compiled("without torch") == "True"
    assert compiled("with torch") == "False"
