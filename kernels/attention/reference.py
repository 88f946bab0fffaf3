"""Reference of attention in double precision."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from math import sqrt
from typing import Any, NamedTuple

from tuner.kernels.attention.sequences import group, paged, window
from tuner.kernels.spec import Problem

CHUNK = 2**25
"""Most scores that the reference holds at once: 256 MB in double precision."""


class Sequence(NamedTuple):
    """A sequence of which some rows are wanted."""

    place: int | slice
    """Index of these rows in a tensor of all wanted rows."""
    wanted: range
    """The wanted rows."""
    q: Any
    """(H, rows, D)"""
    k: Any
    """(G, keys, D)"""
    v: Any
    """(G, keys, D)"""

    def heads(self, x: Any) -> Any:
        """Return the wanted rows of an output, with the heads first."""
        return x[self.place].transpose(0, 1) if isinstance(self.place, slice) else x[self.place]


def scale_of(problem: Problem, tensors: Mapping[str, Any]) -> float:
    """Return the factor of the products of q and k; the scalar 0 stands for 1 / sqrt(D)."""
    return float(tensors["scale"]) or 1 / sqrt(problem["D"])


def sequences(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Iterator[Sequence]:
    """Yield the sequences that have some of the rows; unless they are packed, `rows` are sequences."""
    q = tensors["q"]
    chosen = range(len(q))[rows]
    if not problem["packed"]:
        for b in chosen:
            yield Sequence(b - chosen.start, range(q.shape[2]), q[b], *keys_of(problem, tensors, b))
        return
    for b, (first, end) in enumerate(pairwise(tensors["cu_q"].tolist())):
        some = range(max(first, chosen.start), min(end, chosen.stop))
        if some:
            place, wanted = (range(some.start - start, some.stop - start) for start in (chosen.start, first))
            of_all = q[first:end].transpose(0, 1)
            yield Sequence(slice(place.start, place.stop), wanted, of_all, *keys_of(problem, tensors, b))


def keys_of(problem: Problem, tensors: Mapping[str, Any], b: int) -> tuple[Any, Any]:
    """Return the keys and the values of a sequence, (G, keys, D) each."""
    k, v = tensors["k"], tensors["v"]
    if paged(problem):
        length = int(tensors["lengths"][b])
        pages = tensors["table"][b, : -(-length // k.shape[1])].long()
        return k[pages].flatten(0, 1)[:length].transpose(0, 1), v[pages].flatten(0, 1)[:length].transpose(0, 1)
    if problem["packed"]:
        first, end = tensors["cu_k"][b : b + 2].tolist()
        return k[first:end].transpose(0, 1), v[first:end].transpose(0, 1)
    length = int(tensors["lengths"][b]) if problem["lengths"] else k.shape[2]
    return k[b, :, :length], v[b, :, :length]


def mask(problem: Problem, rows: range, of: int, keys: int, device: Any) -> Any:
    """Return which keys each of some rows sees, of a sequence with `of` rows; None if each sees all."""
    import torch

    across = window(problem)
    if not problem["causal"] and not across:
        return None
    m = torch.arange(rows.start, rows.stop, device=device)[:, None] + keys - of
    n = torch.arange(keys, device=device)
    seen = n <= m if problem["causal"] else n < m + across
    return seen & (n > m - across) if across else seen


def attended(problem: Problem, scale: float, cap: float, q: Any, k: Any, v: Any, rows: range) -> tuple[Any, Any]:
    """Return some rows of a head, and the logarithms of their sums, of q (all, D), k and v (keys, D), in their dtype.

    A row that sees no key, or whose scores are all -inf, is 0; one with a score of inf is NaN.
    """
    import torch

    scores = q[rows.start : rows.stop] @ k.mT * scale
    if problem["capped"]:
        scores = cap * torch.tanh(scores / cap)
    if (seen := mask(problem, rows, len(q), len(k), q.device)) is not None:
        scores = scores.masked_fill(~seen, -torch.inf)
    nothing = (scores == -torch.inf).all(1)
    weights = scores.softmax(1).masked_fill(nothing[:, None], 0)
    logs = scores.logsumexp(1)
    return weights @ v, logs.masked_fill(logs == torch.inf, torch.nan)


def computed(problem: Problem, tensors: Mapping[str, Any], rows: slice, dtype: Any) -> Mapping[str, Any]:
    """Return some rows of each output, computed in a dtype."""
    import torch

    q, scale, cap = tensors["q"], scale_of(problem, tensors), tensors["cap"]
    out = torch.zeros((len(range(len(q))[rows]), *q.shape[1:]), dtype=dtype, device=q.device)
    lse = torch.full(out.shape[:-1], -torch.inf, dtype=dtype, device=q.device)
    for each in sequences(problem, tensors, rows):
        step = max(1, CHUNK // max(1, each.k.shape[1]))
        for h in range(problem["H"]):
            k, v = (x[h // group(problem)].to(dtype) for x in (each.k, each.v))
            for begin in range(0, len(each.wanted), step):
                part = each.wanted[begin : begin + step]
                found, logs = attended(problem, scale, cap, each.q[h].to(dtype), k, v, part)
                at = slice(begin, begin + len(part))
                each.heads(out)[h, at], each.heads(lse)[h, at] = found, logs
    return {"out": out, "lse": lse} if problem["lse"] else {"out": out}


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    import torch

    return computed(problem, tensors, rows, torch.float64)
