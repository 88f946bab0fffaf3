"""Captured calls of the toys, put together by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from helpers import H200, TOYS

from tuner.captured.call import (
    Argument,
    CapturedCall,
    DescriptorArgument,
    DtypeArgument,
    Examined,
    Function,
    Grids,
    TensorArgument,
)
from tuner.captured.kernel import CapturedKernel
from tuner.captured.problem import op_name
from tuner.captured.widened import choices
from tuner.kernels.spec import Config, Value
from tuner.measure import tensors

SHAPES = str(TOYS / "autotuned_shapes.py")
SCRIPT = str(TOYS / "autotuned_script.py")


def tensor(*shape: int, dtype: str = "fp32", **others: Any) -> TensorArgument:
    """Return a contiguous tensor argument, unless `strides` are given."""
    strides = tuple(int(stride) for stride in _contiguous(shape))
    return TensorArgument(shape, others.pop("strides", strides), dtype, **others)


def call_of(
    name: str,
    arguments: Mapping[str, Argument],
    configs: list[dict[str, Value]],
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]],
    *,
    key: tuple[str, ...] = ("n",),
    knobs: tuple[str, ...] = ("BLOCK",),
    file: str = SHAPES,
    module: str = "__main__",
    **others: Any,
) -> CapturedCall:
    """Return a call with the grid of each listed value and its neighbours."""
    values = {knob: choices(knob, [config[knob] for config in configs]) for knob in knobs}
    sizes = {each: grid(dict(zip(knobs, each, strict=True))) for each in product(*values.values())}
    return CapturedCall(
        function=Function(module, file, name),
        op=op_name(module, name),
        key={each: _in_key(arguments[each]) for each in key},
        arguments=arguments,
        configs=tuple(configs),
        grids=Grids(knobs, sizes),
        **others,
    )


def blocks(n: int) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """Return the grid of one program for each BLOCK of `n` elements."""
    return lambda meta: (-(-n // meta["BLOCK"]),)


def configs(**knobs: tuple[Value, ...]) -> list[dict[str, Value]]:
    """Return all combinations, with 4 warps and 2 stages unless they are given."""
    every = {"num_warps": (4,), "num_stages": (2,)} | knobs
    return [dict(zip(every, each, strict=True)) for each in product(*every.values())]


def run(kernel: CapturedKernel, config: Mapping[str, Value] | None = None, seed: int = 1) -> tuple[dict[str, Any], ...]:
    """Run a config, or the default, on the CPU. Return the tensors before and after."""
    operands = kernel.operands(kernel.problem)
    values: dict[str, Any] = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed)
    before = {name: value.clone() for name, value in values.items()}
    chosen = kernel.default(kernel.problem, H200.limits) if config is None else config
    for launch in kernel.launch(kernel.problem, made(kernel, chosen), values):
        launch()
    return before, values


def made(kernel: CapturedKernel, values: Mapping[str, Value]) -> Config:
    """Return the config of these values."""
    return kernel.signature.config(values)


def examined(agreed: Mapping[str, Value] | None, **roles: str) -> Examined:
    """Return what an examination found."""
    return Examined(roles, "agreement" if agreed else "reference", agreed, 1, 0, "", "")  # type: ignore[arg-type]


def _contiguous(shape: tuple[int, ...]) -> list[int]:
    strides = [1]
    for size in reversed(shape[1:]):
        strides.insert(0, strides[0] * size)
    return strides if shape else []


def _in_key(argument: Argument) -> Value:
    if isinstance(argument, DtypeArgument):
        return argument.dtype
    assert not isinstance(argument, TensorArgument | DescriptorArgument)
    return argument


def copied(source: str, folder: Path, name: str) -> str:
    """Write a file and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / name
    file.write_text(source)
    return str(file)
