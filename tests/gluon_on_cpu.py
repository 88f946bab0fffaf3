"""A Gluon kernel with roles for warps, run on the CPU: Triton's interpreter knows none.

Each role is a thread. Shared memory is an array of bytes without swizzles. Copies by the copy engine arrive at once;
products and stores read shared memory as late as the kernel's waits allow, so that memory that is released too early
shows in the result. Programs run one after the other, in the order of their numbers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import FunctionType, SimpleNamespace
from typing import Any

import numpy as np

from tuner.kernels.spec import Launch, cdiv

NUMPY = {"fp16": np.float16, "bf16": np.float16, "fp8e4m3": np.int8, "fp32": np.float32, "int32": np.int32}
"""Arrays that stand for each dtype: of its size, and exact for small whole numbers."""
WAIT_S = 5.0
"""Longest wait for a barrier, in seconds; a kernel that waits longer is stuck."""


class Tensor(np.ndarray):
    """An array with what device code asks of a tensor; `x += y` makes a new one."""

    type = SimpleNamespace(layout=None)

    def __iadd__(self, other: Any) -> Any:  # type: ignore[misc]
        return self + other

    def __imul__(self, other: Any) -> Any:  # type: ignore[misc]
        return self * other

    def to(self, dtype: Any, bitcast: bool = False) -> Any:
        if bitcast:  # of 32 bits, which arrays of 64 stand for
            return self.astype(np.int32).view(dtype)
        return self.astype(dtype.numpy if hasattr(dtype, "numpy") else dtype)


def tensor(values: Any) -> Tensor:
    return np.asarray(values).view(Tensor)


class Dtype(SimpleNamespace):
    """A dtype of Gluon: its array's and its bits."""


def dtype_of(array: Any) -> Dtype:
    return Dtype(numpy=array, primitive_bitwidth=8 * np.dtype(array).itemsize)


class Pointer:
    """Addresses of elements of a flat array."""

    def __init__(self, array: Any, offsets: Any = 0) -> None:
        self.array, self.offsets = array, np.asarray(offsets)

    @property
    def dtype(self) -> Any:
        return SimpleNamespace(element_ty=dtype_of(self.array.dtype))

    def __add__(self, offsets: Any) -> Pointer:
        return Pointer(self.array, self.offsets + offsets)

    def __getitem__(self, index: Any) -> Pointer:
        return Pointer(self.array, self.offsets[index])


class Memory:
    """A view of shared memory: rows one after the other from an offset on.

    Matrices with rows of 256 bytes lie there as the copy engine writes them: one half of all rows behind the other.
    """

    def __init__(
        self, raw: Any, offset: int, dtype: Dtype, shape: list[int], axes: tuple[int, ...] | None = None
    ) -> None:
        self.raw, self.offset, self.dtype, self.shape, self.axes = raw, offset, dtype, shape, axes

    def index(self, nth: int) -> Memory:
        assert 0 <= nth < self.shape[0], "an index is outside of its buffer"
        inner = int(np.prod(self.shape[1:])) * np.dtype(self.dtype.numpy).itemsize
        return Memory(self.raw, self.offset + nth * inner, self.dtype, self.shape[1:])

    def permute(self, axes: tuple[int, ...]) -> Memory:
        return Memory(self.raw, self.offset, self.dtype, self.shape, axes)

    @property
    def halves(self) -> list[Memory]:
        """Blocks of 128 bytes of each row; none if rows have no more than that."""
        rows, columns = self.shape[-2:] if len(self.shape) == 2 else (0, 0)
        most = 128 // np.dtype(self.dtype.numpy).itemsize
        if columns <= most:
            return []
        return [
            Memory(self.raw, self.offset + nth * rows * 128, self.dtype, [rows, most]) for nth in range(columns // most)
        ]

    def write(self, values: Any) -> None:
        if not (halves := self.halves):
            self.values[...] = values
            return
        rows = values if self.axes is None else values.transpose(self.axes)
        for half, part in zip(halves, np.split(rows, len(halves), axis=1), strict=True):
            half.values[...] = part

    @property
    def values(self) -> Any:
        if halves := self.halves:
            whole = np.concatenate([half.values for half in halves], axis=1)
            return whole if self.axes is None else whole.transpose(self.axes)
        size = int(np.prod(self.shape)) * np.dtype(self.dtype.numpy).itemsize
        assert self.offset + size <= len(self.raw), "a view ends behind shared memory"
        found = self.raw[self.offset : self.offset + size].view(self.dtype.numpy).reshape(self.shape)
        return found if self.axes is None else found.transpose(self.axes)

    def store(self, values: Any) -> None:
        assert self.values.shape == values.shape
        self.write(values)

    def load(self, layout: Any) -> Tensor:
        return tensor(self.values.copy())


class Barrier:
    """An mbarrier: a phase ends when all have arrived and all expected bytes have."""

    def __init__(self, changed: threading.Condition) -> None:
        self.changed, self.count, self.left, self.bytes, self.phase = changed, 0, 0, 0, 0

    def update(self, arrivals: int, expected: int) -> None:
        with self.changed:
            self.left, self.bytes = self.left - arrivals, self.bytes + expected
            assert self.left >= 0
            if self.left == 0 and self.bytes == 0:
                self.phase, self.left = self.phase + 1, self.count
                self.changed.notify_all()

    def wait(self, parity: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.phase & 1 != parity, WAIT_S), "a barrier never completes"


class Descriptor:
    """A matrix as the copy engine sees it."""

    def __init__(self, given: Any, memory: Any) -> None:
        size = memory.itemsize
        self.matrix = np.lib.stride_tricks.as_strided(memory, given.shape, [stride * size for stride in given.strides])
        self.block_shape, self.dtype, self.layout = list(given.block_shape), dtype_of(memory.dtype), None

    def parts(self, at: list[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
        """Return the part of the matrix that a box covers, and that of the box."""
        inner = 16 // np.dtype(self.dtype.numpy).itemsize
        assert at[-1] % inner == 0, "a box begins at 16 bytes along its rows"
        sizes = zip(at, self.block_shape, self.matrix.shape, strict=True)
        ends = [(max(first, 0), max(min(first + box, size), first)) for first, box, size in sizes]
        return (
            tuple(slice(first, end) for first, end in ends),
            tuple(slice(0, max(0, end - first)) for first, end in ends),
        )


class Program:
    """One program: its shared memory, its roles, and what they have under way."""

    def __init__(self, number: int, programs: int) -> None:
        self.raw, self.taken = np.zeros(232_448, np.uint8), 0
        self.width = 8  # columns of each tensor of sums, of one product for all columns
        self.number, self.programs, self.changed = number, programs, threading.Condition()
        self.own = threading.local()
        self.own.products = []
        self.errors: list[BaseException] = []

    def names(self) -> dict[str, Any]:
        """Return what device code finds under the names of Gluon's modules and functions."""
        float32 = dtype_of(np.float32)
        return {
            "gl": SimpleNamespace(
                constexpr=Any,
                float32=float32,
                int64=dtype_of(np.int64),
                uint32=np.uint32,
                program_id=lambda axis: self.number,
                num_programs=lambda axis: self.programs,
                static_range=range,
                cdiv=cdiv,
                minimum=np.minimum,
                where=lambda condition, x, y: (
                    tensor(np.where(condition, x, y)) if np.ndim(condition) else x if condition else y
                ),
                SliceLayout=lambda dim, layout: None,
                DotOperandLayout=lambda which, parent, width: None,
                BlockedLayout=lambda *of: None,
                NVMMASharedLayout=SimpleNamespace(get_default_for=lambda shape, dtype: None),
                convert_layout=lambda x, layout: x,
                arange=lambda first, end, layout: tensor(np.arange(first, end)),
                zeros=lambda shape, dtype, layout: tensor(np.zeros(shape, dtype.numpy)),
                zeros_like=lambda x: tensor(np.zeros_like(x)),
                expand_dims=np.expand_dims,
                reshape=np.reshape,
                permute=np.transpose,
                split=lambda x: (x[..., 0], x[..., 1]),
                load=load,
                store=store_at,
                atomic_add=lambda at, value, sem: swap(at, at.array[at.offsets] + value),
                atomic_xchg=lambda at, value, sem: swap(at, value),
                atomic_cas=self.compare_and_swap,
                allocate_shared_memory=self.allocate,
                warp_specialize=self.specialize,
            ),
            "tl": SimpleNamespace(constexpr=Any, debug_barrier=lambda: None, load=load, cdiv=cdiv, float32=float32,
                                  expand_dims=np.expand_dims, uint32=np.uint32, cast=lambda x, dtype: dtype(x),
                                  maximum=lambda x, y, propagate_nan: tensor(np.maximum(x, y)),
                                  PropagateNan=SimpleNamespace(ALL=None)),
            "mbarrier": SimpleNamespace(
                MBarrierLayout=lambda: None,
                init=self.init,
                wait=self.wait,
                expect=lambda barrier, size: barrier.update(1, size),
                arrive=lambda barrier, pred=True: barrier.update(1, 0) if pred else None,
            ),
            "tma": SimpleNamespace(
                async_copy_global_to_shared=self.copy_in,
                async_copy_shared_to_global=self.copy_out,
                store_wait=self.store_wait,
                viewed=lambda memory, dtype, shape, layout: Memory(memory.raw, memory.offset, dtype, list(shape)),
            ),
            "wide_wgmma": SimpleNamespace(
                zeros_of=lambda tensors, width, depth: (tensor(np.zeros((64, tensors * width), np.float32)),),
                first_byte=lambda: 0,
                added=self.wide_sums,
                products=self.wide_products,
                completed=lambda sums: self.finished_products(0, [*sums, None])[:-1],
                stacked=self.stacked,
            ),
            "fence_async_shared": lambda: None,
            "warpgroup_mma": self.products,
            "warpgroup_mma_wait": self.finished_products,
            "sums_layout": lambda columns, depth: None,
        }  # fmt: skip

    def allocate(self, dtype: Any, shape: list[int], layout: Any) -> Any:
        if dtype.numpy is np.int64:
            return SimpleNamespace(index=[Barrier(self.changed) for _ in range(shape[0])].__getitem__)
        self.taken = cdiv(self.taken, 1024) * 1024
        found = Memory(self.raw, self.taken, dtype, list(shape))
        self.taken += int(np.prod(shape)) * np.dtype(dtype.numpy).itemsize
        assert self.taken <= len(self.raw), "shared memory is full"
        return found

    def init(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.left = count

    def wait(self, barrier: Barrier, parity: int, pred: bool = True) -> None:
        if pred:
            barrier.wait(parity)

    def copy_in(self, source: Descriptor, at: list[int], barrier: Barrier, memory: Memory) -> None:
        assert memory.shape == source.block_shape
        there, here = source.parts(at)
        values = np.zeros_like(memory.values)
        values[here] = source.matrix[there]
        memory.write(values)
        barrier.update(0, -values.nbytes)

    def copy_out(self, out: Descriptor, at: list[int], memory: Memory) -> None:
        assert memory.shape == out.block_shape
        there, here = out.parts(at)
        self.own.stores.append(lambda: out.matrix.__setitem__(there, memory.values[here]))

    def store_wait(self, pending: int) -> None:
        while len(self.own.stores) > pending:
            self.own.stores.pop(0)()

    def products(self, a: Memory | Tensor, b: Memory, sums: Any, use_acc: bool = True, is_async: bool = False) -> Any:
        """Issue a product: what it reads in shared memory is read when it is waited for."""
        result = tensor(np.zeros(sums.shape, np.float32))

        def multiply() -> None:
            left = a.values if isinstance(a, Memory) else a
            result[...] = left.astype(np.float32) @ b.values.astype(np.float32) + (sums if use_acc else 0)

        self.own.products.append(multiply)
        return result

    def finished_products(self, pending: int, deps: list[Any]) -> Any:
        while len(self.own.products) > pending:
            self.own.products.pop(0)()
        return deps[0] if len(deps) == 1 else tuple(deps)

    def wide_sums(self, sums: Any, left: int, right: int, blocks: int, dtype: Dtype, across: bool) -> Any:
        """Issue products of blocks of 64 rows, added to their sums, which are side by side."""
        found = self.wide(sums[0], left, right, blocks, sums[0].shape[1] // blocks, dtype, across)
        self.finished_products(1, [None])
        return found

    def wide_products(self, left: int, right: int, tensors: int, width: int, depth: int, dtype: Dtype) -> Any:
        """Issue products of 64 rows."""
        return self.wide(np.float32(0), left, right, 1, tensors * width, dtype)

    def wide(
        self, sums: Any, left: int, right: int, blocks: int, columns: int, dtype: Dtype, across: bool = False
    ) -> Any:
        depth = 128 // np.dtype(dtype.numpy).itemsize
        b = Memory(self.raw, right, dtype, [columns, depth]).permute((1, 0))
        if across:
            a = Memory(self.raw, left, dtype, [depth, blocks * 64]).permute((1, 0))
        else:
            a = Memory(self.raw, left, dtype, [blocks * 64, depth])
        result = tensor(np.zeros((64, blocks * columns), np.float32))

        def multiply() -> None:
            products = a.values.astype(np.float32) @ b.values.astype(np.float32)
            result[...] = sums + np.concatenate(np.split(products, blocks), axis=1)

        self.own.products.append(multiply)
        return (result,)

    def stacked(self, sums: Any, first: int, of: int, blocks: int, depth: int) -> Any:
        beside = np.split(sums[0], blocks, axis=1)
        return tensor(np.concatenate([block[:, self.width * first : self.width * (first + of)] for block in beside]))

    def compare_and_swap(self, at: Pointer, expected: int, value: int, sem: str) -> Any:
        before = at.array[at.offsets]
        assert before == expected, "a program waits for one that has not run"
        return swap(at, value)

    def specialize(self, roles: Any, warps: list[int], registers: list[int]) -> None:
        assert len(warps) == len(registers) == len(roles) - 1

        def run(function: Callable[..., object], arguments: tuple[Any, ...]) -> None:
            self.own.stores, self.own.products = [], []
            try:
                function(*arguments)
                assert not self.own.products, "products are not waited for"
                assert not self.own.stores, "stores are not waited for"
            except BaseException as error:  # noqa: BLE001  raised in the main thread
                self.errors.append(error)

        threads = [threading.Thread(target=run, args=role) for role in roles]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]


def load(at: Pointer, mask: Any = None, other: float = 0.0, cache_modifier: str = "") -> Any:
    if mask is None:
        return tensor(at.array[at.offsets])
    place = np.where(mask, at.offsets, 0)
    assert 0 <= place.min() <= place.max() < len(at.array), "a load is out of bounds"
    return tensor(np.where(mask, at.array[place], np.asarray(other, at.array.dtype)))


def store_at(at: Pointer, values: Any, mask: Any = True) -> None:
    there = np.broadcast_to(mask, np.shape(at.offsets))
    assert not there.any() or 0 <= at.offsets[there].min() <= at.offsets[there].max() < len(at.array), "a store is out"
    at.array[at.offsets[there]] = np.broadcast_to(values, there.shape)[there]


def swap(at: Pointer, value: int) -> Any:
    before = at.array[at.offsets].copy()
    at.array[at.offsets] = value
    return before


def on_cpu(jitted: Any, names: dict[str, Any], done: dict[Any, Any]) -> Any:
    """Return a device function as one of Python, with those that it calls, and with other meanings of some names."""
    function = getattr(jitted, "fn", jitted)
    if function not in done:
        scope = {**names}
        done[function] = FunctionType(function.__code__, scope, function.__name__, function.__defaults__)
        for name, value in function.__globals__.items():
            if name not in names and isinstance(getattr(value, "fn", None), FunctionType):
                scope[name] = on_cpu(value, names, done)
            elif name not in names and not name.startswith("__"):
                scope[name] = value
    return done[function]


def run(launch: Launch, memory: Mapping[int, Any], programs: list[int] | None = None) -> None:
    """Run the programs of a launch.

    Args:
        memory: flat arrays, by the identity of the stand-in of each tensor among the arguments.
        programs: their numbers, in the order in which they run; all of them by default.
    """
    arguments: list[Any] = []
    for value in launch.args:
        if hasattr(value, "block_shape"):
            arguments.append(Descriptor(value, memory[id(value.base)]))
        else:
            arguments.append(Pointer(memory[id(value)]) if id(value) in memory else value)
    compiled_in = {name: value for name, value in launch.kwargs.items() if name != "num_warps"}
    for number in programs or range(launch.grid[0]):
        program = Program(number, launch.grid[0])
        program.width = compiled_in.get("COLUMNS", 8) & -compiled_in.get("COLUMNS", 8)
        kernel = on_cpu(launch.fn, program.names(), {})
        kernel(*arguments, **compiled_in)
