"""Way in which a config computes a product, which the estimate of its time depends on."""

from __future__ import annotations

from typing import NamedTuple

from tuner.kernels.shared.roles import Roles


class Way(NamedTuple):
    """Way in which a config computes a product: all that its time depends on, beside the card."""

    sizes: tuple[int, int, int]
    """M, N and K."""
    block: tuple[int, int, int]
    """Rows and columns of a tile, and elements along K of a step."""
    element: int
    """Bytes of an element of the factors."""
    stored: int
    """Bytes of an element of the output."""
    along_k: tuple[bool, bool]
    """True for a, and for b, if it lies along K."""
    swapped: bool
    """True if b is the left factor."""
    warps: int
    """Warps that multiply."""
    stages: int
    """Steps in shared memory."""
    group_m: int
    """Rows of tiles walked together; with roles, a rule decides."""
    tile: Roles | None = None
    """Tile of warps with roles."""
    stays: bool = False
    """True if programs stay on a multiprocessor for tile after tile, and read through descriptors."""
    programs: int = 1
    """Programs that stay on a multiprocessor."""
    vectors: bool = False
    """True if threads multiply, not tensor cores."""
    streamed: bool = False
    """True if b is loaded to registers."""
    sliced: int = 0
    """Number of tiles that are cut along K."""
    slices: int = 1
    """Slices of each of them."""
    shared: bool = False
    """True if programs share the steps of tiles evenly (stream-K)."""
    at_once: tuple[int, int] | None = None
    """Elements of a, and of b, in a load by threads; None if 16 bytes."""
    stored_at_once: int | None = None
    """Elements of the output in a store; None if 16 bytes."""
    read_bytes: int | None = None
    """Bytes of the factors that device memory delivers; None if each of their elements has its own."""
    copied_bytes: int = 0
    """Bytes of operands that are copied to aligned rows, or from them."""
    copy_launches: int = 0
    """Launches of copies."""
    activation: str = "none"
    """Function of each sum."""
    sums: int | None = None
    """Sums in registers at once; None if those of a tile."""
    promoted: bool = False
    """True if sums leave the tensor cores every 128 bytes along K, and threads add them up."""
    scaled: bool = False
    """True if each of these sums has scales."""
