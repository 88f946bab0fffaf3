"""The problems of one command: lists of values, a file of shapes, or the matrix products of a model."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.kernels.spec import Problem, Signature
from tuner.records.strict import MALFORMED
from tuner.suites.projections import OPS, SETTINGS, ModelShape, load
from tuner.suites.suite import Entry, Suite


def select_problems(
    reference: str,
    signature: Signature,
    given: Mapping[str, str],
    *,
    shapes: Path | None,
    model: Path | None,
    tp: int | None,
) -> Suite:
    """Return the problems of a command as a suite, without repetitions.

    Args:
        given: Values by parameter, as on the command line. A value may be a list, and each combination is a problem.

    Raises:
        UsageError: A value is invalid, a file cannot be read, or two options contradict each other.
    """
    if shapes is not None and model is not None:
        raise UsageError("--shapes and --model both state the problems; give one of them")
    if tp is not None and model is None:
        raise UsageError("--tp is the number of cards that share a model; give its config with --model")
    note = ""
    if shapes is not None:
        problems, name = list(_of_file(signature, given, shapes)), shapes.name
    elif model is not None:
        shape = _model(signature, given, model, tp or 1)
        problems, name = list(_of_model(signature, given, model, shape)), f"{model.parent.name}/{model.name}"
        note = _left_out(signature.op, model, shape)
    else:
        problems, name = [signature.problem(values) for values in _combinations(given)], signature.op
    entries = {problem.text: Entry(reference, signature, problem) for problem in problems}
    return Suite(name if len(entries) > 1 else problems[0].text, tuple(entries.values()), note)


def _combinations(given: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for values in product(*(text.split(",") for text in given.values())):
        yield dict(zip(given, map(str.strip, values), strict=True))


def _of_file(signature: Signature, given: Mapping[str, str], file: Path) -> Iterator[Problem]:
    """Yield the problems of each row, with the values of the command line added."""
    rows = _rows(file)
    if not rows:
        raise UsageError(f"{file} has no problems")
    for number, row in enumerate(rows, 1):
        if row.pop("op", signature.op) != signature.op:
            raise UsageError(
                f"{file}, problem {number}: its op is not {signature.op}; give a file of several ops with --suite"
            )
        both = [name for name in given if name in row]
        if both:
            raise UsageError(f"{file} and --{both[0]} both state {both[0]}; leave one of them out")
        try:
            yield from [signature.problem({**row, **others}) for others in _combinations(given)]
        except UsageError as error:
            raise UsageError(f"{file}, problem {number}: {error}") from error


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".json":
            rows = json.loads(text)
            if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
                return [dict(row) for row in rows]
            raise UsageError(f'shapes are a list of objects such as {{"M": 16, "N": 4096}}, and {file} is not one')
        return list(_csv_rows(file, text))
    except (OSError, csv.Error, *MALFORMED) as error:
        raise UsageError(f"the shapes in {file} cannot be read: {reason(error)}") from error


def _csv_rows(file: Path, text: str) -> Iterator[dict[str, Any]]:
    """Yield the rows under the header, each with a value for each column. Empty cells at the end of a line are none."""
    reader = csv.reader(text.splitlines(), skipinitialspace=True)
    header: list[str] = []
    for row in reader:
        cells = [cell.strip() for cell in row]
        while cells and not cells[-1]:
            cells.pop()
        if not header or not cells:
            header = header or cells
        elif len(cells) != len(header):
            found = "1 cell" if len(cells) == 1 else f"{len(cells)} cells"
            raise UsageError(f"{file}, line {reader.line_num}: {found} under {len(header)} columns")
        elif "" in cells:
            raise UsageError(f"{file}, line {reader.line_num}: no cell under {header[cells.index('')]}")
        else:
            yield dict(zip(header, cells, strict=True))


def _model(signature: Signature, given: Mapping[str, str], file: Path, tp: int) -> ModelShape:
    if signature.op not in OPS:
        ops = " and ".join(OPS)
        raise UsageError(f"--model states the problems of {ops}, not of {signature.op}; run tuner search gemm --model")
    if fixed := [name for name in ("N", "K") if name in given]:
        raise UsageError(f"--model states {fixed[0]}; leave --{fixed[0]} out")
    shape = load(file, tp)
    option = "dtype" if signature.op == "gemm" else "out_dtype"
    if shape.dtype is None and option not in given:
        raise UsageError(f"{file} names no dtype; give it with --{option}, such as --{option} bf16")
    return shape


def _of_model(signature: Signature, given: Mapping[str, str], file: Path, shape: ModelShape) -> Iterator[Problem]:
    """Yield the problems of a model layer by layer, so that problems of similar size are neighbours."""
    tokens = [signature.problem({"M": M})["M"] for M in given["M"].split(",")] if "M" in given else SETTINGS.tokens
    others = list(_combinations({name: text for name, text in given.items() if name != "M"}))
    for layer in zip(*(shape.problems(signature.op, M) for M in tokens), strict=True):
        try:
            yield from (signature.problem({**values, **other}) for other, values in product(others, layer))
        except UsageError as error:
            raise UsageError(f"{file}: {error}") from error


def _left_out(op: str, file: Path, shape: ModelShape) -> str:
    """Return a sentence on the layers that the other op computes; empty if there are none."""
    ours = shape.layers(op)
    others = [layer.name for layer in shape.projections if layer not in ours]
    if not others:
        return ""
    other = next(name for name in OPS if name != op)
    return f"Left out, as {other} computes them: {', '.join(others)}; tuner search {other} --model {file} tunes these."
