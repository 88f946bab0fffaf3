"""Launches of a config, prepared once and repeated at the least cost for the host.

`fn[grid](...)` binds, specialises and hashes all its arguments at each call, to find the kernel that it compiled for
such arguments. A caller that knows the arguments to be such needs only the last step: Triton's launcher in C for the
compiled kernel, given the stream, the addresses and the fixed arguments.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import triton
from triton import knobs
from triton.backends.nvidia.driver import CudaLauncher

from tuner.errors import UsageError
from tuner.kernels.calling import Pointers, PreparedLaunch
from tuner.kernels.spec import Config, HostCall, Kernel, Limits, Problem, Step
from tuner.launching.arguments import (
    DESCRIPTORS,
    TRITON,
    Arguments,
    CannotPrepare,
    arranged,
    expanded,
)
from tuner.launching.captures import is_captured, or_captured, substitute
from tuner.launching.waiting import Run, places
from tuner.launching.workspaces import with_workspace
from tuner.measure.binaries import checked_cache
from tuner.measure.tensors import blank

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
    run, captures = _prepared(kernel, problem, config, operands, limits)
    if not captures:
        other = substitute(kernel, problem, config, limits)
        captured = None if other is None else _prepared(kernel, problem, other, operands, limits)[0]
        run = or_captured(run, captured, problem, config, other)
    return _on_device(torch.cuda.current_device(), run)


def _prepared(
    kernel: Kernel, problem: Problem, config: Config, operands: Mapping[str, Any], limits: Limits
) -> tuple[Run, bool]:
    """Return the run of a config, and whether a CUDA graph captures all of it."""
    work = kernel.workspace(problem, config, limits)
    given = {**operands, **blank(work, "cuda")}
    tensors = [value for value in given.values() if isinstance(value, torch.Tensor)]
    steps = kernel.launch(problem, config, given)
    with checked_cache():
        runs = [_step(step, tensors) for step in steps]
    run = runs[0] if len(runs) == 1 else _in_order(runs)
    if work:
        run = with_workspace(work, run, places(torch.cuda.current_device()) if kernel.waits else None)
    return run, is_captured(steps, work)


def _on_device(index: int, run: Run) -> PreparedLaunch:
    current_device, stream_of = torch._C._cuda_getDevice, triton.runtime.driver.active.get_current_stream

    def call(pointers: Pointers) -> None:
        if current_device() == index:
            run(stream_of(index), pointers)
        else:
            with torch.cuda.device(index):
                run(stream_of(index), pointers)

    return call


def _in_order(steps: Sequence[Run]) -> Run:
    def run(stream: int, pointers: Pointers) -> None:
        for step in steps:
            step(stream, pointers)

    return run


def _step(launch: Step, tensors: Sequence[torch.Tensor]) -> Run:
    if isinstance(launch, HostCall):
        fn, values = launch.fn, arranged(launch, tensors)
        return lambda stream, pointers: fn(stream, *values(pointers))
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


def _as_triton(compiled: Any, grid: tuple[int, ...], arguments: Arguments) -> Run:
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
