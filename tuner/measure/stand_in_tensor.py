"""A `torch.Tensor` without memory that says that it is on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tuner.measure.stand_ins import DEVICE


class StandInTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that computes shapes, strides and dtypes as torch does on its meta device.

    For torch it is on the meta device, so that no operation asks for CUDA. Its elements cannot be read: torch refuses
    that with an error.

    Args:
        meta: a tensor on the meta device.
    """

    _meta: torch.Tensor
    device = torch.device(DEVICE)
    is_cuda, is_meta, is_cpu = True, False, False

    @staticmethod
    def __new__(cls, meta: torch.Tensor) -> StandInTensor:
        made: StandInTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device="meta",
        )
        made._meta = meta
        return made

    def get_device(self) -> int:
        """Return the index of its device."""
        return 0

    def data_ptr(self) -> int:
        """Return the offset of the first element in bytes, as if the memory began at address 0."""
        return int(self.storage_offset()) * int(self.element_size())

    def __repr__(self, *, tensor_contents: object = None) -> str:
        return f"StandIn(shape={tuple(self.shape)}, strides={self.stride()}, dtype={self.dtype})"

    @classmethod
    def __torch_dispatch__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        given = tree_map_only(StandInTensor, lambda tensor: tensor._meta, (args, dict(kwargs or {})))
        if "device" in given[1]:
            given[1]["device"] = torch.device("meta")
        return tree_map_only(torch.Tensor, StandInTensor, func(*given[0], **given[1]))
