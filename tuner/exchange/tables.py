"""Our answers as vLLM's and SGLang's tables: see `ladder`, which reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.claim import Refused
from tuner.exchange.folder import path_of
from tuner.exchange.ladder import OPS
from tuner.kernels.spec import Problem, Value, torch_dtype
from tuner.lookup.table import serving
from tuner.records import StoredAnswer

STYLES = ("vllm", "sglang")
_THEIRS = {"BLOCK_M": "BLOCK_SIZE_M", "BLOCK_N": "BLOCK_SIZE_N", "BLOCK_K": "BLOCK_SIZE_K", "GROUP_M": "GROUP_SIZE_M"}
"""What their kernels call the usual knobs."""


@dataclass(frozen=True)
class _Place:
    """The file of an answer, and its place in it."""

    path: str
    m: int


def tables(answers: Iterable[StoredAnswer], style: str) -> tuple[dict[str, Any], list[Refused]]:
    """The documents of a folder by path, each a table by M, and which answers have no place in any, by problem.

    Of several answers to one question the one that serves it is taken. What was replayed is left out: a table has no
    room to say so. An op that the two projects do not have gets a folder of its own.

    Args:
        style: one of `STYLES`: vLLM's names, with `triton_version` inside where all of a table agree; or SGLang's,
            in a folder for every Triton version.
    """
    places: dict[_Place, list[StoredAnswer]] = {}
    refused = list[Refused]()
    for stored in answers:
        try:
            places.setdefault(_place(stored, style), []).append(stored)
        except UsageError as error:
            refused.append(Refused(stored.answer.problem.text, str(error)))
    documents: dict[str, dict[int, StoredAnswer]] = {}
    for place, several in places.items():
        documents.setdefault(place.path, {})[place.m] = serving(several)
    return {path: dict(_document(rungs, style)) for path, rungs in documents.items()}, refused


def _place(stored: StoredAnswer, style: str) -> _Place:
    provenance, problem = stored.provenance, stored.answer.problem
    triton = provenance.environment.triton
    if provenance.recorded is not None:
        raise UsageError(f"replayed from {provenance.recorded}, and a table has no room to say so")
    if "M" not in dict(problem.dims):
        raise UsageError("a table goes by M, and it has no such dim")
    if style == "sglang" and not triton:
        raise UsageError("SGLang keeps tables by Triton version, and its is not known")
    parts = [] if style == "vllm" else [f"triton_{triton.replace('.', '_')}"]
    parts += [] if problem.op in OPS.values() else [problem.op]
    parts += [f"{_name(problem, provenance.device.name, style)}.json"]
    return _Place(path_of(*parts), dict(problem.dims)["M"])


def _name(problem: Problem, device: str, style: str) -> str:
    sizes = {name: size for name, size in problem.dims if name != "M"}
    order = next((names for names in OPS if set(names) == set(sizes)), tuple(sizes))
    given = {name: value for name, value in problem.stated.items() if name not in dict(problem.dims)}
    quant, dtype, down = given.pop("quant", None), given.pop("dtype"), given.pop("down", False)
    if quant is None and dtype != "bf16":
        quant = torch_dtype(str(dtype))
    elif dtype != "bf16":
        raise UsageError("a table's name has room for one of quant and dtype")
    parts = {name: sizes[name] for name in order} | {"device_name": device.replace(" ", "_")}
    parts |= {} if quant is None else {"dtype": quant}
    parts |= {name: _value(value, style) for name, value in sorted(given.items())}
    return f"{','.join(f'{name}={value}' for name, value in parts.items())}{'_down' if down else ''}"


def _value(value: Value, style: str) -> str:
    """`128x128` is a list there."""
    block = re.fullmatch("([0-9]+)x([0-9]+)", str(value))
    return str(value) if block is None else f"[{block[1]},{' ' * (style == 'sglang')}{block[2]}]"


def _document(rungs: Mapping[int, StoredAnswer], style: str) -> Iterator[tuple[str, Any]]:
    versions = {stored.provenance.environment.triton for stored in rungs.values()}
    if style == "vllm" and len(versions) == 1 and versions != {""}:
        yield "triton_version", versions.pop()
    for m, stored in sorted(rungs.items()):
        theirs = _THEIRS if stored.answer.problem.op in OPS.values() else {}
        yield str(m), {theirs.get(name, name): value for name, value in stored.answer.config.items()}
