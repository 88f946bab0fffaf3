"""Launches of the ops without a GPU: the reference, computed by torch in the memory at the given addresses."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from tuner.client import Client
from tuner.kernels import calling
from tuner.kernels.calling import OpCall, Pointers, PreparedLaunch
from tuner.kernels.overlap import extent
from tuner.kernels.spec import Problem
from tuner.launching.calls import PREPARED, PreparedLaunches


@contextmanager
def on_cpu() -> Iterator[PreparedLaunches]:
    """Let the ops compute on the CPU; nothing is prepared before or after."""
    calling.prepared.clear()
    launches = PreparedLaunches(Client(), prepared=calling.prepared, launch_of=launch_of, runs_on="cpu")
    calling.install(launches.prepare)
    try:
        yield launches
    finally:
        calling.prepared.clear()
        calling.install(PREPARED.prepare)


def launch_of(client: Client, call: OpCall, problem: Problem, operands: Mapping[str, Any]) -> PreparedLaunch:
    """Return a launch that reads and writes only what its addresses, shapes and strides say.

    Outputs are written element by element in the order of memory, so that what overlaps an input is wrong.
    """
    scalars = {name: value for name, value in operands.items() if not isinstance(value, Tensor)}
    views = {name: (x.shape, x.stride(), x.dtype, extent(x)) for name, x in operands.items() if isinstance(x, Tensor)}

    def launch(at: Pointers) -> None:
        tensors = {name: _at(address, *views[name]) for name, address in zip(views, at, strict=True)}
        results = call.kernel.reference(problem, {**tensors, **scalars}, slice(None))
        for name, result in results.items():
            tensors[name].copy_(result)

    return launch


def _at(address: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, length: int) -> Tensor:
    memory = (ctypes.c_byte * length).from_address(address)
    return torch.frombuffer(memory, dtype=dtype).as_strided(shape, strides)
