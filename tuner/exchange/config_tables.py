"""vLLM's and SGLang's tables of tuned configs: one file for a layer on a card, with configs by M and without timings.

The name of a file states the layer: `E=8,N=7168,device_name=NVIDIA_H100_80GB_HBM3,dtype=fp8_w8a8.json`. vLLM writes
`block_shape=[128,128]`, SGLang `[128, 128]`, and each finds only its own spelling. The Triton version is the key
`triton_version` in newer files of vLLM, and the folder `triton_3_5_1` in SGLang.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.folder import relative_path
from tuner.exchange.imported import UNKNOWN_FORMAT, ImportedConfig, ImportFile, Skipped
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Problem, Value, dtype_name, torch_dtype
from tuner.lookup.ranking import serving
from tuner.records import StoredAnswer

STYLES = ("vllm", "sglang")
_OPS: dict[tuple[str, ...], str] = {
    ("E", "N"): "fused_moe",
    ("N", "K"): "block_scaled_mm",
    ("headdim", "dstate"): "selective_state_update",
}
"""Ops of both projects by the sizes in a file's name; M comes from the keys in the file."""
_SUM_REDUCE = r"moe_sum_reduce_(?P<device>.+)_t[0-9]+_h[0-9]+_[a-z0-9]+"
_KNOBS = {"BLOCK_M": "BLOCK_SIZE_M", "BLOCK_N": "BLOCK_SIZE_N", "BLOCK_K": "BLOCK_SIZE_K", "GROUP_M": "GROUP_SIZE_M"}
"""Names of the usual knobs in the kernels of both projects."""
_ATTRIBUTES = ("quant", "block_shape", "per_channel_quant", "cache_dtype", "down")
"""Attributes that the names of files state."""
_SIZE = "[0-9]{1,10}"


@dataclass(frozen=True)
class Layer:
    """Problems of one table, without M."""

    op: str
    sizes: Mapping[str, int]
    device: str
    """Name of the card; empty if the parts state none."""
    dtype: str = "bf16"
    """Files without a dtype serve bf16 and fp16 alike."""
    attributes: Mapping[str, Value] = field(default_factory=dict)


def imported_configs(file: ImportFile) -> Iterator[ImportedConfig | Skipped] | None:
    """Return the configs of a table, or None if the file is not one.

    Raises:
        UsageError: The table is of a layer that is not known.
    """
    stem = file.name.removesuffix(".json")
    if not isinstance(file.document, dict):
        return None
    if (nested := re.fullmatch(_SUM_REDUCE, stem)) is not None:
        return _sum_reduce(file, _device_name(nested["device"]))
    parts = _parts(stem.removesuffix("_down"))
    if parts is None or "device_name" not in parts:
        return None
    return _configs(file, file.document, layer_of(parts, down=stem.endswith("_down")))


def to_tables(answers: Iterable[StoredAnswer], style: str) -> tuple[dict[str, Any], list[Skipped]]:
    """Return tables by their path in a folder, and the answers that no table can hold, by problem.

    If several answers have the same place, the one that serves it is written. Replayed answers are left out: a table
    has no field that marks them. An op that neither project has gets a folder of its own.

    Args:
        style: One of `STYLES`: vLLM's names, with `triton_version` in the file if all answers of a table agree; or
            SGLang's, in one folder for each Triton version.
    """
    places: dict[_Place, list[StoredAnswer]] = {}
    skipped = list[Skipped]()
    for stored in answers:
        try:
            places.setdefault(_place(stored, style), []).append(stored)
        except UsageError as error:
            skipped.append(Skipped(stored.answer.problem.text, str(error)))
    tables: dict[str, dict[int, StoredAnswer]] = {}
    for place, several in places.items():
        tables.setdefault(place.path, {})[place.m] = serving(several)
    return {path: dict(_document(by_m, style)) for path, by_m in tables.items()}, skipped


def table_of(layer: Layer, answers: Iterable[StoredAnswer], triton: str = "") -> dict[int, dict[str, Value]]:
    """Return the configs of one layer by M, with the knobs' names in the kernels of both projects.

    If several answers have the same M, the one that serves it is taken. Replayed answers are left out. Answers may have
    further dims and attributes, such as K, which no table states, if all of them agree.

    Args:
        answers: Answers of one op on one device.
        triton: Version that they are compared with; empty: none.

    Raises:
        UsageError: The answers are of several layers that tables do not distinguish.
    """
    layers: dict[tuple[tuple[str, Value], ...], dict[int, list[StoredAnswer]]] = {}
    for stored in answers:
        problem = stored.answer.problem
        unstated = _unstated(layer, problem)
        if stored.provenance.recorded is None and unstated is not None:
            layers.setdefault(unstated, {}).setdefault(dict(problem.dims)["M"], []).append(stored)
    if len(layers) > 1 and () not in layers:
        several = " and ".join(" ".join(f"{name}={value}" for name, value in each) for each in list(layers)[:2])
        raise UsageError(f"tables do not distinguish {several} of {layer.op}; tuner forget retires answers of one")
    by_m = layers.get(()) or next(iter(layers.values()), {})
    return {m: _their_knobs(serving(several, triton or None)) for m, several in sorted(by_m.items())}


def _unstated(layer: Layer, problem: Problem) -> tuple[tuple[str, Value], ...] | None:
    """Return the dims and attributes of a problem that no table states, or None if it is not of the layer.

    An attribute that is `none` or False counts as left out.
    """
    dims, attributes = dict(problem.dims), {key: value for key, value in problem.attributes if _is_set(value)}
    stated = {key: attributes.pop(key) for key in _ATTRIBUTES if key in attributes}
    sizes = {name: dims.pop(name) for name in layer.sizes if name in dims}
    is_of_layer = (problem.op, sizes, problem.dtype, stated) == (layer.op, layer.sizes, layer.dtype, layer.attributes)
    if not is_of_layer or dims.pop("M", None) is None:
        return None
    return (*dims.items(), *attributes.items())


def _is_set(value: Value) -> bool:
    return value not in ("none", False)


def _parts(stem: str) -> dict[str, str] | None:
    """Return the parts of `E=8,block_shape=[128, 128]` by name, or None if a file's name has another form."""
    found = re.findall(r"([A-Za-z_]+)=(\[[0-9, ]*\]|[^,=\[\]]*)(?:,|$)", stem)
    named = dict(found)
    return named if len(named) == len(found) and ",".join(map("=".join, found)) == stem else None


def layer_of(parts: Mapping[str, str], *, down: bool = False) -> Layer:
    """Return the layer that the parts of a file's name state: `{"E": "8", "N": "7168", "dtype": "fp8_w8a8"}`.

    Raises:
        UsageError: Its sizes are not those of a known layer.
    """
    sizes = {name: int(value) for name, value in parts.items() if re.fullmatch(_SIZE, value)}
    op = _OPS.get(tuple(sizes))
    if op is None:
        known = "; ".join(map(", ".join, _OPS))
        raise UsageError(f"{UNKNOWN_FORMAT}: tables are by {known}, not by {', '.join(sizes) or 'no size'}")
    others = {name: value for name, value in parts.items() if name not in sizes and name != "device_name"}
    dtype = "bf16"
    if _is_dtype(others.get("dtype", "")):
        dtype = dtype_name(others.pop("dtype"))
    attributes = {"quant" if name == "dtype" else name: _attribute(value) for name, value in others.items()}
    device = _device_name(parts.get("device_name", ""))
    return Layer(op, sizes, device, dtype, attributes | ({"down": True} if down else {}))


def _sum_reduce(file: ImportFile, device: str) -> Iterator[ImportedConfig | Skipped]:
    """Yield the configs of `{"8-4096-bfloat16": {"1": config}}`: by topk, hidden size and dtype, then by M."""
    for key, table in file.document.items():
        found = re.fullmatch(f"({_SIZE})-({_SIZE})-([a-z0-9]+)", key)
        if found is None or not _is_dtype(found[3]) or not isinstance(table, dict):
            yield Skipped(file.shown, f"{UNKNOWN_FORMAT}: a key is TOPK-HIDDEN-DTYPE with a table, not {key[:40]!r}")
        else:
            sizes = {"topk": int(found[1]), "hidden": int(found[2])}
            yield from _configs(file, table, Layer("moe_sum_reduce", sizes, device, dtype_name(found[3])))


def _configs(file: ImportFile, table: Mapping[str, Any], layer: Layer) -> Iterator[ImportedConfig | Skipped]:
    folder = re.fullmatch(r"triton_([0-9]+(?:_[0-9]+)*)", file.path.parent.name)
    triton = str(table.get("triton_version", folder[1].replace("_", ".") if folder else ""))
    for key, config in table.items():
        if key == "triton_version":
            continue
        if not re.fullmatch(_SIZE, key):
            yield Skipped(file.shown, f"{UNKNOWN_FORMAT}: a key is an M, not {key[:40]!r}")
            continue
        if not isinstance(config, dict):
            yield Skipped(
                file.shown, f"a config is an object with a value for each knob, not {shown(config)}", f"M={key}"
            )
            continue
        yield ImportedConfig(
            file=file.shown,
            op=layer.op,
            dims={"M": int(key), **layer.sizes},
            config=config,
            device=layer.device,
            dtype=layer.dtype,
            attributes=layer.attributes,
            triton=triton,
            at=f"M={key}",
        )


def _device_name(text: str) -> str:
    """Return a card's name as the driver spells it."""
    return text.replace("_", " ")


def _attribute(value: str) -> Value:
    """Return an attribute's value: `[128, 128]` and `[128,128]` are `128x128`."""
    if value in ("True", "False"):
        return value == "True"
    return re.sub(", ?", "x", value[1:-1]) if value.startswith("[") else value


def _is_dtype(text: str) -> bool:
    try:
        dtype_name(text)
    except UsageError:
        return False
    return True


@dataclass(frozen=True)
class _Place:
    """Place of an answer: a file's path and a key in it."""

    path: str
    m: int


def _place(stored: StoredAnswer, style: str) -> _Place:
    """Return the place of an answer.

    Raises:
        UsageError: A table cannot hold it.
    """
    provenance, problem = stored.provenance, stored.answer.problem
    triton = provenance.environment.triton
    if provenance.recorded is not None:
        raise UsageError(f"a table cannot mark an answer as replayed, and this one is from {provenance.recorded}")
    if "M" not in dict(problem.dims):
        raise UsageError(f"a table has a config for each M, and {problem.op} has no dim M")
    if style == "sglang" and not triton:
        raise UsageError("SGLang keeps tables by Triton version, and the version of this answer is unknown")
    parts = [] if style == "vllm" else [f"triton_{triton.replace('.', '_')}"]
    parts += [] if problem.op in _OPS.values() else [problem.op]
    parts += [f"{_stem(problem, provenance.device.name, style)}.json"]
    return _Place(relative_path(*parts), dict(problem.dims)["M"])


def _stem(problem: Problem, device: str, style: str) -> str:
    """Return the name of a table's file without its suffix.

    Raises:
        UsageError: The problem has both a quantization and a dtype other than bf16.
    """
    sizes = {name: size for name, size in problem.dims if name != "M"}
    order = next((names for names in _OPS if set(names) == set(sizes)), tuple(sizes))
    stated = {name: value for name, value in problem.stated.items() if name not in dict(problem.dims)}
    quant, dtype, down = stated.pop("quant", None), stated.pop("dtype"), stated.pop("down", False)
    if quant is None and dtype != "bf16":
        quant = torch_dtype(str(dtype))
    elif dtype != "bf16":
        raise UsageError(f"a table's name states quant or dtype, not both: {quant} and {dtype}")
    parts = {name: sizes[name] for name in order} | {"device_name": device.replace(" ", "_")}
    parts |= {} if quant is None else {"dtype": quant}
    parts |= {name: _spelled(value, style) for name, value in sorted(stated.items())}
    return f"{','.join(f'{name}={value}' for name, value in parts.items())}{'_down' if down else ''}"


def _spelled(value: Value, style: str) -> str:
    """Return an attribute's value as the project spells it: `128x128` is a list."""
    block = re.fullmatch("([0-9]+)x([0-9]+)", str(value))
    return str(value) if block is None else f"[{block[1]},{' ' * (style == 'sglang')}{block[2]}]"


def _document(by_m: Mapping[int, StoredAnswer], style: str) -> Iterator[tuple[str, Any]]:
    versions = {stored.provenance.environment.triton for stored in by_m.values()}
    if style == "vllm" and len(versions) == 1 and versions != {""}:
        yield "triton_version", versions.pop()
    for m, stored in sorted(by_m.items()):
        yield str(m), _their_knobs(stored)


def _their_knobs(stored: StoredAnswer) -> dict[str, Value]:
    knobs = _KNOBS if stored.answer.problem.op in _OPS.values() else {}
    return {knobs.get(name, name): value for name, value in stored.answer.config.items()}
