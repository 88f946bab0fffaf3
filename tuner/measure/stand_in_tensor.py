"""A `torch.Tensor` without memory that says that it is on a GPU, or in the host's memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from tuner.kernels.launch import Place
from tuner.measure.stand_ins import DEVICE


class StandInTensor(torch.Tensor):  # type: ignore[misc]
    """A tensor that computes shapes, strides and dtypes as torch does on its meta device.

    For torch it is on the meta device, so that no operation asks for CUDA. Its elements cannot be read: torch refuses
    that with an error.

    Args:
        meta: a tensor on the meta device.
        place: the memory that it says it is in.
    """

    _meta: torch.Tensor
    _place: Place
    is_meta = False

    @staticmethod
    def __new__(cls, meta: torch.Tensor, place: Place = "device") -> StandInTensor:
        made: StandInTensor = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.shape,
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device="meta",
        )
        made._meta, made._place = meta, place
        return made

    @property
    def device(self) -> torch.device:
        """Device that it says it is on."""
        return torch.device(DEVICE if self.is_cuda else "cpu")

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self._place == "device"

    @property
    def is_cpu(self) -> bool:
        """True in the host's memory."""
        return not self.is_cuda

    def is_pinned(self, device: object = None) -> bool:
        """Return whether it is in page-locked memory of the host."""
        return self._place == "pinned"

    def get_device(self) -> int:
        """Return the index of its device."""
        return 0 if self.is_cuda else -1

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
        stood_in: list[Place] = []

        def meta(tensor: StandInTensor) -> torch.Tensor:
            stood_in.append(tensor._place)
            return tensor._meta

        given = tree_map_only(StandInTensor, meta, (args, dict(kwargs or {})))
        place = stood_in[0] if stood_in else "device"
        if (device := given[1].pop("device", None)) is not None:
            given[1]["device"] = torch.device("meta")
            place = "pageable" if torch.device(device).type == "cpu" else "device"
        return tree_map_only(torch.Tensor, lambda made: StandInTensor(made, place), func(*given[0], **given[1]))
