"""A function to put in place of torch's `scaled_dot_product_attention`, which calls it for what `attention` lacks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tuner.kernels.attention.sequences import MOST_HEAD_SIZE
from tuner.kernels.calling import is_recording, is_tracing, shape

TORCH = torch._C._nn.scaled_dot_product_attention
"""Torch's function, which `torch.nn.functional` names until it is replaced."""
DTYPES = torch.bfloat16, torch.float16
_log = logging.getLogger("tuner")
_said: set[str] = set()
"""Reasons that were said; each is said once."""


def replacement(attention: Callable[..., Any]) -> Callable[..., Tensor]:
    """Return the function, which calls `attention`."""

    def scaled_dot_product_attention(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Tensor:
        """Return what torch's function of this name returns: by `attention`, or by torch if that serves no such call.

        The logger `tuner` warns of the reason once. Put it in place with
        `torch.nn.functional.scaled_dot_product_attention = tuner.ops.scaled_dot_product_attention`.
        """
        reason = unserved(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if reason is None:
            found: Tensor = attention(query, key, value, causal=is_causal, scale=scale)
            return found
        if not is_tracing() and reason not in _said:
            _said.add(reason)
            _log.warning("scaled_dot_product_attention calls torch's, since %s", reason)
        more = {"enable_gqa": True} if enable_gqa else {}
        result: Tensor = TORCH(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, **more)
        return result

    return scaled_dot_product_attention


def unserved(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    is_causal: bool,
    scale: float | None,
    is_grouped: bool,
) -> str | None:
    """Return why `attention` does not serve a call of torch's function; None if it does."""
    tensors = (q, k, v)
    if any(x.device.type != "cuda" for x in tensors):
        return "attention runs on a GPU"
    if is_recording() and any(x.requires_grad for x in tensors):
        return "attention has no backward pass"
    if mask is not None:
        return "attention takes no mask"
    if dropout:
        return "attention has no dropout"
    if scale is not None and scale <= 0:
        return "attention's scale is above 0"
    return _unserved_shapes(tensors, is_causal, is_grouped)


def _unserved_shapes(tensors: tuple[Tensor, Tensor, Tensor], is_causal: bool, is_grouped: bool) -> str | None:
    q, k, v = tensors
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        return f"attention takes bf16 or fp16, not {', '.join(sorted({str(x.dtype) for x in tensors}))}"
    if any(x.ndim != 4 for x in tensors) or shape(k) != shape(v) or q.shape[0] != k.shape[0]:
        return f"attention takes q (B, H, M, D), k and v (B, G, N, D), not {shape(q)}, {shape(k)} and {shape(v)}"
    if q.shape[3] != k.shape[3] or q.shape[3] % 8 or q.shape[3] > MOST_HEAD_SIZE:
        return f"attention's head size is a multiple of 8 up to {MOST_HEAD_SIZE}, not {q.shape[3]}"
    if q.shape[1] != k.shape[1] and not (is_grouped and k.shape[1] and q.shape[1] % k.shape[1] == 0):
        return f"attention shares {k.shape[1]} heads of k among {q.shape[1]} of q only if enable_gqa says so, evenly"
    if is_causal and q.shape[2] != k.shape[2]:  # torch aligns the mask with the first key, attention with the last
        return "attention's causal mask is torch's only if there are as many rows as keys"
    return None
