"""Reference of the reductions in double precision, and torch's functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.kernels.spec import Problem, cdiv

if TYPE_CHECKING:
    from torch import Tensor

ELEMENTS = 2**25
"""Number of elements that are held in double precision at once."""


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """Compute in steps of a limited number of elements. Of equal values, the first has the index."""
    import torch

    x = tensors["x"]
    if problem["axis"] == "all":
        x = x.reshape(1, -1)
    lines = x[:, rows].t() if problem["axis"] == "rows" else x[rows]
    step = max(1, ELEMENTS // max(1, lines.shape[1]))
    found = [_of_lines(problem["kind"], some) for some in lines.split(step)]
    results = {"out": torch.cat([out for out, _ in found])}
    if "indices" in tensors:
        results["indices"] = torch.cat([indices for _, indices in found])
    return results


def _of_lines(kind: str, lines: Tensor) -> tuple[Tensor, Tensor]:
    """Return the result of each line, and the first index that has it, which counts for max and min only."""
    import torch

    if kind in ("max", "min"):
        parts = lines.split(ELEMENTS, dim=1)
        best = torch.stack([part.amax(1) if kind == "max" else part.amin(1) for part in parts], 1)
        best = best.amax(1) if kind == "max" else best.amin(1)
        index = torch.full_like(best, lines.shape[1], dtype=torch.int64)
        for number, part in enumerate(parts):
            is_best = (part == best[:, None]) | (part.isnan() & best.isnan()[:, None])
            place = torch.arange(part.shape[1], device=part.device) + number * ELEMENTS
            index = torch.minimum(index, torch.where(is_best, place, lines.shape[1]).amin(1))
        return best, index
    parts = lines.split(cdiv(ELEMENTS, lines.shape[0]), dim=1)
    if kind == "logsumexp":
        each = torch.stack([part.double().logsumexp(1) for part in parts], 1)
        out = each.logsumexp(1)
    else:
        out = torch.stack([part.double().sum(1) for part in parts], 1).sum(1)
        out = out / lines.shape[1] if kind == "mean" else out
    return out, out


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch.sum`, `mean`, `amax`, `amin`, `max`, `min` or `logsumexp`."""
    import torch

    x, out, kind = tensors["x"], tensors["out"], problem["kind"]
    dim: Any = {"columns": 1, "rows": 0, "all": (0, 1)}[problem["axis"]]
    if "indices" in tensors:
        found, at = out, tensors["indices"]
        if problem["axis"] == "all":
            x, dim, found, at = x.view(-1), 0, out[0], at[0]
        return (torch.max if kind == "max" else torch.min)(x, dim, out=(found, at))
    function = {"max": torch.amax, "min": torch.amin}.get(kind) or getattr(torch, kind)
    return function(x, dim, out=out[0] if problem["axis"] == "all" else out)
