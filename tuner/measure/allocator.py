"""Memory that Triton requests for tensor descriptors made on the device."""

from __future__ import annotations


def provide_memory() -> None:
    """Let Triton take memory for descriptors from torch's allocator, on the current device, in this process."""
    import torch
    import triton

    def allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)
