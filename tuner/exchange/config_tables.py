"""vLLM's and SGLang's tables of tuned configs: a file for a layer and a card, in it configs by M. They hold no timings.

A file's name says what it is about: `E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json`. vLLM writes
`block_shape=[128,128]`, SGLang `[128, 128]`, and either reads only its own. Which Triton it was tuned with is the key
`triton_version` in newer ones of vLLM, and the folder `triton_3_5_1` in SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.claim import NOT_KNOWN, Claim, Refused, TunedFile
from tuner.kernels.spec import Value, dtype_name

OPS: dict[tuple[str, ...], str] = {
    ("E", "N"): "fused_moe",
    ("N", "K"): "block_scaled_mm",
    ("headdim", "dstate"): "selective_state_update",
}
"""By the sizes that a file's name states; M comes from its keys."""
_SUM_REDUCE = r"moe_sum_reduce_(?P<device>.+)_t[0-9]+_h[0-9]+_[a-z0-9]+"
_LEFT_OUT = {"num_warps": 4, "num_stages": 3}
"""What Triton launches with where a config does not say."""
_SIZE = "[0-9]{1,10}"


@dataclass(frozen=True)
class _Layer:
    """What a table is about, but for M."""

    op: str
    sizes: Mapping[str, int]
    device: str
    dtype: str = "bf16"
    """Files that state none serve fp16 too: their projects do not tell the two apart."""
    attributes: Mapping[str, Value] = field(default_factory=dict)


def claims(file: TunedFile) -> Iterator[Claim | Refused] | None:
    """The configs of such a file; None if it is none."""
    stem = file.name.removesuffix(".json")
    if not isinstance(file.document, dict):
        return None
    if (nested := re.fullmatch(_SUM_REDUCE, stem)) is not None:
        return _sum_reduce(file, _card(nested["device"]))
    parts = _parts(stem.removesuffix("_down"))
    if parts is None or "device_name" not in parts:
        return None
    return _rungs(file, file.document, _layer(parts, down=stem.endswith("_down")))


def _parts(stem: str) -> dict[str, str] | None:
    """`E=8,block_shape=[128, 128]` by name; None if that is not how it is written."""
    found = re.findall(r"([A-Za-z_]+)=(\[[0-9, ]*\]|[^,=\[\]]*)(?:,|$)", stem)
    named = dict(found)
    return named if len(named) == len(found) and ",".join(map("=".join, found)) == stem else None


def _layer(parts: Mapping[str, str], *, down: bool) -> _Layer:
    """What a file is about, by its name.

    Raises:
        UsageError: it is about something else than the layers that are known.
    """
    sizes = {name: int(value) for name, value in parts.items() if re.fullmatch(_SIZE, value)}
    op = OPS.get(tuple(sizes))
    if op is None:
        raise UsageError(f"{NOT_KNOWN}: a table by {', '.join(sizes) or 'no size'}")
    others = {name: value for name, value in parts.items() if name not in sizes and name != "device_name"}
    dtype = "bf16"
    if _is_dtype(others.get("dtype", "")):
        dtype = dtype_name(others.pop("dtype"))
    attributes = {"quant" if name == "dtype" else name: _attribute(value) for name, value in others.items()}
    return _Layer(op, sizes, _card(parts["device_name"]), dtype, attributes | ({"down": True} if down else {}))


def _sum_reduce(file: TunedFile, device: str) -> Iterator[Claim | Refused]:
    """`{"8-4096-bfloat16": {"1": config}}`: topk, hidden size and dtype, then M."""
    for key, table in file.document.items():
        found = re.fullmatch(f"({_SIZE})-({_SIZE})-([a-z0-9]+)", key)
        if found is None or not _is_dtype(found[3]) or not isinstance(table, dict):
            yield Refused(file.name, f"{NOT_KNOWN}: {key[:40]!r} is no topk, hidden size and dtype with a table")
        else:
            sizes = {"topk": int(found[1]), "hidden": int(found[2])}
            yield from _rungs(file, table, _Layer("moe_sum_reduce", sizes, device, dtype_name(found[3])))


def _rungs(file: TunedFile, table: Mapping[str, Any], layer: _Layer) -> Iterator[Claim | Refused]:
    folder = re.fullmatch(r"triton_([0-9]+(?:_[0-9]+)*)", file.path.parent.name)
    triton = str(table.get("triton_version", folder[1].replace("_", ".") if folder else ""))
    for key, config in table.items():
        if key == "triton_version":
            continue
        if not re.fullmatch(_SIZE, key) or not isinstance(config, dict):
            yield Refused(file.name, f"{NOT_KNOWN}: {key[:40]!r} is no M with a config")
            continue
        yield Claim(
            file=file.name,
            op=layer.op,
            dims={"M": int(key), **layer.sizes},
            config={**config, **_LEFT_OUT, **config},  # in the file's order, what it leaves out behind
            device=layer.device,
            dtype=layer.dtype,
            attributes=layer.attributes,
            triton=triton,
        )


def _card(name: str) -> str:
    """As the driver calls it."""
    return name.replace("_", " ")


def _attribute(value: str) -> Value:
    """`[128, 128]` and `[128,128]` are `128x128`."""
    if value in ("True", "False"):
        return value == "True"
    return re.sub(", ?", "x", value[1:-1]) if value.startswith("[") else value


def _is_dtype(text: str) -> bool:
    try:
        dtype_name(text)
    except UsageError:
        return False
    return True
