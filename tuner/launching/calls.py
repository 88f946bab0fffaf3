"""The cold path of `tuner.ops`: from tensors that an op is called on to the launch of its tuned config.

`prepare` is what an op's function calls for tensors of a new kind. It checks them, makes copies of those whose strides
the kernel does not take, looks up the config, and compiles it if nothing did so before.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch

from tuner import catalog
from tuner.client import Client, default_client
from tuner.client.best import Best
from tuner.client.tables import TableCache
from tuner.errors import KernelFault, UsageError
from tuner.kernels import calling
from tuner.kernels.calling import OpCall, Prepared, PreparedLaunch, Tensors, checked_scalars, run
from tuner.kernels.fields import overlaps
from tuner.kernels.parts import exception_text
from tuner.kernels.spec import Config, Kernel, Limits, Problem
from tuner.launching.arguments import make_room
from tuner.launching.launcher import prepare_launch
from tuner.launching.warm import compile_ahead, is_load_error
from tuner.measure import device
from tuner.measure.compile import is_compile_error

_log = logging.getLogger("tuner")


@dataclass(frozen=True)
class CallSettings:
    """Limits of prepared launches."""

    most_prepared: int = 8192
    """Number of launches that stay prepared, a few KB each; then the oldest is dropped."""
    refresh_compiles: int = 2
    """Number of configs that a refresh in the background compiles at once."""


_Launch = TypeVar("_Launch")

LaunchOf = Callable[[Client, OpCall, Problem, Mapping[str, Any]], PreparedLaunch]
"""Makes the launch of a problem from the operands, followed by the scalars."""


@dataclass
class PreparedLaunches:
    """The launches of this process, by the key that an op's function makes of its tensors."""

    client: Client
    """Client that looks up tuned configs."""
    settings: CallSettings = CallSettings()
    prepared: dict[object, Prepared] = field(default_factory=dict)
    replaced: dict[object, Prepared] = field(default_factory=dict)
    """Launches from before the last refresh. They are on the card, so a graph can be captured with them."""
    launched: set[tuple[str, int]] = field(default_factory=set)
    """Ops with the devices on which they were prepared."""
    launch_of: LaunchOf = lambda client, call, problem, operands: tuned_launch(client, call, problem, operands)
    """Makes the launch of a problem on operands; tests without a GPU have their own."""
    runs_on: str = "cuda"
    """Type of the devices whose memory it can use."""

    def prepare(
        self,
        call: OpCall,
        key: object,
        tensors: Tensors,
        attributes: Mapping[str, Any],
        scalars: Mapping[str, float],
    ) -> Prepared:
        """Return the launch of a call on tensors like these, and keep it unless it serves these alone.

        Raises:
            UsageError: the tensors do not fit.
        """
        call.check(tensors, **attributes)
        numbers = checked_scalars(call.kernel, scalars)
        check_memory(call, tensors, self.runs_on)
        if all(tensors[name].numel() == 0 for name in tensors if name in call.written):
            return (lambda at: None,)
        if any(tensor.numel() == 0 for tensor in tensors.values()):
            return (lambda at: call.write_empty(tensors, **attributes),)
        operands = call.operands(tensors, **attributes)
        if operands is None:
            return (lambda at: _by_copies(call, tensors, attributes, scalars),)
        problem = call.problem_of(operands, **attributes)
        before = self.replaced.get(key)
        if before is not None and torch.cuda.is_current_stream_capturing():
            return before
        launch = self.launch_of(self.client, call, problem, {**operands, **numbers})
        make_room(self.prepared, self.settings.most_prepared)
        self.prepared[key] = found = launch, *call.bounds(tensors)
        self.launched.add((call.op, next(tensors[name] for name in tensors if name in call.written).get_device()))
        return found

    def compile_first(self, tables: TableCache, in_background: bool) -> None:
        """Compile what newer answers would launch."""
        compile_launched(self.launched, tables, in_background, self.settings)

    def prepare_again(self) -> None:
        """Let each call prepare its launch again, with newer answers."""
        self.replaced.clear()
        self.replaced.update(self.prepared)
        self.prepared.clear()

    def clear(self) -> None:
        """Drop all launches."""
        self.prepared.clear()
        self.replaced.clear()


PREPARED = PreparedLaunches(default_client(), prepared=calling.prepared)
"""The launches that `tuner.ops` runs."""


def compile_launched(
    launched: Collection[tuple[str, int]], tables: TableCache, in_background: bool, settings: CallSettings
) -> None:
    """Compile what newer answers would launch of ops on devices.

    In the background nothing is loaded onto the card, since other threads may be capturing a graph; the call that needs
    it loads it.
    """
    jobs = settings.refresh_compiles if in_background else None
    for op, index in sorted(launched):
        compile_ahead(tables, [op], index, jobs, load=not in_background)


def install() -> None:
    """Prepare the launches of all ops with `PREPARED`, and again after each refresh of the client."""
    calling.install(PREPARED.prepare)
    PREPARED.client.on_refresh(PREPARED.compile_first, PREPARED.prepare_again)
    os.register_at_fork(after_in_child=PREPARED.clear)  # a child does not share its parent's card


def load(op: str) -> OpCall:
    """Return how an op is called.

    Raises:
        as `catalog.load`; UsageError too if its package has no `call.py`.
    """
    catalog.load(op)
    module = catalog.call_module(op)
    if module is None:
        raise UsageError(f"{op} has a kernel and no call.py, so tuner.ops has no function for it; write one")
    return call_of(module)


def call_of(module: str) -> OpCall:
    """Return the `CALL` of a module. Raises UsageError if it has none."""
    call = getattr(importlib.import_module(module), "CALL", None)
    if not isinstance(call, OpCall):
        raise UsageError(f"a call.py ends in CALL = OpCall(...), and {module} does not")
    return call


def check_memory(call: OpCall, tensors: Tensors, runs_on: str = "cuda") -> None:
    """Check that a kernel can read and write where the tensors are.

    Raises:
        UsageError: they are not on a GPU, or a written tensor shares memory with itself or with another.
    """
    op = call.op
    for name, tensor in tensors.items():
        if name not in call.on_host:
            check_device(op, tensor.device, runs_on)
        if name in call.written and overlaps(tuple(tensor.shape), tensor.stride()):
            raise UsageError(
                f"{op} writes each element of {name} to a place of its own, and {name} has strides {tensor.stride()}; "
                f"omit {name}, and it is allocated"
            )
    check_has_memory(op, tensors)
    for name, tensor in tensors.items():
        if tensor.is_neg() and not _can_negate(tensor.dtype):
            raise UsageError(
                f"torch negates no {tensor.dtype}, and {name} is a negative view of such elements; convert it first"
            )
    if (pair := call.overlapped(tensors)) is not None:
        written, other = pair
        rule = "writes each output to memory of its own" if other in call.written else "cannot write over what it reads"
        raise UsageError(f"{op} {rule}, and {written} shares memory with {other}; omit {written}, and it is allocated")


def check_device(op: str, device: torch.device, runs_on: str = "cuda") -> None:
    """Raise UsageError unless tensors are on a device whose memory a kernel can use."""
    if device.type != runs_on:
        raise UsageError(
            f"{op} runs on a GPU, and its tensors are on {device}; move them with .cuda(), or call torch instead"
        )


def check_has_memory(op: str, tensors: Tensors) -> None:
    """Raise UsageError if a tensor has elements, and no memory of its own."""
    for name, tensor in tensors.items():
        if tensor.data_ptr() == 0 and tensor.numel():
            raise UsageError(f"{op} reads and writes memory, and {name} has none; call it on the tensors inside")


def _can_negate(dtype: torch.dtype) -> bool:
    try:
        torch.zeros(1, dtype=dtype).neg()
    except RuntimeError:  # not implemented for this dtype
        return False
    return True


def _by_copies(call: OpCall, tensors: Tensors, attributes: Mapping[str, Any], scalars: Mapping[str, float]) -> None:
    """Call the op with copies in place of tensors that the kernel does not take.

    Raises:
        UsageError: the kernel does not take the copies either.
    """
    plain = {name: tensor.resolve_neg().resolve_conj() for name, tensor in tensors.items() if name not in call.written}
    given = {name: x if call.accepts(name, x) else call.laid_out(name, x) for name, x in plain.items()}
    written = {name: tensors[name] for name in tensors if name in call.written}
    taken = {name: not x.is_neg() and not x.is_conj() and call.accepts(name, x) for name, x in written.items()}
    fresh = {
        name: x if taken[name] else torch.empty(x.shape, dtype=x.dtype, device=x.device) for name, x in written.items()
    }
    copies = {name: {**given, **fresh}[name] for name in tensors}
    if call.operands(copies, **attributes) is None:  # a copy of a copy would be as it is
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise UsageError(f"{call.op} takes no tensors of these shapes: {shapes}; reshape them, or call torch instead")
    run(call, copies, attributes, scalars)
    on = next(iter(written.values())).device
    if any(x is not tensors[name] and x.device != on for name, x in given.items()):
        torch.cuda.current_stream(on).synchronize()  # a copy on the host is freed, and a card may read it late
    for name, tensor in written.items():
        if not taken[name]:
            tensor.copy_(fresh[name])


def is_refusal(error: Exception) -> bool:
    """Return whether a config cannot be launched on these tensors, while the default may be.

    The compiler may fail, the card may refuse the binary, and the workspace may not fit its memory; and a tensor
    descriptor asserts that its tensor is aligned, which a view need not be. Errors of a kernel's `launch` arrive as the
    cause of a KernelFault.
    """
    cause = error.__cause__ if isinstance(error, KernelFault) else error
    refusals = AssertionError, torch.OutOfMemoryError
    return cause is not None and (is_compile_error(cause) or is_load_error(cause) or isinstance(cause, refusals))


def tuned_launch(client: Client, call: OpCall, problem: Problem, operands: Mapping[str, Any]) -> PreparedLaunch:
    """Prepare the tuned config on the card of the operands, or the default if there is none or it does not run there.

    `operands` has the scalars too.

    Raises:
        as `prepare_launch`, for the default.
    """
    torch.cuda.init()  # raises torch's error in a child of a process that uses the card
    tensors = {name: x for name, x in operands.items() if isinstance(x, torch.Tensor)}
    with torch.cuda.device(next(x.device for name, x in tensors.items() if name in call.written)):
        kernel, index = call.kernel, torch.cuda.current_device()
        limits = device.describe(index).limits
        best = client.best_config(kernel.op, device=index, **problem.values)
        return launch_or_default(
            kernel, problem, limits, best, lambda config: prepare_launch(kernel, problem, config, operands, limits)
        )


def launch_or_default(
    kernel: Kernel, problem: Problem, limits: Limits, best: Best, prepared: Callable[[Config], _Launch]
) -> _Launch:
    """Return what `prepared` makes of the best config, or of the default if that is not feasible or refused."""
    default = kernel.default_config(problem, limits)
    config = best.config or default
    if config != default and (refused := kernel.valid.refusal(problem, config, limits)):
        text = f"{config.text} is no longer feasible: refused by {refused}"
        _log.warning("%s: the default is used, since %s", problem.text, text)
        config = default
    try:
        launch = prepared(config)
    except Exception as error:
        if config == default or not is_refusal(error):
            raise
        _log.warning("%s: the default is used, since %s fails: %s", problem.text, config.text, exception_text(error))
        config = default
        launch = prepared(config)
    _log.debug("%s: launched with %s (%s)", problem.text, config.text, best.match)
    return launch
