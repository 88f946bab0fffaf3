"""How many warps of a kernel an SM holds at once, and what keeps it from holding more.

Limits per compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". The
allocation rules: `cuda_occupancy.h` of the CUDA toolkit, which the occupancy calculator uses too.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.kernels.spec import Limits, cdiv

_WARP_REGISTERS, _PARTITIONS = 256, 4
"""A warp's registers come in units of so many, from one of so many partitions of the SM."""
_SHARED_UNIT, _SHARED_RESERVED = 128, 1024
"""Bytes in which shared memory is handed out, and what the system takes of it for each block."""


@dataclass(frozen=True)
class _Multiprocessor:
    warps: int
    blocks: int
    shared_bytes: int


_MULTIPROCESSORS = {
    (8, 0): _Multiprocessor(64, 32, 164 * 1024),
    (8, 6): _Multiprocessor(48, 16, 100 * 1024),
    (8, 9): _Multiprocessor(48, 24, 100 * 1024),
    (9, 0): _Multiprocessor(64, 32, 228 * 1024),
    (10, 0): _Multiprocessor(64, 32, 228 * 1024),
    (12, 0): _Multiprocessor(48, 24, 100 * 1024),
}


@dataclass(frozen=True)
class Occupancy:
    """What is resident on one SM when there are blocks enough."""

    blocks: int
    warps: int
    most_warps: int
    """That the SM can hold."""
    limited_by: tuple[str, ...]
    """What would have to shrink for one more block: `registers`, `shared` memory, `warps`; or the SM's `blocks`."""

    @property
    def share(self) -> float:
        """Of the SM's warps."""
        return self.warps / self.most_warps


def occupancy(limits: Limits, warps: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Of blocks of `warps` warps; None where the card's compute capability is not in our table.

    Args:
        limits: of the card.
        warps: of one block.
        registers: of one thread.
        shared_bytes: of one block, as the compiler reports them.
    """
    card = _MULTIPROCESSORS.get(limits.capability)
    if card is None:
        return None
    of_a_warp = cdiv(max(registers, 1) * limits.warp_size, _WARP_REGISTERS) * _WARP_REGISTERS
    by_registers = limits.registers_per_sm // _PARTITIONS // of_a_warp * _PARTITIONS
    of_a_block = cdiv(shared_bytes + _SHARED_RESERVED, _SHARED_UNIT) * _SHARED_UNIT
    blocks = {
        "registers": by_registers // warps,
        "shared": card.shared_bytes // of_a_block,
        "warps": card.warps // warps,
        "blocks": card.blocks,
    }
    fewest = min(blocks.values())
    return Occupancy(fewest, fewest * warps, card.warps, tuple(name for name, most in blocks.items() if most == fewest))
