"""The occupancy of an SM by a kernel, and the resource that limits it.

Sources: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", for the limits, and
`cuda_occupancy.h` of the CUDA toolkit for the allocation rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.kernels.spec import Limits, cdiv

_WARP_REGISTERS, _PARTITIONS = 256, 4
"""Allocation unit of a warp's registers, and number of partitions of an SM's register file."""
_SHARED_UNIT, _SHARED_RESERVED = 128, 1024
"""Allocation unit of shared memory and shared memory that the system reserves for each block, in bytes."""


@dataclass(frozen=True)
class _Multiprocessor:
    """Maximum of resident warps and blocks, and shared memory in bytes."""

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
    """Blocks and warps that one SM holds at once, if the grid has enough."""

    blocks: int
    warps: int
    most_warps: int
    """Maximum number of warps of the SM."""
    limited_by: tuple[str, ...]
    """Resources that leave no room for one more block: `registers`, `shared` (memory), `warps` or `blocks`."""

    @property
    def share(self) -> float:
        """Resident warps over the maximum of the SM."""
        return self.warps / self.most_warps


def occupancy(limits: Limits, warps: int, registers: int, shared_bytes: int) -> Occupancy | None:
    """Return the occupancy of a kernel, or None if the card's compute capability is unknown.

    Args:
        limits: limits of the card.
        warps: number of warps of a block.
        registers: number of registers of a thread.
        shared_bytes: shared memory of a block, in bytes, as the compiler reports it.
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
