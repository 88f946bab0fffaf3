"""Contents of the tensors of a call: small integer tensors by value, others by statistics, read in one transfer."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from tuner.captured.call import Contents
from tuner.triton.settings import AutotuneSettings


def contents_of(tensors: Mapping[str, Tensor], values: bool, settings: AutotuneSettings) -> dict[str, Contents]:
    """Return facts about each tensor's elements.

    Args:
        values: whether the elements of small tensors of integers are kept.
    """
    with torch.no_grad():
        found: dict[str, Contents] = {}
        measured: dict[str, Tensor] = {}
        for name, x in tensors.items():
            if x.numel() == 0:
                found[name] = Contents()
            elif x.is_floating_point():
                measured[name] = _of_floats(x, settings.max_sampled)
            elif values and x.numel() <= settings.max_values:
                found[name] = Contents(values=tuple(map(int, x.reshape(-1).tolist())))
            else:
                measured[name] = _of_integers(x)
        return {**found, **_transferred(measured, tensors)}


def _of_floats(x: Tensor, most: int) -> Tensor:
    """Return smallest, largest, mean and standard deviation of the finite elements of a sample."""
    sample = _sampled(x, most)
    sample = sample if sample.dtype in (torch.float32, torch.float64) else sample.float()
    finite = torch.isfinite(sample)
    count = finite.sum()
    low = torch.where(finite, sample, math.inf).amin().double()
    high = torch.where(finite, sample, -math.inf).amax().double()
    mean = torch.where(finite, sample, 0).sum(dtype=torch.float64) / count
    squares = torch.where(finite, sample - mean, 0).double().square().sum()
    return torch.stack((low, high, mean, (squares / count).sqrt()))


def _of_integers(x: Tensor) -> Tensor:
    """Return smallest and largest element, and 1 if the elements of a vector never decrease."""
    x = x.view(torch.uint8) if x.dtype is torch.bool else x
    is_sorted = (x[1:] >= x[:-1]).all() if x.dim() == 1 and x.numel() > 1 else torch.zeros((), device=x.device)
    return torch.stack((x.amin().double(), x.amax().double(), is_sorted.double()))


def _sampled(x: Tensor, most: int) -> Tensor:
    """Return a view of at most `most` elements, evenly apart, so that no copy of a large tensor is made."""
    while x.numel() > most:
        dim = max(range(x.dim()), key=lambda dim: x.shape[dim])
        step = min(-(-x.numel() // most), x.shape[dim])
        x = x[(slice(None),) * dim + (slice(None, None, step),)]
    return x


def _transferred(measured: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> dict[str, Contents]:
    """Return contents from the statistics computed on the devices. Each device is read once."""
    found: dict[str, Contents] = {}
    for device in {x.device for x in measured.values()}:
        here = {name: x for name, x in measured.items() if x.device == device}
        numbers = torch.cat(list(here.values())).tolist()
        for name, x in here.items():
            own, numbers = numbers[: len(x)], numbers[len(x) :]
            found[name] = _as_contents(own, tensors[name].is_floating_point())
    return found


def _as_contents(numbers: list[float], is_float: bool) -> Contents:
    if not is_float:
        low, high, is_sorted = numbers
        return Contents(low=int(low), high=int(high), is_sorted=bool(is_sorted))
    low, high, mean, deviation = numbers
    if not low <= high:  # no element is finite
        return Contents()
    return Contents(low=low, high=high, mean=mean, deviation=deviation)
