"""Coefficients of the estimate of products."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the estimate; cycles are those of a multiprocessor.

    Fitted by `benchmarks/gemm_estimate.py` to the eight recorded spaces of an NVIDIA H200 (2026-11-28) and to 754
    configs of 38 other problems on one (2026-11-30), most with roles; Triton 3.6.0. Times of a launch and of joined
    slices, and loads of less than 16 bytes, are fitted to 154 searches of drawn problems, and eleven of products,
    loads, copies and joining to 230 (2026-11-30); all times are those in a graph. None has 8-bit factors: only
    `promoted_cycles` and `scaled_cycles` are fitted to such products, and the rest follows from the card. Rates of
    products are relative to the nominal peak at `mhz`; short products run at a higher clock.
    """

    mhz: float = 1755.0
    """Nominal clock of the multiprocessors."""
    gb_per_s: float = 4000.0
    """Rate of device memory, if the card's was not measured."""
    wgmma: float = 1.03
    """Rate of products by groups of four warps."""
    roles: float = 1.18
    """Rate of products by warps with roles."""
    mma: float = 0.586
    """Rate of products by single warps."""
    fma: float = 0.5
    """Rate of products without tensor cores."""
    shared_bytes: float = 128.0
    """Bytes that products read from shared memory in a cycle."""
    step_cycles: float = 17.2
    """Cycles of a step by groups of warps, beside its products."""
    alone_cycles: float = 42.2
    """The same by one group of warps with roles, of which no other one hides the waiting."""
    mma_step_cycles: float = 31.7
    """Cycles of a step by single warps, beside its products."""
    pointer_cycles: float = 4.89
    """Cycles of a load that a thread starts itself."""
    short_cycles: float = 12.0
    """Cycles that a multiprocessor takes to issue one load instruction of a warp, of less than 16 bytes a thread."""
    store_cycles: float = 9.5
    """Cycles of a store instruction of a warp, of less than 16 bytes a thread."""
    promoted_cycles: float = 100.0
    """Cycles in which a group neither multiplies nor adds when sums leave the tensor cores. This and the next one are
    fitted to the 8-bit products of docs/studies/kernels.md (H200, 2026-11-28)."""
    scaled_cycles: float = 100.0
    """Further ones if these sums have scales."""
    added: float = 128.0
    """Sums that a multiprocessor's threads add in a cycle: one each of its lanes."""
    turned_bytes: float = 8.31
    """Bytes that threads transpose in a cycle, since groups of warps read only 16-bit elements across K."""
    l2_bytes: float = 52.8
    """Bytes that a multiprocessor loads from L2 in a cycle."""
    short_run: float = 0.769
    """Further share of a load's time if its runs have 64 bytes, not 128."""
    long_run: float = 0.0925
    """Share of a load's time that is saved if its runs are far longer than 128 bytes."""
    apart: float = 0.424
    """Share of a load's time that remains if all neighbours load the same data."""
    near: int = 16
    """Number of multiprocessors that are neighbours."""
    in_use: float = 1.22
    """Stages of warps with roles that are read while the others are in flight."""
    latency_cycles: float = 966.0
    """Cycles from a load to its arrival."""
    memory_latency_us: float = 0.346
    """Time of a load from device memory."""
    read_once: float = 0.896
    """Share of the time of device memory that remains if loads state that their data is read once."""
    edge_cycles: float = 115.0
    """Further cycles of a load through descriptors whose box crosses the edge of a factor."""
    start_us: float = 2.65
    """Time of a launch beside its programs."""
    roles_us: float = 0.407
    """Further time of a launch of warps with roles."""
    tile_cycles: float = 694.0
    """Cycles of a tile beside its steps and its store."""
    vector_cycles: float = 376.0
    """Cycles of a tile without tensor cores, beside its steps."""
    store_bytes: float = 38.8
    """Bytes of a tile that a multiprocessor stores in a cycle."""
    shared: float = 1.1
    """Time of the steps of tiles if the last ones are shared evenly, relative to others."""
    join_us: float = 0.703
    """Time in which the slices of a tile wait for each other."""
    sum_bytes: float = 22.4
    """Bytes of partial sums that a multiprocessor writes or reads in a cycle."""
    roles_join_us: float = 0.785
    """Time in which slices wait for each other, of warps with roles."""
    roles_sum_bytes: float = 35.6
    """Bytes of partial sums that warps with roles write or read in a cycle."""
    copy_gb_per_s: float = 3560.0
    """Rate of bytes that copies to and from aligned rows read and write; large ones reach 3,800 (2026-11-30)."""
    copy_us: float = 1.93
    """Time of a launch of copies beside its bytes."""
    sharpness: float = 3.25
    """Exponent of the norm that adds up what overlaps; if infinite, only the slowest counts."""


COEFFICIENTS = Coefficients()
