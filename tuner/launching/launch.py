"""`tuner.launch`: launches of any kernel's tuned config on tensors, prepared once and repeated at little host time.

The hot path is generated for each kernel and set of names: it makes a key of shapes, strides, dtypes, device, alignment
and attributes, and runs the launch that is prepared for it. The cold path checks the tensors, infers the problem, looks
up the config and compiles it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
from torch.autograd import forward_ad

from tuner import catalog
from tuner.client import Client, default_client
from tuner.client.tables import TableCache
from tuner.errors import UsageError
from tuner.kernels.calling import (
    NOT_STRIDED,
    PLAIN,
    PreparedLaunch,
    Tensors,
    checked_scalars,
    is_recording,
    is_tracing,
    kind_of,
)
from tuner.kernels.overlap import extent
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.launching.arguments import CannotPrepare, make_room
from tuner.launching.by_tensor import holding, launched_by_tensor, on_addresses
from tuner.launching.calls import CallSettings, compile_launched, launch_or_default
from tuner.launching.inferred import check_strides, problem_of
from tuner.launching.launch_checks import check_given, check_places, check_written
from tuner.launching.launch_source import source
from tuner.launching.launcher import prepare_launch
from tuner.measure import device

_STATED = {bool, int, float, str, torch.dtype}
"""Types of dims, dtypes, attributes and scalars that a launch is kept for."""
Named = str | os.PathLike[str] | Kernel
"""A kernel: the name of an op, the path of a file, or the kernel itself."""


@dataclass(frozen=True)
class Ready:
    """A launch of one config."""

    by_address: PreparedLaunch | None
    """Launches, given the addresses of the tensors; None if the launch needs the tensors."""
    by_tensor: Callable[[Tensors], object] | None = None
    """Launches, given the tensors."""


ReadyOf = Callable[[Client, Kernel, Problem, Mapping[str, Any]], Ready]
"""Makes the launch of a problem from the tensors and the scalars."""


@dataclass(frozen=True)
class LaunchSettings(CallSettings):
    """Limits of what `tuner.launch` keeps."""

    most_kernels: int = 1024
    """Number of kernels whose launches are kept."""
    most_forms: int = 16
    """Number of sets of argument names kept for one kernel; launches with older ones are prepared again."""


@dataclass
class _Form:
    """A kernel with the names that it is launched with."""

    kernel: Kernel
    tensors: tuple[str, ...]
    others: tuple[str, ...]
    """Dims, dtype, attributes and scalars that are stated."""
    names: dict[str, Any]
    """Global names of the generated functions."""
    kept: dict[object, tuple[Any, ...]] = field(default_factory=dict)
    """Launches by key: by address, by tensor, then the extent of each tensor in bytes."""
    replaced: dict[object, tuple[Any, ...]] = field(default_factory=dict)
    """Launches from before the last refresh. They are loaded on the card, so a CUDA graph can capture them."""
    written: frozenset[str] = frozenset()
    """Tensors that some problem of the kernel writes."""


@dataclass
class Launches:
    """The prepared launches of this process.

    Args:
        client: client that looks up tuned configs.
        settings: limits of what is kept.
        ready_of: makes the launch of a problem on tensors; tests without a GPU replace it.
        runs_on: type of the devices whose memory kernels can use.
    """

    client: Client
    settings: LaunchSettings = LaunchSettings()
    ready_of: ReadyOf = lambda client, kernel, problem, operands: tuned(client, kernel, problem, operands)
    runs_on: str = "cuda"
    calls: dict[object, Callable[[Mapping[str, Any]], None]] = field(default_factory=dict)
    """The generated function of each kernel, by its name, its file or the id of the kernel itself."""
    launched: set[tuple[str, int]] = field(default_factory=set)
    """Named ops with the devices on which they were prepared."""

    def __post_init__(self) -> None:
        self._forms: dict[object, list[_Form]] = {}
        self._lock = Lock()
        self.client.on_refresh(self._compile_first, self._prepare_again)

    def launch(self, kernel: Named, /, **given: Any) -> None:
        """Launch a kernel's tuned config on tensors, or its default if there is none: `launch("f.py", x=x, out=out)`.

        Dims that are not given are read from the shapes. It runs on the current stream, writes to the tensors that are
        given, and returns nothing. The first call on tensors of a kind compiles, as any Triton kernel does; later ones
        on tensors with the same shapes, strides, dtypes and alignment cost the host some microseconds. It never tunes
        and never waits for another process. `torch.compile` breaks the graph around it.

        Args:
            kernel: name of an op, path of a kernel file, or the `Kernel` itself.
            given: tensors by the names of the operands; dims, `dtype`, attributes and scalars such as `eps` by theirs.

        Raises:
            UsageError: tensors do not fit the kernel or each other, are not on a GPU, share memory that is written, or
                a gradient is needed; or a scalar is no number.
            UnknownName, NoDevice, KernelFault: the kernel cannot be found, or its code cannot be used here.
        """
        if is_tracing() and _can_leave_graph():
            _outside(self, kernel, given)
            return
        call = self.calls.get(kernel if type(kernel) is str else id(kernel))
        if call is None:
            call = self._call_of(kernel)
        call(given)

    def clear(self) -> None:
        """Drop all launches."""
        with self._lock:
            self.calls.clear()
            self._forms.clear()

    def after_fork(self) -> None:
        """Drop all launches in a child process, which does not share its parent's card."""
        self._lock = Lock()
        self.clear()

    @property
    def kept(self) -> int:
        """Number of launches that are kept."""
        return sum(len(form.kept) for forms in self._forms.values() for form in forms)

    def _call_of(self, named: Named) -> Callable[[Mapping[str, Any]], None]:
        """Return the function of a kernel that was not launched before, or that is given by a `Path`."""
        if not isinstance(named, str | os.PathLike | Kernel):
            raise UsageError(
                f"tuner.launch takes the name of an op, a kernel file or a Kernel, not {kind_of(named)}; "
                "call a decorated function itself, as in f[grid](...)"
            )
        reference: object = id(named) if isinstance(named, Kernel) else os.fspath(named)
        if (call := self.calls.get(reference)) is not None:
            return call
        kernel = named if isinstance(named, Kernel) else catalog.resolve(os.fspath(named))
        with self._lock:
            if reference not in self.calls:
                make_room(self.calls, self.settings.most_kernels)
                self.calls[reference] = lambda given: self._first(reference, kernel, given)
                self._forms = {known: forms for known, forms in self._forms.items() if known in self.calls}
            return self.calls[reference]

    def _first(self, reference: object, kernel: Kernel, given: Mapping[str, Any]) -> None:
        """Launch on tensors of a new kind, and keep what was prepared."""
        stated = {name: value for name, value in given.items() if value is not None}
        scalars = {name: stated.pop(name) for name in kernel.scalars if name in stated}
        tensors = {name: value for name, value in stated.items() if isinstance(value, torch.Tensor)}
        others = {name: value for name, value in stated.items() if name not in tensors}
        check_given(kernel, tensors, others)
        numbers = checked_scalars(kernel, scalars)
        problem = problem_of(kernel, tensors, others)
        operands = kernel.operands(problem)
        check_places(kernel.op, operands, tensors, self.runs_on)
        one = tensors[next(name for name, operand in operands.items() if operand.place == "device")]
        written = frozenset(name for name, operand in operands.items() if operand.role != "in")
        check_written(kernel.op, tensors, written)
        form = self._form(reference, kernel, given, tensors, written)
        tensors = {name: tensors[name] for name in form.tensors}  # in the order of its addresses
        usual = all(type(tensor) in PLAIN for tensor in tensors.values())
        usual = usual and all(type(value) in _STATED for value in (*others.values(), *scalars.values()))
        key = form.names["key_of"](given) if usual else None
        found, before = form.kept.get(key), form.replaced.get(key)
        if found is None and before is not None and one.is_cuda and torch.cuda.is_current_stream_capturing():
            found = before
        if found is None:
            ready = self.ready_of(self.client, kernel, problem, {**tensors, **numbers})
            found = ready.by_address, ready.by_tensor, *map(extent, tensors.values())
            if key is not None:
                make_room(form.kept, self.settings.most_prepared)
                form.kept[key] = found
            if kernel.op in catalog.names():
                self.launched.add((kernel.op, one.get_device()))
        by_address, by_tensor = found[:2]
        if by_address is None:
            by_tensor(tensors)
        else:
            by_address(tuple(tensor.data_ptr() for tensor in tensors.values()))

    def _form(
        self, reference: object, kernel: Kernel, given: Mapping[str, Any], tensors: Tensors, written: frozenset[str]
    ) -> _Form:
        """Return the form of a call, with a generated function that is tried before the others."""
        others = [name for name in given if name not in tensors]
        with self._lock:
            forms = self._forms.setdefault(reference, [])
            before = [form for form in forms if {*form.tensors} == {*tensors} and {*form.others} == {*others}]
            if before and before[0].written >= written:
                return before[0]
            written = written.union(*(form.written for form in before))
            form = _Form(kernel, tuple(tensors), tuple(others), {}, written=written)
            forms[:] = [form, *(each for each in forms if each not in before)][: self.settings.most_forms]
            self._generate(reference, kernel, forms)
            return form

    def _generate(self, reference: object, kernel: Kernel, forms: list[_Form]) -> None:
        """Generate the functions of all forms. Each passes calls that it does not know to the next."""
        call: Callable[[Mapping[str, Any]], None] = lambda given: self._first(reference, kernel, given)  # noqa: E731
        for form in reversed(forms):
            form.names = {
                "Tensor": torch.Tensor, "Parameter": torch.nn.Parameter, "kept": form.kept, "otherwise": call,
                "is_recording": is_recording, "forward_ad": forward_ad, "MISFITS": (KeyError, ValueError, *NOT_STRIDED),
            }  # fmt: skip
            exec(
                compile(source(form.tensors, form.others, form.written), f"<calls of {kernel.op}>", "exec"), form.names
            )
            call = form.names["call"]
        self.calls[reference] = call

    def _compile_first(self, tables: TableCache, in_background: bool) -> None:
        compile_launched(self.launched, tables, in_background, self.settings)

    def _prepare_again(self) -> None:
        """Let each call prepare its launch again, with newer answers."""
        with self._lock:
            for forms in self._forms.values():
                for form in forms:
                    form.replaced.clear()
                    form.replaced.update(form.kept)
                    form.kept.clear()


def _outside(launches: Launches, kernel: Named, given: Mapping[str, Any]) -> None:
    """Launch outside of a graph that torch compiles."""
    launches.launch(kernel, **given)


def _can_leave_graph() -> bool:
    """Let torch break its graph at `_outside`, and return True. torch calls this only while it compiles.

    By then torch has imported the compiler, which takes more than a second.
    """
    global _outside
    if not hasattr(_outside, "_torchdynamo_disable"):
        why = "tuner.launch runs outside of graphs; compile without fullgraph=True"
        _outside = torch.compiler.disable(_outside, reason=why)
    return True


_can_leave_graph._dynamo_marked_constant = True  # type: ignore[attr-defined]  # torch calls it and does not trace it


def tuned(client: Client, kernel: Kernel, problem: Problem, operands: Mapping[str, Any]) -> Ready:
    """Prepare the tuned config on the card of the tensors, or the default if there is none or it does not run there.

    Raises:
        UsageError: the strides are not those of the operands, and `launch` does not pass them on.
        Triton's own errors: the default cannot be compiled, or the card refuses it.
    """
    torch.cuda.init()  # raises torch's error in a child of a process that uses the card
    tensors = {name: x for name, x in operands.items() if isinstance(x, torch.Tensor)}
    numbers = {name: x for name, x in operands.items() if name not in tensors}
    with torch.cuda.device(next(tensor.device for tensor in tensors.values() if tensor.is_cuda)):
        index = torch.cuda.current_device()
        limits = device.describe(index).limits
        check_strides(kernel, problem, tensors, limits)
        best = client.best_config(kernel, device=index, **problem.values)
        on_host = [name for name, operand in kernel.operands(problem).items() if operand.place != "device"]

        def ready(config: Config) -> Ready:
            try:
                launch = prepare_launch(kernel, problem, config, operands, limits)
                return Ready(None, holding(on_addresses(launch), on_host, index)) if on_host else Ready(launch)
            except CannotPrepare:
                by_tensor = launched_by_tensor(kernel, problem, config, limits, numbers)
                return Ready(None, holding(by_tensor, on_host, index))

        return launch_or_default(kernel, problem, limits, best, ready)


LAUNCHES = Launches(default_client())
"""The launches that `tuner.launch` prepares."""
launch = LAUNCHES.launch
os.register_at_fork(after_in_child=LAUNCHES.after_fork)
