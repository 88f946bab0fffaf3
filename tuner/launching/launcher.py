"""Launches of a config, prepared once and repeated at the least cost for the host.

`fn[grid](...)` binds, specialises and hashes all its arguments at each call, to find the kernel that it compiled for
such arguments. A caller that knows the arguments to be such needs only the last step: Triton's launcher in C for the
compiled kernel, given the stream, the addresses and the fixed arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.nvidia.driver import CudaLauncher

from tuner.errors import UsageError
from tuner.kernels.calling import Pointers, PreparedLaunch
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Operand, Problem
from tuner.launching.arguments import (
    DESCRIPTORS,
    TRITON,
    Arguments,
    CannotPrepare,
    arranged,
    expanded,
    make_room,
)
from tuner.measure.binaries import checked_cache
from tuner.measure.tensors import blank

_Step = Callable[[int, Pointers], None]
"""Launches on a stream, given the addresses of operands and workspace."""

MOST_STREAMS = 64
"""Number of streams whose workspaces are kept for one problem; then the oldest is dropped."""
KNOWN_RELEASES = (3, 6), (3, 9)
"""First and last release of Triton whose launcher in C is called from here, by the arguments that it takes there."""
ONE_BY_ONE = TRITON == (3, 6)
"""True for the launcher that is compiled for each signature and takes a kernel's arguments one by one."""


def prepare_launch(
    kernel: Kernel, problem: Problem, config: Config, operands: Mapping[str, Any], limits: Limits
) -> PreparedLaunch:
    """Compile a config and load it onto the current device. Return the function that launches it.

    It serves all tensors with the same shapes, strides, dtypes and alignment to 16 bytes, and the same scalars.

    Args:
        operands: the tensors by name, in the order of the addresses that are launched with, and scalars.

    Raises:
        UsageError: Triton is set to interpret kernels, not to compile them.
        CannotPrepare: a launch needs its tensors, and not their addresses alone.
        Triton's own errors: the config cannot be compiled, or the card refuses it.
    """
    if knobs.runtime.interpret:
        raise UsageError("a prepared launch is of a compiled kernel, and TRITON_INTERPRET=1 compiles none; unset it")
    work = kernel.workspace(problem, config, limits)
    given = {**operands, **blank(work, "cuda")}
    tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
    with checked_cache():
        steps = [_step(launch, tensors) for launch in kernel.launch(problem, config, given)]
    run = steps[0] if len(steps) == 1 else _in_order(steps)
    return _on_device(torch.cuda.current_device(), _with_workspace(work, run) if work else run)


def _on_device(index: int, run: _Step) -> PreparedLaunch:
    current_device, stream_of = torch._C._cuda_getDevice, triton.runtime.driver.active.get_current_stream

    def call(pointers: Pointers) -> None:
        if current_device() == index:
            run(stream_of(index), pointers)
        else:
            with torch.cuda.device(index):
                run(stream_of(index), pointers)

    return call


def _in_order(steps: Sequence[_Step]) -> _Step:
    def run(stream: int, pointers: Pointers) -> None:
        for step in steps:
            step(stream, pointers)

    return run


def _with_workspace(operands: Mapping[str, Operand], run: _Step) -> _Step:
    """Give each stream a workspace of its own, and each captured launch one that belongs to the graph.

    A graph may be replayed on any stream, beside other work. Its workspace is memory of the graph's pool, which the
    graph zeroes before the launch.
    """
    kept: dict[int, tuple[dict[str, torch.Tensor], Pointers]] = {}
    one_at_a_time = Lock()  # no other thread may launch between our first launch and our second

    def on_stream(stream: int, pointers: Pointers) -> None:
        if torch.cuda.is_current_stream_capturing():
            made = blank(operands, "cuda")
            run(stream, pointers + _addresses(made))
            return
        with one_at_a_time:
            if stream not in kept:
                made = blank(operands, "cuda")
                make_room(kept, MOST_STREAMS)
                kept[stream] = made, _addresses(made)
            run(stream, pointers + kept[stream][1])

    return on_stream


def _addresses(tensors: Mapping[str, torch.Tensor]) -> Pointers:
    return tuple(tensor.data_ptr() for tensor in tensors.values())


def _step(launch: Launch, tensors: Sequence[torch.Tensor]) -> _Step:
    if launch.pre_hook is not None:
        raise CannotPrepare(
            "a prepared launch is given addresses, and a pre_hook takes tensors; run what `launch` returns instead"
        )
    compiled = launch.warmup()
    grid = (*launch.grid, 1, 1)[:3]
    arguments = arranged(launch, tensors)
    as_triton = _as_triton(compiled, grid, arguments)
    launcher = compiled.run  # loads the kernel onto the card
    if not is_known(launcher):
        return as_triton
    in_c = launcher.launch
    if any(isinstance(value, DESCRIPTORS) for value in (*launch.args, *launch.kwargs.values())):
        arguments, in_c = expanded(arguments, compiled), _wrapped(in_c)
    after, rest = _layout(compiled, arguments)
    x, y, z = grid
    runtime = knobs.runtime

    def step(stream: int, pointers: Pointers) -> None:
        enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):
            as_triton(stream, pointers)
        else:
            in_c(x, y, z, stream, *after, *rest(pointers))

    return step


def _as_triton(compiled: Any, grid: tuple[int, ...], arguments: Arguments) -> _Step:
    """Return a step that launches as Triton's own `run` does: with hooks, and scratch memory if the kernel has some."""
    runtime = knobs.runtime

    def step(stream: int, pointers: Pointers) -> None:
        values = arguments(pointers)
        metadata = compiled.launch_metadata(grid, stream, *values)
        hooks = runtime.launch_enter_hook, runtime.launch_exit_hook
        compiled.run(*grid, stream, compiled.function, compiled.packed_metadata, metadata, *hooks, *values)

    return step


def is_known(launcher: Any) -> bool:
    """Return whether a launcher is of a known release, and needs neither scratch memory nor instrumentation."""
    return (
        KNOWN_RELEASES[0] <= TRITON <= KNOWN_RELEASES[1]
        and type(launcher) is CudaLauncher
        and launcher.global_scratch_size == launcher.profile_scratch_size == 0
        and not getattr(launcher, "gsan_enabled", False)
    )


def _layout(compiled: Any, arguments: Arguments) -> tuple[tuple[Any, ...], Arguments]:
    """Return the arguments of the launcher in C after grid and stream: the fixed ones, and those made of addresses."""
    after = fixed_arguments(compiled)
    if ONE_BY_ONE:
        return after, arguments
    return after, lambda pointers: (arguments(pointers),)


def fixed_arguments(compiled: Any) -> tuple[Any, ...]:
    """Return what a known launcher in C takes between the stream and the kernel's arguments.

    Three of the Nones are launch metadata and hooks, two are scratch memory. The kernel's arguments follow as a tuple,
    or one by one if `ONE_BY_ONE`.
    """
    launcher = compiled.run
    head = compiled.function, launcher.launch_cooperative_grid, launcher.launch_pdl
    if ONE_BY_ONE:
        return *head, None, None, compiled.packed_metadata, None, None, None
    how_to_read = launcher.arg_annotations, launcher.kernel_signature
    return *head, compiled.packed_metadata, None, None, None, None, None, *how_to_read


def _wrapped(launch: Any) -> Any:
    """Return the launcher in C inside the function that Triton wraps around it to expand descriptors."""
    return dict(zip(launch.__code__.co_freevars, launch.__closure__, strict=True))["launcher"].cell_contents
