"""Estimated time of a matrix product, from the card's resources: no measurement, no table of shapes, no GPU.

A multiprocessor computes its programs in rounds of as many as it holds. Of each step along K, the slowest counts: the
products, the loads from L2, or the latency of a load over the steps in flight. Each round also fills the steps in
flight before its first product, and stores its tiles after the last. Meanwhile device memory delivers the operands, as
fast as the loads in flight allow.

It is plain arithmetic: about 25 us of host time for a config.
"""

from __future__ import annotations

from collections.abc import Callable

from tuner.kernels.shared.overlapped import overlapped
from tuner.kernels.shared.product_coefficients import COEFFICIENTS, Coefficients
from tuner.kernels.shared.product_way import Way
from tuner.kernels.shared.roles import walked_together
from tuner.kernels.shared.tiling import ALIGNED_BYTES, on_wgmma
from tuner.kernels.spec import Cost, Limits, cdiv


def estimated(way: Way, limits: Limits, coefficients: Coefficients = COEFFICIENTS) -> Cost:
    """Return the estimated time, with that of products, loads, last wave, memory, copies, start and end."""
    return _Estimate(way, limits, coefficients).cost()


class _Estimate:
    """The estimate of one way to compute a product: what it makes of the problem, and what that takes."""

    def __init__(self, way: Way, limits: Limits, c: Coefficients) -> None:
        self._way, self._limits, self._c = way, limits, c
        self._size = way.element
        self._m, self._n, self._k = way.block
        self._has_roles, self._stays, self._warps = way.tile is not None, way.stays, way.warps
        most = ALIGNED_BYTES // self._size
        self._at_once = way.at_once or (most, most)
        staged = 1 if min(self._at_once) * self._size < 4 else way.stages - 1
        self._ahead: float = 2 if way.streamed else max(1, staged)
        self._parts, self._group_m, self._turns = 1, way.group_m, 1
        M, N, K = way.sizes
        self._left, self._right = (self._m, M, way.along_k[0]), (self._n, N, way.along_k[1])
        if way.swapped:
            self._left, self._right = self._right, self._left
        if way.tile is not None:
            self._ahead = max(0.5, way.stages - c.in_use)
            self._parts = 1 if way.tile.wide else len(way.tile.parts)
            self._turns = way.tile.turns
            self._group_m = walked_together(self._left[1], self._right[1], way.tile)
        self._tiles = cdiv(M, self._m) * cdiv(N, self._n)
        self._sliced, self._slices = way.sliced, way.slices
        self._steps = cdiv(K, self._k)
        self._wgmma = on_wgmma(self._left[0], self._warps, limits) and not way.vectors
        self._held = way.programs if self._stays else self._programs_held()

    def cost(self) -> Cost:
        c = self._c
        product, alone = self._products()
        load = self._load_cycles()
        latency = (c.latency_cycles + load) / self._ahead
        fill = load + product + c.latency_cycles
        end = c.tile_cycles + self._store_cycles() + self._m * self._n * self._activation_cycles()
        if self._way.vectors:
            fill, end = 0.0, c.vector_cycles

        def step(programs: int) -> float:
            """Return the cycles of a step of each of some programs of a multiprocessor."""
            return self._overlapped(programs * product, programs * load, latency, alone)

        rounds, cycles = self._rounds(step, max(product, load), fill, end)
        memory = self._memory_us()
        start = c.start_us + (c.roles_us if self._has_roles else 0.0)
        copies = self._copies_us()
        us = start + copies + self._overlapped((cycles + self._joining()) / c.mhz, memory)
        even = self._tiles / self._limits.sm_count
        return Cost(
            us,
            {
                "products": even * self._steps * product / c.mhz,
                "loads": even * self._steps * max(load, latency / self._held) / c.mhz,
                "waves": max(0.0, rounds - even) * self._steps * step(1) / c.mhz,
                "memory": memory,
                "copies": copies,
                "start and end": start + (fill + end + self._joining()) / c.mhz,
            },
        )

    def _activation_cycles(self) -> float:
        """Return the cycles in which a multiprocessor applies the activation to an element."""
        return _ACTIVATION_CYCLES.get(self._way.activation, 0.0)

    def _rounds(self, step: Callable[[int], float], least: float, fill: float, end: float) -> tuple[float, float]:
        """Return the tiles that the busiest multiprocessor computes, and their cycles.

        Args:
            step: returns the cycles of a step of some programs at once.
            least: cycles of a step if others use what a program waits for.
            fill: cycles before the first product.
            end: cycles after the last.
        """
        sm_count, held = self._limits.sm_count, self._held
        if self._way.shared:
            tiles = self._tiles / min(sm_count, self._tiles * 2)
            return tiles, tiles * (self._c.shared * self._steps * step(1) + end) + fill
        if self._stays:
            programs = sm_count * held
            whole, last = cdiv(self._tiles - self._sliced, programs), cdiv(self._sliced * self._slices, programs)
            if self._turns > 1:  # a tile is stored while the other group multiplies the next
                each = self._steps * step(1)
                return whole, whole * each + (whole - 1) * max(0.0, end - each) + end + fill
            tiles, at_once = whole + last / self._slices, min(held, cdiv(self._tiles * self._slices, sm_count))
            return tiles * at_once, tiles * self._steps * step(at_once) + (whole + last) * end + fill
        slices = self._slices if self._sliced else 1
        programs, steps = cdiv(self._tiles * slices, sm_count), self._steps / slices
        if self._way.vectors:
            one_by_one = cdiv(programs, held) * (steps * step(1) + end)
            return programs, self._overlapped(programs * steps * least, one_by_one)
        full, rest = divmod(programs, held)
        cycles = full * (steps * step(held) + fill + end)
        return programs / slices, cycles + (steps * step(rest) + fill + end if rest else 0.0)

    def _joining(self) -> float:
        """Return the cycles in which partial sums are written, awaited and read."""
        c = self._c
        join, rate = (c.roles_join_us, c.roles_sum_bytes) if self._has_roles else (c.join_us, c.sum_bytes)
        sums = self._m * self._n * 4 / rate
        if self._way.shared:
            return join * c.mhz + 4 * sums
        return join * c.mhz + (self._slices + 1) * sums if self._sliced else 0.0

    def _products(self) -> tuple[float, float]:
        """Return the cycles of a step's products, and those if no other program runs meanwhile."""
        c, size, block = self._c, self._size, self._m * self._n * self._k
        if self._way.vectors:
            return block / (128 * c.fma) + self._pointer_cycles(), 0.0
        peak = _PEAK_BYTES.get(self._limits.capability[0], _PEAK_BYTES[8]) / size
        if self._wgmma:
            rate = peak * (c.roles if self._has_roles else c.wgmma)
            left, right = self._left[0], self._right[0]
            read = left / 64 * (64 * self._parts + right) * self._k * size / c.shared_bytes
            a_along_k, b_along_k = self._way.along_k
            turned = (self._m * (not a_along_k) + self._n * (not b_along_k)) * self._k * size if size > 2 else 0
            together = self._overlapped(block / rate, read)
            alone = self._has_roles and self._warps == 4 and self._turns == 1 and not self._way.promoted
            beside = c.alone_cycles if alone else c.step_cycles
            in_turn = self._in_turn(block / rate) if self._way.promoted else 0.0
            return together + beside + turned / c.turned_bytes + self._pointer_cycles(), in_turn
        rows, columns = _warp_tile(self._m, self._n, self._warps)
        multiplied = block / (peak * c.mma)
        read = self._warps * (rows + columns) * self._k * size / c.shared_bytes
        together = self._overlapped(multiplied, read) + c.mma_step_cycles + self._pointer_cycles()
        return together, multiplied + read

    def _in_turn(self, products: float) -> float:
        """Return the cycles of a step in which a group's sums leave the tensor cores: it multiplies and adds in turn.

        With roles, one group adds while another multiplies. Otherwise all warps do the same at the same time.
        """
        c, groups = self._c, self._warps // 4 if self._has_roles else 1
        times = max(1, self._k * self._size // _PROMOTED_BYTES)
        waits = self._waits(times) * (c.promoted_cycles + (c.scaled_cycles if self._way.scaled else 0.0))
        return (products + times * self._m * self._n / c.added) / groups + waits

    def _waits(self, times: int) -> int:
        """Return the number of times in a step that a group waits for products: once for all of a wide tile."""
        return 1 if self._way.tile is not None and self._way.tile.wide else self._parts * times

    def _pointer_cycles(self) -> float:
        """Return the cycles of a step in which threads start loads themselves."""
        if self._stays:
            return 0.0
        threads, cycles = self._limits.warp_size * self._warps, 0.0
        for block, elements in zip((self._m, self._n), self._at_once, strict=True):
            loads = block * self._k / elements / threads
            cycles += loads * self._c.pointer_cycles
        return cycles

    def _load_cycles(self) -> float:
        """Return the cycles of a step's loads from L2. What several neighbours load, all of them get at once."""
        c = self._c
        rows, columns = (cdiv(most, block) for block, most, _ in (self._left, self._right))
        slices = self._slices if self._sliced == self._tiles and not self._has_roles else 1
        tiles = max(1, min(c.near // slices, rows * columns))
        group = min(self._group_m, rows, tiles)
        wide = min(cdiv(tiles, group), columns)
        high = max(group, cdiv(tiles, wide))
        left, right = self._side_bytes(*self._left, high / tiles), self._side_bytes(*self._right, wide / tiles)
        if self._way.tile is not None and not self._right[2]:  # a load for each part, of shorter rows
            block, parts = self._right[0], self._way.tile.parts
            right *= sum(part * self._slower(part * self._size) for part in parts) / block
            right /= self._slower(block * self._size)
        crosses = self._stays and (self._left[0] > self._left[1] or self._right[0] > self._right[1])
        cycles = (left + right) / c.l2_bytes + (c.edge_cycles if crosses else 0.0)
        return max(cycles, self._issue_cycles())

    def _issue_cycles(self) -> float:
        """Return the cycles in which a multiprocessor issues a step's loads of less than 16 bytes."""
        cycles = 0.0
        for block, elements in zip((self._m, self._n), self._at_once, strict=True):
            if elements * self._size < ALIGNED_BYTES:
                cycles += block * self._k / elements / self._limits.warp_size * self._c.short_cycles
        return cycles

    def _store_cycles(self) -> float:
        """Return the cycles in which a tile is stored: those of its bytes, or of stores of less than 16 bytes."""
        c, tile = self._c, self._m * self._n
        cycles = tile * self._way.stored / c.store_bytes
        if self._way.stored_at_once is None:
            return cycles
        stores = tile / self._way.stored_at_once
        return max(cycles, stores / self._limits.warp_size * c.store_cycles)

    def _side_bytes(self, block: int, most: int, along_k: bool, distinct: float) -> float:
        """Return the bytes that count as loaded for a side of a tile in a step.

        Args:
            block: rows or columns of the tile.
            most: rows or columns of the problem.
            along_k: whether the factor lies along K.
            distinct: share of different ones among those that neighbours load.
        """
        c = self._c
        slower = self._slower((self._k if along_k else block) * self._size)
        return min(block, most) * self._k * self._size * slower * (c.apart + (1 - c.apart) * min(1.0, distinct))

    def _slower(self, run: int) -> float:
        """Return the time of loads whose rows have `run` bytes, relative to rows of 128 bytes."""
        c = self._c
        return 1 + c.short_run * max(0.0, 128 / run - 1) - c.long_run * max(0.0, 1 - 128 / run)

    def _memory_us(self) -> float:
        """Return the time in which device memory reads the operands and writes the result."""
        c, (M, N, K) = self._c, self._way.sizes
        programs = min(self._tiles * self._slices, self._limits.sm_count * self._held)
        rows, columns = min(self._m, M), min(self._n, N)
        in_flight = programs * self._ahead * (rows + columns) * self._k * self._size
        rate = 1e3 * (self._limits.gb_per_s or c.gb_per_s)
        read = (M + N) * K * self._size if self._way.read_bytes is None else self._way.read_bytes
        us = (read + M * N * self._way.stored) * (1 / rate + c.memory_latency_us / in_flight)
        return us * c.read_once if self._way.vectors or self._way.streamed else us

    def _copies_us(self) -> float:
        """Return the time in which operands are copied to aligned rows in one launch, and the result from them."""
        c = self._c
        return self._way.copy_launches * c.copy_us + 2 * self._way.copied_bytes / (1e3 * c.copy_gb_per_s)

    def _programs_held(self) -> int:
        """Return the number of programs that a multiprocessor holds at once."""
        limits, threads = self._limits, self._warps * self._limits.warp_size
        step_bytes = (self._m + self._n) * self._k * self._size
        sums, others = (self._way.sums or self._m * self._n) // threads, 64
        # wgmma reads shared memory, so the step in use stays there beside those in flight.
        in_shared = (self._way.stages if self._wgmma else self._ahead) * step_bytes
        if self._way.vectors:  # a step is in registers
            others, in_shared = 24 + step_bytes // (4 * threads), 0
        registers = min(sums + others, limits.registers_per_thread)
        by_shared = int(limits.shared_bytes // (in_shared + 1024))
        return max(1, min(by_shared, limits.registers_per_sm // (threads * registers), _THREADS_PER_SM // threads))

    def _overlapped(self, *parts: float) -> float:
        return overlapped(self._c.sharpness, *parts)


_PEAK_BYTES = {8: 2048, 9: 4096, 10: 8192}
"""Products of a multiprocessor in a cycle times the bytes of an element, by the major compute capability."""
_PROMOTED_BYTES = 128
"""Bytes along K of the products that the tensor cores add up before a sum leaves them."""
_ACTIVATION_CYCLES = {"silu": 0.125, "gelu": 0.16}
"""Two instructions for special functions, of which a multiprocessor executes 16 in a cycle; gelu has 20 others too."""
_THREADS_PER_SM = 2048
"""Threads that a multiprocessor holds."""


def _warp_tile(block_m: int, block_n: int, warps: int) -> tuple[int, int]:
    """Return rows and columns of a warp's part of a tile, as square as they can be."""
    while warps > 1:
        if block_m >= 32 and block_m >= block_n:
            block_m //= 2
        else:
            block_n = max(8, block_n // 2)
        warps //= 2
    return block_m, block_n
