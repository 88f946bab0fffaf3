"""Stand-ins for tensors, with which a kernel's `launch` is called to compile: no memory, no CUDA, often no torch.

An import of torch takes 2 s, and the shipped kernels do not need it to compile. So there are two stand-ins: a plain
object, and a subclass of `torch.Tensor` for kernel files that import torch. The plain one turns into the other if
`launch` asks for more than a description, such as a view.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from tuner.kernels.spec import Operand, itemsize, torch_dtype

if TYPE_CHECKING:
    import torch

DEVICE = "cuda:0"
"""Device that a stand-in is on."""


def stand_in(operand: Operand) -> StandIn | torch.Tensor:
    """Return a stand-in for an operand's tensor: a `torch.Tensor` if torch is imported already."""
    return _on_torch(operand) if "torch" in sys.modules else StandIn(operand)


class _Dtype(str):
    """Name of a torch dtype, with what a descriptor reads of it."""

    itemsize: int
    is_floating_point: bool


@dataclass(frozen=True)
class _Device:
    """A device without torch."""

    type: str = "cuda"
    index: int | None = 0

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class StandIn:
    """Description of a tensor that takes its place in a compile: shape, strides, dtype and alignment.

    It answers what a tensor answers without its elements. Other public names of a tensor are answered by one of torch.
    """

    requires_grad = False

    def __init__(self, operand: Operand) -> None:
        self._operand = operand
        self._strides = operand.element_strides
        self.shape = operand.shape
        self.ndim = len(operand.shape)
        self.itemsize = itemsize(operand.dtype)
        self.nbytes = operand.bytes
        self.is_cuda = operand.place == "device"
        self.device = _Device() if self.is_cuda else _Device("cpu", None)
        self.dtype = _Dtype(f"torch.{torch_dtype(operand.dtype)}")
        self.dtype.itemsize = self.itemsize
        self.dtype.is_floating_point = operand.dtype.startswith(("fp", "bf"))

    def stride(self, dim: int | None = None) -> Any:
        """Return the stride along `dim`, in elements, or those of all dims."""
        return self._strides if dim is None else self._strides[dim]

    def size(self, dim: int | None = None) -> Any:
        """Return the size of `dim`, or the shape."""
        return self.shape if dim is None else self.shape[dim]

    def numel(self) -> int:
        """Return the number of elements."""
        return prod(self.shape)

    def dim(self) -> int:
        """Return the number of dims."""
        return self.ndim

    def element_size(self) -> int:
        """Return the bytes of an element."""
        return self.itemsize

    def storage_offset(self) -> int:
        """Return 0."""
        return 0

    def data_ptr(self) -> int:
        """Return the operand's offset: without one, it is aligned as a new tensor is."""
        return self._operand.offset

    def is_pinned(self) -> bool:
        """Return whether it is in page-locked memory of the host."""
        return self._operand.place == "pinned"

    def zero_(self) -> StandIn:
        """Return itself, since a hook may zero an output before each launch."""
        return self

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> Any:
        return _on_torch(self._operand)[index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "tma_")):  # Triton asks for these to recognise other types of arguments
            raise AttributeError(name)
        return getattr(_on_torch(self._operand), name)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call a function of torch with stand-ins that are tensors, for a launch that imports torch itself."""
        from torch.utils._pytree import tree_map_only

        given = tree_map_only(cls, lambda plain: _on_torch(plain._operand), (args, dict(kwargs or {})))
        return func(*given[0], **given[1])


def _on_torch(operand: Operand) -> torch.Tensor:
    """Return a tensor without memory, whose views are such too."""
    import torch

    from tuner.measure.stand_in_tensor import StandInTensor

    dtype = getattr(torch, torch_dtype(operand.dtype))
    meta = torch.empty_strided(operand.shape, operand.element_strides, dtype=dtype, device="meta")
    if operand.offset:
        meta = meta.as_strided(operand.shape, operand.element_strides, operand.offset // itemsize(operand.dtype))
    return StandInTensor(meta, operand.place)
