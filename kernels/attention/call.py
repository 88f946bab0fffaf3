"""`tuner.ops.attention`: its tensors, and the problem that they are."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, Unpack, overload

import torch
from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.attention.definition import KERNEL
from tuner.kernels.attention.for_torch import replacement
from tuner.kernels.attention.sequences import PAGES, check_heads
from tuner.kernels.calling import OpCall, Tensors, empty, empty_like, in_torch, shape

LONGEST_STEP = 2**22
"""Stride from one key to the next, in elements, up to which a block of keys is a 32-bit offset."""


class Options(TypedDict, total=False):
    """Arguments of `attention` that do not decide what it returns."""

    causal: bool
    scale: float | None
    cap: float
    window: int
    lse_out: Tensor | None
    cu_q: Tensor | None
    cu_k: Tensor | None
    longest_q: int
    longest_k: int
    table: Tensor | None
    lengths: Tensor | None


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None, *, lse: Literal[True], **options: Unpack[Options]
) -> tuple[Tensor, Tensor]: ...


@overload
def attention(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor | None = None, *, lse: Literal[False] = ..., **options: Unpack[Options]
) -> Tensor: ...


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    cap: float = 0.0,
    window: int = 0,
    lse: bool = False,
    lse_out: Tensor | None = None,
    cu_q: Tensor | None = None,
    cu_k: Tensor | None = None,
    longest_q: int = 0,
    longest_k: int = 0,
    table: Tensor | None = None,
    lengths: Tensor | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Return softmax(scale q k^T) v for each head, with scores and sums in fp32.

    Dense: q (B, H, M, D), k and v (B, G, N, D), of any strides with D contiguous; others are copied. H / G heads of q
    share a head of k. Packed: q (rows, H, D), k and v (keys, G, D), with the bounds of the sequences. In pages: k and v
    (pages, page, G, D), with a table and lengths; q is dense or packed.

    The last row of a sequence is at its last key, so that row m sees the keys up to m + keys - rows if `causal`. A row
    that sees no key is 0, and its lse is -inf. A NaN in k or v may reach rows of its sequence that do not see it.

    Args:
        q, k, v: bf16 or fp16; D is a multiple of 8 up to 256.
        causal: rows see no later keys.
        scale: above 0; None is 1 / sqrt(D).
        cap: scores become cap * tanh(score / cap); 0 is no cap.
        window: a row sees this number of keys on each side, itself included; 0 is all.
        lse: return the logarithms of the sums too, (B, H, M) or packed (rows, H), in fp32.
        cu_q, cu_k: int32 (B + 1,), first rows and keys of packed sequences, then the numbers of all.
        longest_q, longest_k: rows and keys of the longest packed sequence, or keys of the longest in pages; 0 stands
            for all of them, and costs time.
        table: int32 (B, most pages), pages of each sequence; a page holds 16, 32, 64, 128 or 256 keys.
        lengths: int32 (B,), keys of each sequence, in pages or dense.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("attention", q, "q")
    if not lse:
        lse_out = None
    elif lse_out is None:
        lse_out = empty("attention", lambda q: q.shape[:-1], torch.float32, q=q)
    if (scale is not None and scale <= 0) or cap < 0:
        raise UsageError(f"attention's scale is above 0 and its cap is not below, not {scale} and {cap}; call torch")
    tensors = q, k, v, out, lse_out, cu_q, cu_k, table, lengths
    launch(*tensors, causal, window, bool(cap > 0), longest_q, longest_k, scale or 0.0, cap or 1.0)
    return out if lse_out is None else (out, lse_out)


def shapes(tensors: Tensors, **attributes: Any) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but q and k. Raises UsageError if q, k and the bounds do not fit each other."""
    q, k = tensors["q"], tensors["k"]
    is_packed, is_paged = "cu_q" in tensors, "table" in tensors
    check_dims(tensors)
    heads, shared = q.shape[1], k.shape[2 if is_paged else 1]
    check_heads(heads, shared, q.shape[-1])
    if is_paged and k.shape[1] not in PAGES:
        raise UsageError(f"attention takes pages of {', '.join(map(str, PAGES))} keys, not of {k.shape[1]}; call torch")
    if attributes["window"] < 0:
        raise UsageError(f"attention's window is a number of keys, not {attributes['window']}; 0 is no window")
    B = tensors["cu_q"].shape[0] - 1 if is_packed else q.shape[0]
    longest = attributes["longest_q"]
    if is_packed and longest and q.shape[0] > B * longest:
        raise UsageError(
            f"attention's longest_q is the rows of the longest of {B} sequences, and {longest} are fewer than "
            f"{q.shape[0]} rows have; correct it"
        )
    keys = k.shape if is_packed or is_paged else (B, *k.shape[1:])
    found = {"k": (*keys[:-1], q.shape[-1]), "out": shape(q), "lse": shape(q)[:-1]}
    return {name: tuple(each) for name, each in {**found, "v": found["k"], "cu_k": (B + 1,), "lengths": (B,)}.items()}


def check_dims(tensors: Tensors) -> None:
    """Raise UsageError unless each tensor has its number of dims, and those that go together are there."""
    is_packed, is_paged = "cu_q" in tensors, "table" in tensors
    dims = {"q": 3 if is_packed else 4, "k": 3 if is_packed and not is_paged else 4, "table": 2, "cu_q": 1}
    for name, ndim in dims.items():
        if name in tensors and tensors[name].ndim != ndim:
            kind = "packed" if is_packed else "paged" if is_paged else "dense"
            raise UsageError(
                f"attention takes {name} with {ndim} dims if sequences are {kind}, "
                f"not of shape {shape(tensors[name])}; reshape it"
            )
    if ("cu_k" in tensors) != (is_packed and not is_paged):
        raise UsageError("attention takes cu_q and cu_k together, and with a table cu_q alone; give both, or lengths")
    if is_paged and "lengths" not in tensors:
        raise UsageError("attention takes a table with the lengths of the sequences, and there are none; give lengths")
    if "cu_k" in tensors and "lengths" in tensors:
        raise UsageError("attention takes lengths of dense keys and of those in pages, not of packed ones; omit them")
    if is_paged and "cu_q" not in tensors and tensors["table"].shape[0] != tensors["q"].shape[0]:
        rows, sequences = tensors["table"].shape[0], tensors["q"].shape[0]
        raise UsageError(f"attention's table has a row for each of {sequences} sequences, not {rows}; correct it")


def values(tensors: Tensors, **attributes: Any) -> dict[str, object]:
    """Return dims, dtype and how the sequences lie."""
    q, k = tensors["q"], tensors["k"]
    is_packed, page = "cu_q" in tensors, k.shape[1] if "table" in tensors else 0
    N = tensors["table"].shape[1] * page if page else k.shape[0 if is_packed else 2]
    longest = {"M": attributes["longest_q"], "N": attributes["longest_k"]} if is_packed or page else {}
    found = {
        "B": tensors["cu_q"].shape[0] - 1 if is_packed else q.shape[0],
        "H": q.shape[1],
        "G": k.shape[2 if page else 1],
        "M": q.shape[0 if is_packed else 2],
        "N": N,
        "D": q.shape[-1],
    }
    if is_packed and longest["M"]:
        found["M"] = longest["M"]
    if longest and longest["N"]:
        found["N"] = longest["N"]
    kinds = {"lse": "lse" in tensors, "packed": is_packed, "page": page, "lengths": "lengths" in tensors and not page}
    return found | kinds | {"dtype": q.dtype, "window": str(attributes["window"])}


def accepts(name: str, tensor: Tensor) -> bool:
    """Return whether the kernel takes these strides: any of heads with contiguous elements; those of lse follow."""
    if name in ("q", "k", "v", "out"):
        return bool(tensor.stride(-1) == 1 and max(tensor.stride()[-3:-1]) < LONGEST_STEP)
    return bool(tensor.is_contiguous())


def write_empty(tensors: Tensors, **attributes: Any) -> None:
    """Write the outputs if there are no keys."""
    tensors["out"].zero_()
    if "lse" in tensors:
        tensors["lse"].fill_(-torch.inf)


CALL = OpCall(
    kernel=KERNEL,
    function=attention,
    further=(replacement(attention),),
    takes_tensors="q k v out! lse?! cu_q? cu_k? table? lengths?",
    takes_attributes={"causal": False, "window": 0, "capped": False, "longest_q": 0, "longest_k": 0},
    shapes=shapes,
    values=values,
    own_dtypes={"lse": ("fp32",), **dict.fromkeys(("cu_q", "cu_k", "table", "lengths"), ("int32",))},
    accepts=accepts,
    write_empty=write_empty,
)
launch = in_torch(CALL)
