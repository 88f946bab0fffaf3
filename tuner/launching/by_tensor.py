"""Launches that need their tensors at each call, and not their addresses alone."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import torch

from tuner.kernels.calling import Pointers, PreparedLaunch, Tensors, hold_pinned
from tuner.kernels.launch import any_on_host
from tuner.kernels.spec import Config, Kernel, Limits, Problem
from tuner.launching.captures import is_captured, not_captured
from tuner.launching.waiting import places
from tuner.measure.compile import compile_launches, stood_in
from tuner.measure.tensors import blank

ByTensor = Callable[[Tensors], object]


def on_addresses(launch: PreparedLaunch) -> ByTensor:
    """Return a function that launches on tensors, in their order."""
    return lambda given: launch(tuple(tensor.data_ptr() for tensor in given.values()))


def holding(launch: ByTensor, on_host: Collection[str], index: int) -> ByTensor:
    """Return a launch that keeps the named tensors, if they are pinned, until card `index` has read them."""
    device = torch.device("cuda", index)

    def held(given: Tensors) -> None:
        launch(given)
        hold_pinned(given, on_host, device)

    return held if on_host else launch


def launched_by_tensor(
    kernel: Kernel, problem: Problem, config: Config, limits: Limits, scalars: Mapping[str, float]
) -> ByTensor:
    """Compile a config and load it onto the current device. Return the function that launches it on tensors.

    A call returns once the card has done its work if a workspace is on the host, since no later call waits for it.

    Raises:
        UsageError: by the function, if a CUDA graph captures it and cannot repeat its work.
        Triton's own errors: the config cannot be compiled, or the card refuses it.
    """
    index, work = torch.cuda.current_device(), kernel.workspace(problem, config, limits)
    for code in compile_launches(kernel, problem, config, limits):  # on stand-ins, as hooks write to tensors
        code.run  # noqa: B018  loads it; raises what makes the default run instead
    captures = is_captured(stood_in(kernel, problem, config, limits), work)

    def launch(given: Tensors) -> None:
        with torch.cuda.device(index):
            capturing = torch.cuda.is_current_stream_capturing()
            if not captures and capturing:
                raise not_captured(problem)
            made = blank(work, "cuda")

            def run(stream: int, pointers: Pointers) -> None:
                for step in kernel.launch(problem, config, {**scalars, **given, **made}):
                    step()

            placed = places(index).placed(run) if kernel.waits and work and not capturing else run
            try:
                placed(torch.cuda.current_stream().cuda_stream, ())
            finally:
                if any_on_host(work):
                    torch.cuda.current_stream().synchronize()

    return launch
