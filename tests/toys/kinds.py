"""Operations of models: a reference in fp64, what a vendor's eager code computes, and what a right kernel computes.

Each operation is written once, over a function `r` that rounds intermediate results: not at all for the reference, to
the inputs' dtype for a vendor in eager mode, and to fp32 for a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from tuner.kernels.spec import Operand

Values = dict[str, torch.Tensor]
Round = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Kind:
    """One operation."""

    operands: dict[str, Operand]
    compute: Callable[[Values, Round], Values]
    rounding: float = 0.0
    """As a kernel's author states it."""
    coarse: tuple[str, ...] = ()
    """Outputs in which a factor of 1.02 is rounding: 8-bit floats."""


def indices(limit: int) -> Callable[[Any, Any], None]:
    """Return a fill of indices below `limit`."""
    return lambda tensor, generator: tensor.random_(0, limit, generator=generator)


def decays(tensor: Any, generator: Any) -> None:
    """Fill with log decays that add up along the last dim."""
    tensor.copy_(torch.rand(tensor.shape, generator=generator).mul_(0.1).cumsum(-1).neg_())


def attention(v: Values, r: Round) -> Values:
    s = r(v["q"] @ v["k"].T) * 64**-0.5
    lse = s.logsumexp(-1)
    return {"out": r(r((s - lse[:, None]).exp()) @ v["v"]), "lse": r(lse)}


def moe(v: Values, r: Round) -> Values:
    gates = r(r(v["x"] @ v["router"].T).softmax(-1))
    weights, experts = gates.topk(2, dim=-1)
    hidden = r(torch.einsum("td,ehd->teh", v["x"], v["w"]))
    chosen = hidden.gather(1, experts[:, :, None].expand(-1, -1, hidden.shape[2]))
    return {"out": r((chosen * weights[:, :, None]).sum(1))}


def quantize_int8(v: Values, r: Round) -> Values:
    scale = r(v["x"].abs().amax(1) / 127)
    return {"q": r(v["x"] / scale[:, None]).round().clamp(-127, 127), "scale": scale}


def quantize_fp8(v: Values, r: Round) -> Values:
    scale = r(v["x"].abs().amax(1) / 448)
    return {"q": r(v["x"] / scale[:, None]), "scale": scale}


def int8_gemm(v: Values, r: Round) -> Values:
    return {"out": v["a"].double() @ v["b"].double()}


def rope(v: Values, r: Round) -> Values:
    half = v["x"].shape[-1] // 2
    a, b = v["x"][:, :half], v["x"][:, half:]
    cos, sin = r(v["angle"].cos()), r(v["angle"].sin())
    return {"out": torch.cat([r(r(a * cos) - r(b * sin)), r(r(b * cos) + r(a * sin))], -1)}


def cross_entropy(v: Values, r: Round) -> Values:
    lse = r(v["x"].logsumexp(-1))
    chosen = v["x"].gather(1, v["target"].long()[:, None])[:, 0]
    return {"loss": r(lse - chosen), "lse": lse, "dx": r(r(v["x"].softmax(-1)) / len(lse))}


def chunk_state(v: Values, r: Round) -> Values:
    scale = r((v["dA"][:, -1:] - v["dA"]).exp())
    return {"states": torch.einsum("lp,hln->hpn", v["x"], r(v["b"] * scale[:, :, None]))}


def group_norm(v: Values, r: Round) -> Values:
    x = v["x"].reshape(v["x"].shape[0], 8, -1)
    mean, rstd = r(x.mean(-1)), r((x.var(-1, unbiased=False) + 1e-5).rsqrt())
    y = r(r(x - mean[..., None]) * rstd[..., None]).reshape(v["x"].shape)
    return {"y": r(y * v["w"]), "mean": mean, "rstd": rstd}


def embedding_gradient(v: Values, r: Round) -> Values:
    rows = v["dy"].new_zeros(32, v["dy"].shape[1])
    for token, row in zip(v["tokens"].tolist(), v["dy"], strict=True):
        rows[token] = r(rows[token] + row)  # as fp16 atomics do
    return {"dw": rows}


def mask(v: Values, r: Round) -> Values:
    return {"out": v["x"] > v["limit"]}


def argmax(v: Values, r: Round) -> Values:
    return {"value": v["x"].amax(-1), "index": v["x"].argmax(-1)}


def swiglu(v: Values, r: Round) -> Values:
    gate = r(v["gate"] * r(v["gate"].sigmoid()))
    return {"out": r(gate * v["up"])}


def distinct(tensor: Any, generator: Any) -> None:
    """Fill each row with a permutation times a power of two, so that there are no ties."""
    for index, row in enumerate(tensor):
        row.copy_(torch.randperm(len(row), generator=generator) * 2.0 ** (index % 5))


def kinds(dtype: str) -> dict[str, Kind]:
    """Return the operations in a 16-bit dtype."""
    step = 2.0**-7 if dtype == "bf16" else 2.0**-10
    tensor = lambda *shape: Operand(shape, dtype)  # noqa: E731
    out = lambda *shape, dtype=dtype: Operand(shape, dtype, "out")  # noqa: E731
    return {
        "attention": Kind(
            {
                **{name: tensor(128, 64) for name in ("q", "k", "v")},
                "out": out(128, 64),
                "lse": out(128, dtype="fp32"),
            },
            attention,
        ),
        "moe": Kind(
            {"x": tensor(64, 32), "router": tensor(8, 32), "w": tensor(8, 48, 32), "out": out(64, 48)},
            moe,
        ),
        "quantize_int8": Kind(
            {"x": tensor(64, 256), "q": out(64, 256, dtype="int8"), "scale": out(64, dtype="fp32")},
            quantize_int8,
            rounding=step,
        ),
        "quantize_fp8": Kind(
            {"x": tensor(64, 256), "q": out(64, 256, dtype="fp8e4m3"), "scale": out(64, dtype="fp32")},
            quantize_fp8,
            coarse=("q",),
        ),
        "int8_gemm": Kind(
            {
                "a": Operand((64, 512), "int8"),
                "b": Operand((512, 32), "int8"),
                "out": out(64, 32, dtype="int32"),
            },
            int8_gemm,
        ),
        "rope": Kind({"x": tensor(64, 64), "angle": tensor(64, 32), "out": out(64, 64)}, rope),
        "cross_entropy": Kind(
            {
                "x": tensor(64, 512),
                "target": Operand((64,), "int64", fill=indices(512)),
                "loss": out(64, dtype="fp32"),
                "lse": out(64, dtype="fp32"),
                "dx": out(64, 512),
            },
            cross_entropy,
        ),
        "chunk_state": Kind(
            {
                "x": tensor(256, 16),
                "b": tensor(4, 256, 32),
                "dA": Operand((4, 256), "fp32", fill=decays),
                "states": out(4, 16, 32, dtype="fp32"),
            },
            chunk_state,
            rounding=step,
        ),
        "group_norm": Kind(
            {
                "x": tensor(32, 256),
                "w": tensor(256),
                "y": out(32, 256),
                "mean": out(32, 8, dtype="fp32"),
                "rstd": out(32, 8, dtype="fp32"),
            },
            group_norm,
        ),
        "embedding_gradient": Kind(
            {
                "dy": tensor(512, 32),
                "tokens": Operand((512,), "int64", fill=indices(32)),
                "dw": out(32, 32),
            },
            embedding_gradient,
        ),
        "mask": Kind({"x": tensor(64, 64), "limit": tensor(64, 64), "out": out(64, 64, dtype="bool")}, mask),
        "argmax": Kind(
            {
                "x": Operand((64, 200), dtype, fill=distinct),
                "value": out(64),
                "index": out(64, dtype="int64"),
            },
            argmax,
        ),
        "swiglu": Kind({"gate": tensor(64, 128), "up": tensor(64, 128), "out": out(64, 128)}, swiglu),
    }
