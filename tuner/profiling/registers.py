"""The registers of a program's threads, and the instructions that compute with them.

Integers are computed; what comes from memory or from floats is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from tuner.profiling.integers import BINARY, Lanes, bits_of, compare, read_as, shifted_left, shifted_right, wrapped
from tuner.profiling.ptx import Instruction

WARP = 32
"""Threads of a warp."""
_ADDRESS = re.compile(r"\[\s*([%$\w.]+)\s*(?:\+\s*(-?\w+))?\s*\]")
_NUMBER = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)U?$")


class Registers:
    """Values of the registers that are known, by thread.

    Args:
        threads: number of threads.
        grid: size of the grid.
        program: index of the program in the grid.
    """

    def __init__(self, threads: int, grid: Sequence[int], program: Sequence[int]) -> None:
        numbers = np.arange(threads)
        self.lane = numbers % WARP
        """Lane of each thread."""
        self._known: dict[str, Lanes] = {
            "%tid.x": numbers, "%laneid": self.lane, "%warpid": numbers // WARP, "%ntid.x": np.array([threads]),
            **{f"%tid.{axis}": np.array([0]) for axis in "yz"},
            **{f"%ctaid.{axis}": np.array([place]) for axis, place in zip("xyz", program, strict=False)},
            **{f"%nctaid.{axis}": np.array([size]) for axis, size in zip("xyz", grid, strict=False)},
        }  # fmt: skip

    def get(self, name: str) -> Lanes | None:
        """Return a register, such as a predicate; None if it is unknown."""
        return self._known.get(name)

    def set(self, name: str, value: Lanes | None) -> None:
        """Set a register in all threads; None makes it unknown."""
        if value is None:
            self._known.pop(name, None)
        else:
            self._known[name] = value

    def value(self, operand: str, kind: str) -> Lanes | None:
        """Return a register, number or symbol as values of a type; None if it is unknown."""
        if _NUMBER.match(operand):
            return read_as(np.array([int(operand.removesuffix("U"), 0)]), kind)
        if operand[0] not in "%0123456789-":
            named = self._known.get(operand)  # a register of inline assembly, or the shared memory, at 0
            return np.array([0]) if named is None and operand.endswith("smem") else named
        value = self._known.get(operand)
        return None if value is None else read_as(value, kind)

    def address(self, operand: str) -> Lanes | None:
        """Return an address such as `[%rd1 + 16]`; None if it is unknown."""
        found = _ADDRESS.match(operand)
        start = None if found is None else self.value(found[1], "b64")
        return None if found is None or start is None else start + (int(found[2], 0) if found[2] else 0)

    def execute(self, instruction: Instruction, active: Lanes, *, everywhere: bool) -> None:
        """Compute an instruction in the active threads.

        Args:
            everywhere: whether all threads are active.
        """
        if not instruction.operands:
            return
        results = self._results(instruction)
        for name in instruction.writes if not results else ():
            self._known.pop(name, None)
        target, _, second = instruction.operands[0].partition("|")
        for name, result in zip((target, second), results, strict=False):
            before = self._known.get(name)
            if result is None or everywhere or before is None:
                self.set(name, result)
            else:
                self._known[name] = np.where(active, result, before)

    def _results(self, instruction: Instruction) -> tuple[Lanes | None, ...]:
        """Return the values that an instruction sets; None for an unknown one, () if it is not evaluated at all."""
        parts, operands = instruction.parts, instruction.operands
        kind = parts[-1]
        if parts[0] == "elect":
            return None, self.lane == 0
        if parts[0] == "shfl":
            return (self._shuffled(instruction),)
        if not bits_of(kind) or operands[0].startswith("{"):
            return ()
        if parts[0] in ("mov", "cvta"):
            return (self.value(operands[1], kind),)
        if parts[0] == "cvt":
            return (self._converted(operands[1], kind, parts[-2]),)
        if parts[0] == "selp":
            return (self._selected(operands, kind),)
        values = [self.value(operand, kind) for operand in operands[1:]]
        if parts[0] == "mad" and parts[1] == "wide":
            values[2] = self.value(operands[3], "b64")
        known = [value for value in values if value is not None]
        if len(known) < len(values):
            return (None,)
        return self._compared(parts, known) if parts[0] == "setp" else (_arithmetic(parts, known, kind),)

    def _converted(self, operand: str, to: str, source: str) -> Lanes | None:
        value = self.value(operand, source) if bits_of(source) else None
        return None if value is None else wrapped(value, bits_of(to))

    def _selected(self, operands: Sequence[str], kind: str) -> Lanes | None:
        """Return the first value where the predicate is true, else the second."""
        predicate = self._known.get(operands[3])
        a, b = self.value(operands[1], kind), self.value(operands[2], kind)
        if predicate is None:
            return None
        if predicate.all():
            return a
        if not predicate.any():
            return b
        return None if a is None or b is None else np.where(predicate, a, b)

    def _compared(self, parts: Sequence[str], values: Sequence[Lanes]) -> tuple[Lanes | None, ...]:
        found = compare(parts[1], values[0], values[1], parts[-1])
        if found is not None and parts[2] in ("and", "or", "xor") and len(values) == 3:
            found = BINARY[parts[2]](found, values[2])
        return found, None if found is None else ~found

    def _shuffled(self, instruction: Instruction) -> Lanes | None:
        """Return a broadcast of one lane of each warp; other shuffles move what is loaded or computed of it."""
        value, lane = self.value(instruction.operands[1], "b32"), instruction.operands[2]
        if value is None or instruction.parts[2] != "idx" or not _NUMBER.match(lane):
            return None
        return value if value.size == 1 else np.repeat(value.reshape(-1, WARP)[:, int(lane, 0)], WARP)


def _arithmetic(parts: Sequence[str], values: Sequence[Lanes], kind: str) -> Lanes | None:
    """Return the result of an arithmetic instruction; None if it is not evaluated."""
    base, bits = parts[0], bits_of(kind)
    found: Lanes | None = None
    if base in BINARY and len(values) == 2:
        found = BINARY[base](*values)
    elif base in ("mul", "mad") and parts[1] in ("lo", "wide"):
        found = values[0] * values[1]
        bits = 2 * bits if parts[1] == "wide" else bits
        found = found + values[2] if base == "mad" else found
    elif base == "shl":
        found = shifted_left(values[0], values[1] & 0xFFFFFFFF, bits)
    elif base == "shr":
        found = shifted_right(values[0] & 0xFFFFFFFF if kind == "b32" else values[0], values[1] & 0xFFFFFFFF)
    elif base == "not":
        found = ~values[0]
    elif base == "neg":
        found = -values[0]
    elif base == "abs":
        found = np.abs(values[0])
    elif base == "bfe":
        found = shifted_right(values[0], values[1]) & ((1 << values[2]) - 1)
        if kind[0] == "s":
            top = 1 << np.maximum(values[2] - 1, 0)
            found = (found ^ top) - top
    return None if found is None else found if found.dtype == bool else wrapped(found, bits)
