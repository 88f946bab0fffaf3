"""The instructions of one program evaluated on the host, for all its threads at once.

Threads that take different branches go on apart, the lowest instruction first, and join at the same instruction. A
branch on an unknown value leaves its loop, or goes both ways.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from tuner.profiling.in_flight import InFlight
from tuner.profiling.integers import Lanes, bits_of, wrapped
from tuner.profiling.ptx import Code, Instruction
from tuner.profiling.registers import WARP, Registers

_MATRIX_OPS = ("mma", "wgmma", "tcgen05")


@dataclass(frozen=True)
class EvaluateSettings:
    """Extent of an evaluation."""

    steps: int = 60_000
    """Largest number of instructions. Source: 0.3 s of host time."""
    kept: int = 256
    """Number of executions of one instruction whose addresses are kept. Source: chosen; loops repeat their pattern."""


EVALUATE_SETTINGS = EvaluateSettings()


@dataclass
class Site:
    """One memory instruction: the addresses of its executions."""

    instruction: Instruction
    kind: str
    """`load`, `copy` (asynchronous, from global to shared memory), `store` or `atomic`."""
    space: str
    """`global` or `shared`."""
    width: int
    """Bytes of a thread."""
    addresses: list[Lanes] = field(default_factory=list)
    """By execution: addresses by warp and lane, -1 for an inactive lane."""
    executions: int = 0
    """Number of executions; more than the kept ones if there are many."""
    lanes: int = 0
    """Number of active lanes over all executions."""
    unknown: int = 0
    """Number of executions whose addresses cannot be computed."""


@dataclass(frozen=True)
class Evaluation:
    """Accesses and loads of one program, as far as it is evaluated."""

    sites: tuple[Site, ...]
    steps: int
    complete: bool
    """False if it has more instructions than were evaluated."""
    bytes_in_flight: int
    """Most bytes that its loads have in flight at once."""
    bulk_bytes: int
    """Bytes that it reads through tensor descriptors."""
    uses_tensor_cores: bool
    unknown_branches: int = 0
    """Number of branches that depend on data: a loop is evaluated once, of other branches both ways."""


class _Threads:
    """Threads at one instruction."""

    def __init__(self, place: int, mask: Lanes) -> None:
        self.place, self.mask = place, mask
        self.whole = bool(mask.all())


class Program:
    """One program of a kernel's grid.

    Args:
        arguments: value of each parameter of the code, by name; None or absent is unknown.
        grid: size of the grid.
        program: its index in the grid.
        shared_bytes: its shared memory; None if it is unknown.
    """

    def __init__(
        self,
        code: Code,
        arguments: Mapping[str, int | None],
        grid: Sequence[int],
        program: Sequence[int],
        settings: EvaluateSettings = EVALUATE_SETTINGS,
        *,
        shared_bytes: int | None = None,
    ) -> None:
        self._code, self._arguments, self._settings = code, arguments, settings
        self._registers = Registers(code.threads, grid, program)
        self._sites: dict[int, Site] = {}
        self._flight = InFlight(shared_bytes)
        self._bulk_bytes = 0
        self._dispatched: set[Instruction] = set()
        self._waits: set[str] = set()  # predicates of barriers
        self._unknown: set[int] = set()
        self._uses_tensor_cores = False

    def run(self) -> Evaluation:
        """Evaluate the program until it ends or the number of instructions is reached."""
        groups = [_Threads(0, np.ones(self._code.threads, bool))]
        steps = 0
        while groups and steps < self._settings.steps:
            group = min(groups, key=lambda each: each.place)
            for other in [each for each in groups if each is not group and each.place == group.place]:
                groups.remove(other)
                group.mask = group.mask | other.mask
                group.whole = bool(group.mask.all())
            if group.place >= len(self._code.instructions):
                groups.remove(group)
                continue
            steps += 1
            groups += self._step(group)
            if group.place < 0:
                groups.remove(group)
        return Evaluation(
            tuple(self._sites.values()),
            steps,
            not groups,
            self._flight.most,
            self._bulk_bytes,
            self._uses_tensor_cores,
            len(self._unknown),
        )

    def _step(self, group: _Threads) -> list[_Threads]:
        """Execute an instruction and move the threads on; a negative place ends them. Return threads that part."""
        place, instruction = group.place, self._code.instructions[group.place]
        group.place += 1
        base = instruction.parts[0]
        if base == "bra":
            return self._branch(group, place, instruction)
        if base == "brx":
            return self._dispatch(group, instruction)
        active = self._active(group, instruction)
        if base in ("ret", "exit"):
            if instruction.guard and self._registers.get(instruction.guard) is None:
                self._unknown.add(place)
                return []
            rest = group.mask & ~active
            group.mask, group.whole = rest, False
            if not rest.any():
                group.place = -1
            return []
        if base in _MATRIX_OPS:
            self._uses_tensor_cores = True
        if base == "mov":
            self._flight.move(instruction.reads, instruction.writes)
        else:
            self._flight.need(instruction.reads)
            self._flight.overwrite(instruction.writes)
        if base in ("ld", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "mbarrier"):
            self._memory(place, instruction, active)
        else:
            self._registers.execute(instruction, active, everywhere=group.whole and not instruction.guard)
        return []

    def _branch(self, group: _Threads, place: int, instruction: Instruction) -> list[_Threads]:
        target = self._code.labels.get(instruction.operands[-1], -1)
        if not instruction.guard:
            group.place = target
            return []
        guard = self._registers.get(instruction.guard)
        if guard is None:
            if instruction.guard not in self._waits:
                self._unknown.add(place)
            return [_Threads(target, group.mask.copy())] if target > place else []
        taken = np.broadcast_to(~guard if instruction.negated else guard, group.mask.shape) & group.mask
        if not taken.any():
            return []
        if taken.sum() == group.mask.sum():
            group.place = target
            return []
        group.mask, group.whole = group.mask & ~taken, False
        return [_Threads(target, taken)]

    def _dispatch(self, group: _Threads, instruction: Instruction) -> list[_Threads]:
        """Go to all targets of a jump by a table, in the first visit: each is the role of some warps of the group."""
        targets = self._code.tables.get(instruction.operands[1], ())
        first, self._dispatched = instruction not in self._dispatched, {*self._dispatched, instruction}
        group.place = -1
        return [_Threads(self._code.labels[name], group.mask) for name in dict.fromkeys(targets)] if first else []

    def _active(self, group: _Threads, instruction: Instruction) -> Lanes:
        """Return the threads in which an instruction has an effect; an unknown guard is true."""
        guard = self._registers.get(instruction.guard) if instruction.guard else None
        return group.mask if guard is None else group.mask & (~guard if instruction.negated else guard)

    def _memory(self, place: int, instruction: Instruction, active: Lanes) -> None:
        parts, operands = instruction.parts, instruction.operands
        if parts[1:2] == ("param",):
            value = self._arguments.get(operands[1].strip("[] "))
            self._registers.set(
                operands[0], None if value is None else wrapped(np.array([value]), bits_of(parts[-1]) or 64)
            )
            return
        for name in instruction.writes:
            self._registers.set(name, None)
        if parts[0] == "mbarrier":
            self._barrier(instruction, active)
        elif parts[0] == "cp":
            self._copy(place, instruction, active)
        elif parts[0] in ("ldmatrix", "stmatrix"):
            load = parts[0] == "ldmatrix"
            rows = 8 * next((int(part[1:]) for part in parts if part in ("x1", "x2", "x4")), 1)
            self._access(
                place, instruction, operands[load], "shared", 16, active & (self._registers.lane < rows), load=load
            )
        elif "global" in parts or any(part.startswith("shared") for part in parts):
            load = parts[0] in ("ld", "atom")
            space = "global" if "global" in parts else "shared"
            kind = "atomic" if parts[0] in ("atom", "red") else ""
            self._access(place, instruction, operands[load], space, instruction.width, active, load=load, kind=kind)
            if space == "global" and parts[0] == "ld":
                self._flight.load(int(active.sum()) * instruction.width, instruction.writes)

    def _barrier(self, instruction: Instruction, active: Lanes) -> None:
        if "expect_tx" in instruction.parts:
            bytes = self._registers.value(instruction.operands[-1], "u32")
            expected = 0 if bytes is None else int(np.broadcast_to(bytes, active.shape)[active].sum())
            self._bulk_bytes += expected
            if expected:
                self._flight.expect(expected, self._barrier_at(instruction.operands[-2], active))
        elif "try_wait" in instruction.parts:
            self._waits.add(instruction.operands[0])
            self._flight.wait_barrier(self._barrier_at(instruction.operands[1], active))

    def _barrier_at(self, operand: str, active: Lanes) -> int | None:
        """Return the address of a barrier in the first active thread; None if it is unknown."""
        address = self._registers.address(operand)
        return None if address is None or not active.any() else int(np.broadcast_to(address, active.shape)[active][0])

    def _copy(self, place: int, instruction: Instruction, active: Lanes) -> None:
        """Execute an asynchronous copy of some bytes a thread; those by descriptor are counted at their barrier."""
        parts, operands = instruction.parts, instruction.operands
        if "commit_group" in parts and "bulk" not in parts:
            self._flight.commit()
        elif "wait_group" in parts and "bulk" not in parts:
            self._flight.wait_group(int(operands[0], 0))
        elif "wait_all" in parts:
            self._flight.wait_group(0)
        elif "bulk" not in parts and len(operands) >= 3:
            read = self._registers.value(operands[3], "u32") if len(operands) > 3 else None
            width = int(operands[2], 0)
            reading = active if read is None else active & (read > 0)
            self._access(place, instruction, operands[1], "global", width, reading, load=True, kind="copy")
            self._access(-1 - place, instruction, operands[0], "shared", width, active, load=False)
            self._flight.copy(int(reading.sum()) * width)

    def _access(
        self,
        key: int,
        instruction: Instruction,
        operand: str,
        space: str,
        width: int,
        active: Lanes,
        *,
        load: bool,
        kind: str = "",
    ) -> None:
        """Note one execution of a memory instruction."""
        count = int(active.sum())
        if not count:
            return
        if key not in self._sites:
            self._sites[key] = Site(instruction, kind or ("load" if load else "store"), space, width)
        site = self._sites[key]
        site.executions += 1
        site.lanes += count
        address = self._registers.address(operand)
        if address is None:
            site.unknown += 1
        elif len(site.addresses) < self._settings.kept:
            site.addresses.append(np.where(active, address, -1).reshape(-1, WARP))
