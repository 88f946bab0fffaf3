"""Sequences of a problem of attention: their rows and keys, which keys a row sees, and the operands that hold them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import ceil
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import Operand, Problem, cdiv

MOST_HEAD_SIZE = 256
"""Largest head size: the accumulators of a tile are D elements wide."""
MOST_ROWS = 2**31 - 2**16
"""Largest number of rows of all heads, counted in 32 bits."""


PAGES = (16, 32, 64, 128, 256)
"""Page sizes, in keys."""


def group(problem: Problem) -> int:
    """Return the number of query heads that share a head of keys."""
    return int(problem["H"]) // int(problem["G"])


def window(problem: Problem) -> int:
    """Return the number of keys that a row sees on each side, itself included; 0 is all of them.

    Raises:
        UsageError: the attribute is no whole number from 0 on.
    """
    text = str(problem["window"])
    if not text.isdecimal() or len(text) > 9:
        raise UsageError(f"attention: window is a whole number from 0 to 999999999, not {text!r}; 0 is no window")
    return int(text)


def paged(problem: Problem) -> bool:
    """Return whether keys and values are in pages."""
    return bool(problem["page"])


def is_dense(problem: Problem) -> bool:
    """Return whether the sequences are of one length and in no pages."""
    return not (problem["packed"] or problem["page"] or problem["lengths"])


def shares(problem: Problem) -> list[float]:
    """Return the length of each sequence relative to the longest, by which a problem is measured: 1 to 1/2."""
    return [1.0 - b * 0.6180339887498949 % 1.0 / 2 for b in range(problem["B"])]


def row_lengths(problem: Problem) -> list[int]:
    """Return the number of rows of each sequence, as a problem is measured."""
    return [ceil(problem["M"] * share) if problem["packed"] else problem["M"] for share in shares(problem)]


def key_lengths(problem: Problem) -> list[int]:
    """Return the number of keys of each sequence, as a problem is measured."""
    if problem["packed"] or problem["lengths"] or paged(problem):
        return [ceil(problem["N"] * share) for share in shares(problem)]
    return [problem["N"]] * problem["B"]


def has_empty_rows(problem: Problem) -> bool:
    """Return whether some row may see no key: a sequence has more rows than keys, and not each row sees each key."""
    lengths = zip(row_lengths(problem), key_lengths(problem), strict=True)
    return (problem["causal"] or window(problem) > 0) and any(rows > keys for rows, keys in lengths)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return the tensors: of dense sequences, of packed ones, or of a cache in pages.

    Dense are q and out (B, H, M, D), k and v (B, G, N, D) and lse (B, H, M). Packed are q and out (rows, H, D), k and v
    (keys, G, D) and lse (rows, H), with the bounds of sequences in cu_q and cu_k (B + 1,). Pages are k and v
    (pages, page, G, D), with the pages of each sequence in table (B, N / page) and its keys in lengths (B,).

    Raises:
        UsageError: heads do not share keys evenly, or there is no such head size.
    """
    check(problem)
    B, H, G, M, N, D = problem.sizes
    dtype, page = problem.dtype, problem["page"]
    rows = (sum(row_lengths(problem)), H) if problem["packed"] else (B, H, M)
    keys: tuple[int, ...] = (B, G, N, D)
    if page:
        keys = (sum(cdiv(length, page) for length in key_lengths(problem)), page, G, D)
    elif problem["packed"]:
        keys = (sum(key_lengths(problem)), G, D)
    found = {"q": Operand((*rows, D), dtype), "k": Operand(keys, dtype), "v": Operand(keys, dtype)}
    found["out"] = Operand((*rows, D), dtype, role="out")
    if problem["lse"]:
        found["lse"] = Operand(rows, "fp32", role="out")
    if problem["packed"]:
        found["cu_q"] = Operand((B + 1,), "int32", fill=partial(fill_bounds, row_lengths(problem)))
    if problem["packed"] and not page:
        found["cu_k"] = Operand((B + 1,), "int32", fill=partial(fill_bounds, key_lengths(problem)))
    if page:
        found["table"] = Operand((B, cdiv(N, page)), "int32", fill=partial(fill_table, key_lengths(problem), page))
    if page or problem["lengths"]:
        found["lengths"] = Operand((B,), "int32", fill=partial(fill_lengths, key_lengths(problem)))
    return found


def check(problem: Problem) -> None:
    """Raise UsageError unless the kernel has such heads, sequences and windows."""
    B, H, G, M, _, D = problem.sizes
    window(problem)
    check_heads(H, G, D)
    if B * H * M > MOST_ROWS:
        raise UsageError(f"attention: B H M is at most {MOST_ROWS}, not {B * H * M}; split the problem")
    if problem["lengths"] and (problem["packed"] or paged(problem)):
        raise UsageError("attention: lengths=True is for dense keys; packed ones have cu_k, and pages have lengths")


def check_heads(heads: int, shared: int, size: int) -> None:
    """Raise UsageError unless the heads of q share those of k evenly, and have a size that the kernel has."""
    if shared and heads % shared:
        raise UsageError(f"attention shares heads of k evenly, not {shared} among {heads} of q; repeat heads of k")
    if size % 8 or size > MOST_HEAD_SIZE:
        raise UsageError(
            f"attention's head size is a multiple of 8 up to {MOST_HEAD_SIZE}, not {size}; pad q, k and v with zeros"
        )


def fill_bounds(lengths: list[int], bounds: Any, generator: Any) -> object:
    """Fill the bounds of packed sequences."""
    import torch

    return bounds.copy_(torch.tensor([0, *lengths]).cumsum(0))


def fill_lengths(lengths: list[int], tensor: Any, generator: Any) -> object:
    """Fill the number of keys of each sequence."""
    import torch

    return tensor.copy_(torch.tensor(lengths))


def fill_table(lengths: list[int], page: int, table: Any, generator: Any) -> object:
    """Fill the table of pages: each page once, in random order, and -1 where a sequence has no more."""
    import torch

    table.fill_(-1)
    pages = torch.randperm(sum(cdiv(length, page) for length in lengths), generator=generator, device=table.device)
    first = 0
    for row, length in zip(table, lengths, strict=True):
        count = cdiv(length, page)
        row[:count] = pages[first : first + count]
        first += count
    return table


def pairs(problem: Problem, rows: int, keys: int) -> int:
    """Return the number of pairs of a row and a key that it sees, in a sequence."""
    across = window(problem)
    ahead = 1 if problem["causal"] else across
    ends = clamped(rows, keys - rows + ahead, keys) if ahead else rows * keys
    return ends - (clamped(rows, keys - rows - across + 1, keys) if across else 0)


def clamped(count: int, first: int, most: int) -> int:
    """Return the sum of `count` successive numbers from `first` on, each limited to 0 and `most`."""
    rising = min(max(0, first + count), most) - min(max(0, first), most)  # numbers that lie between the limits
    lowest = min(max(0, first), most)
    above = count - max(0, -first) - rising if first < most else count
    return rising * lowest + rising * (rising - 1) // 2 + max(0, above) * most


def flops(problem: Problem) -> int:
    """Return four operations for each element of a head, of each pair of a row and a key that it sees."""
    lengths = zip(row_lengths(problem), key_lengths(problem), strict=True)
    return 4 * problem["D"] * problem["H"] * sum(pairs(problem, *each) for each in lengths)
