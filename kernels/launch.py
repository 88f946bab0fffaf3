"""The tensors of a kernel and its launches, as values; standard library only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from math import prod
from typing import Any, Literal

from tuner.errors import KernelFault
from tuner.kernels.dtypes import itemsize, shown
from tuner.kernels.fields import check_dtype, check_function, check_mapping, check_tuple, check_whole, overlaps
from tuner.kernels.parts import KernelPart, plain

ALIGNMENT = 16
"""Alignment of addresses, in bytes, that Triton's compiled code depends on."""
WAITING_STREAMS = 16
"""Number of streams on which launches whose programs wait for each other may run at once, so that all programs that
wait, and one more, are on the card."""
Place = Literal["device", "pinned", "pageable"]
"""Memory that a tensor lies in: the card's, or page-locked or ordinary memory of the host."""
PLACES: tuple[Place, ...] = ("device", "pinned", "pageable")


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel is launched with.

    `role`: "in" is read, "out" is written in full, "inout" is read and written, and restored before each launch.
    `strides` counts elements; None is contiguous. `fill(tensor, generator)` fills a tensor that does not take random
    numbers, such as indices; without it floats are normal and integers uniform. `offset` is the number of bytes from
    the last multiple of 16 to its address. `place` is the memory that it lies in. An operand on the host is only read;
    a workspace there is the launch's own until the work of the launch has ended, and no CUDA graph captures it.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"] = "in"
    strides: tuple[int, ...] | None = None
    fill: Callable[[Any, Any], object] | None = None
    offset: int = 0
    place: Place = "device"

    def __post_init__(self) -> None:
        check_dtype("Operand", self.dtype)
        if self.role not in ("in", "out", "inout"):
            raise KernelFault(f"Operand: role is in, out or inout, not {shown(self.role)}; replace it")
        if self.place not in PLACES:
            raise KernelFault(f"Operand: place is {', '.join(PLACES)}, not {shown(self.place)}; replace it")
        if self.place != "device" and self.role != "in":
            raise KernelFault(
                f"Operand: what is written is on the device, and the role {self.role} has place {self.place!r}; "
                "let the caller copy it to the host"
            )
        check_tuple("Operand", "shape", self.shape, int, "sizes")
        for size in self.shape:
            check_whole("Operand", "each size of shape", size, 0)
        if self.strides is not None:
            check_tuple("Operand", "strides", self.strides, int, "numbers of elements")
            for stride in self.strides:
                check_whole("Operand", "each of strides", stride, 0)
            if len(self.strides) != len(self.shape):
                raise KernelFault(
                    f"Operand: strides has a number for each dim of shape {self.shape}, not {self.strides}; match them"
                )
            if self.role != "in" and all(self.shape) and overlaps(self.shape, self.strides):
                raise KernelFault(
                    f"Operand: written elements share no memory, and do by strides {self.strides}; correct them"
                )
        check_whole("Operand", "offset", self.offset, 0, ALIGNMENT - 1)
        if self.offset % itemsize(self.dtype):
            raise KernelFault(
                f"Operand: offset is a multiple of the {itemsize(self.dtype)} bytes of an element, not {self.offset}; "
                "correct it"
            )
        if self.fill is not None:
            check_function("Operand", "fill", self.fill)
            object.__setattr__(self, "fill", KernelPart("fill", plain(self.fill)))

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements; those of a contiguous tensor if none are stated."""
        return self.strides or tuple(prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * itemsize(self.dtype)


def any_on_host(operands: Mapping[str, Operand]) -> bool:
    """Return whether one of these operands is in the memory of the host."""
    return any(operand.place != "device" for operand in operands.values())


def distinct(tensor: Any) -> Any:
    """Return a view of an expanded tensor that has each of its elements once; any other tensor as it is."""
    for dim, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


@dataclass(frozen=True)
class Launch:
    """One kernel launch as a value: `fn[grid](*args, **kwargs)`.

    The compile pool calls `warmup`, so the launch later finds what was compiled ahead.

    `pre_hook(arguments)` runs before each launch, as that of Triton's `Config` does, with the arguments by name: it
    zeroes what the kernel adds to, or sets a descriptor's block shape. Its time is part of the launch's, its source is
    part of the source hash, and it also runs before a compile, with stand-ins.
    """

    fn: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    pre_hook: Callable[[dict[str, Any]], object] | None = None

    def __post_init__(self) -> None:
        if not hasattr(self.fn, "warmup") or not hasattr(self.fn, "__getitem__"):
            raise KernelFault(f"Launch: fn is a function under @triton.jit, not {shown(self.fn)}; decorate it")
        check_tuple("Launch", "grid", self.grid, int, "one to three numbers")
        if not 1 <= len(self.grid) <= 3:
            raise KernelFault(f"Launch: grid is a tuple of one to three numbers, not {shown(self.grid)}; correct it")
        for size in self.grid:
            check_whole("Launch", "each of grid", size, 0)
        check_tuple("Launch", "args", self.args, object, "arguments")
        check_mapping("Launch", "kwargs", self.kwargs)
        if self.pre_hook is not None:
            check_function("Launch", "pre_hook", self.pre_hook)
            object.__setattr__(self, "pre_hook", KernelPart("pre_hook", plain(self.pre_hook)))

    @property
    def bound(self) -> tuple[Any, ...]:
        """Values of the function's parameters in their order; options such as `num_warps` are left out."""
        parameters = signature(self.fn.fn)
        own = {name: value for name, value in self.kwargs.items() if name in parameters.parameters}
        bound = parameters.bind(*self.args, **own)
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def __call__(self) -> Any:
        """Launch. Return the compiled kernel, as Triton does."""
        self._run_hook()
        return self.fn[self.grid](*self.args, **self.kwargs)

    def repeated(self) -> Callable[[], object]:
        """Return a function that launches at less host time: compiled, loaded and bound to its arguments in advance."""
        if self.pre_hook is not None:
            return self
        run, values = self.warmup()[(*self.grid, 1, 1)[:3]], self.bound
        addresses = _addresses(values)

        def launch(tensors: object = values) -> None:  # which live as long as this function
            run(*addresses)

        return launch

    def warmup(self) -> Any:
        """Compile without a launch. Return the compiled kernel."""
        self._run_hook()
        return self.fn.warmup(*self.args, grid=self.grid, **self.kwargs)

    def _run_hook(self) -> None:
        if self.pre_hook is not None:
            self.pre_hook({**dict(zip(self.fn.arg_names, self.args, strict=False)), **self.kwargs})


@dataclass(frozen=True)
class HostCall:
    """A call on the host in place of a kernel launch, such as a copy by the driver: `fn(stream, *args)`.

    `stream` is the handle of the current stream as an integer, and `fn` gets the address of each tensor among `args`.
    It returns once its device work is queued on that stream. It reads no tensor on the device, and no result.

    `captures` is True if it only queues work, so that a CUDA graph repeats all of it. Work of the host itself is done
    once, during the capture; a config with such a call is replaced there by another.
    """

    fn: Callable[..., object]
    args: tuple[Any, ...]
    captures: bool = True

    def __post_init__(self) -> None:
        check_function("HostCall", "fn", self.fn)
        check_tuple("HostCall", "args", self.args, object, "arguments")
        if not isinstance(self.captures, bool):
            raise KernelFault(f"HostCall: captures is True or False, not {shown(self.captures)}; replace it")

    def __call__(self) -> None:
        """Call on torch's current stream."""
        self.repeated()()

    def repeated(self) -> Callable[[], object]:
        """Return a function that calls at less host time: the addresses are taken in advance."""
        import torch

        fn, current, addresses = self.fn, torch.cuda.current_stream, _addresses(self.args)

        def call(tensors: object = self.args) -> None:  # which live as long as this function
            fn(current().cuda_stream, *addresses)

        return call


def _addresses(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return values with the address of each tensor in its place."""
    return tuple(value.data_ptr() if hasattr(value, "data_ptr") else value for value in values)


Step = Launch | HostCall
"""One of the things that `launch` returns, which run in order."""
