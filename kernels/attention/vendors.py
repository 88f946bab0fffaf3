"""Implementations of attention by torch, two of its back ends by name, and FlashInfer for one row over pages."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import cache
from itertools import accumulate
from typing import Any

from tuner.kernels.attention.reference import computed, mask, scale_of, sequences
from tuner.kernels.attention.sequences import group, has_empty_rows, is_dense, key_lengths, paged, row_lengths
from tuner.kernels.spec import Problem, cdiv

_TENSOR_CORES_FROM = 4
"""Heads of q that share a head of keys from which FlashInfer uses tensor cores, as its documentation advises."""


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run torch: its function for each sequence, or for all if dense, or plain operations.

    It has no cap and no lse, and its back ends differ in rows that see no key.
    """
    import torch

    tensors = {**tensors, **lengths_on_host(problem)}
    if problem["capped"] or problem["lse"] or has_empty_rows(problem):
        return computed(problem, tensors, slice(None), torch.float32)
    if is_dense(problem):
        return {"out": attend(problem, tensors, tensors["q"], tensors["k"], tensors["v"])}
    for each in sequences(problem, tensors, slice(None)):
        q, k, v = (x[None] for x in each[2:])
        each.heads(tensors["out"]).copy_(attend(problem, tensors, q, k, v)[0])
    return {"out": tensors["out"]}


def lengths_on_host(problem: Problem) -> Mapping[str, Any]:
    """Return the bounds and lengths by which the problem is measured, so that none is read from the card.

    A graph can then capture the vendor.
    """
    import torch

    rows, keys = row_lengths(problem), key_lengths(problem)
    bounds = {"cu_q": [0, *accumulate(rows)], "cu_k": [0, *accumulate(keys)], "lengths": keys}
    return {name: torch.tensor(values, device="cpu") for name, values in bounds.items()}


def attend(problem: Problem, tensors: Mapping[str, Any], q: Any, k: Any, v: Any) -> Any:
    """Return what torch computes of dense sequences. Its causal mask is for as many rows as keys; others are stated."""
    from torch.nn.functional import scaled_dot_product_attention

    rows, keys = q.shape[2], k.shape[2]
    is_causal = bool(problem["causal"]) and rows == keys and problem["window"] == "0"
    unseen = None if is_causal else mask(problem, range(rows), rows, keys, q.device)
    grouped = {"enable_gqa": True} if q.shape[1] != k.shape[1] else {}
    scale = scale_of(problem, tensors)
    return scaled_dot_product_attention(q, k, v, attn_mask=unseen, is_causal=is_causal, scale=scale, **grouped)


def cudnn(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run torch's cuDNN back end. Raises NotImplementedError for a problem that it does not take."""
    return of_backend(problem, tensors, "CUDNN_ATTENTION")


def flash(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run torch's FlashAttention back end. Raises NotImplementedError for a problem that it does not take."""
    return of_backend(problem, tensors, "FLASH_ATTENTION")


def of_backend(problem: Problem, tensors: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Run one back end of torch's function."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    if not is_dense(problem) or problem["capped"] or problem["lse"] or has_empty_rows(problem):
        raise NotImplementedError("it is called for dense sequences whose rows see keys, without a cap or an lse")
    with sdpa_kernel(getattr(SDPBackend, name)):
        return vendor(problem, tensors)


def flashinfer(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run FlashInfer's decoding over pages. It is planned once for the contents of a table, as engines do in each step.

    Raises:
        NotImplementedError: the problem is no plain decoding over pages.
    """
    import flashinfer  # noqa: F401  the module that an answer names

    plain = paged(problem) and problem["M"] == 1 and not (problem["packed"] or problem["capped"] or problem["lse"])
    if not plain or problem["window"] != "0" or has_empty_rows(problem):
        raise NotImplementedError("it is called for one row over pages, without a cap, a window or an lse")
    plans, table = _plans(), tensors["table"]
    if table not in plans or plans[table][0] != table._version:  # it was written since
        plans[table] = table._version, _planned(problem, tensors)
    plans[table][1].run(tensors["q"][:, :, 0], (tensors["k"], tensors["v"]), out=tensors["out"][:, :, 0])
    return {"out": tensors["out"]}


@cache
def _plans() -> MutableMapping[Any, tuple[int, Any]]:
    """Return FlashInfer's plans by table, each with the version of its contents and kept as long as the table."""
    from torch.utils.weak import WeakTensorKeyDictionary

    plans: MutableMapping[Any, tuple[int, Any]] = WeakTensorKeyDictionary()
    return plans


def _planned(problem: Problem, tensors: Mapping[str, Any]) -> Any:
    import torch
    from flashinfer import BatchDecodeWithPagedKVCacheWrapper

    q, page, keys = tensors["q"], int(problem["page"]), key_lengths(problem)
    pages = [cdiv(length, page) for length in keys]
    indices = torch.cat([row[:count] for row, count in zip(tensors["table"], pages, strict=True)])
    last = [length - (count - 1) * page for length, count in zip(keys, pages, strict=True)]
    workspace = torch.empty(2**27, dtype=torch.uint8, device=q.device)
    wrapper = BatchDecodeWithPagedKVCacheWrapper(workspace, use_tensor_cores=group(problem) >= _TENSOR_CORES_FROM)
    wrapper.plan(
        torch.tensor([0, *accumulate(pages)], dtype=torch.int32),
        indices.int(),
        torch.tensor(last, dtype=torch.int32),
        *(int(problem[name]) for name in ("H", "G", "D")),
        page,
        q_data_type=q.dtype,
        sm_scale=scale_of(problem, tensors),
    )
    return wrapper
