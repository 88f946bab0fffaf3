"""Which problems one command is about: lists on the command line, a file of shapes, the GEMMs of a model."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import click

from tuner.errors import UsageError, reason
from tuner.kernels.spec import Problem, Signature
from tuner.suites import projections
from tuner.suites.suite import Entry, Suite

_FILE = click.Path(path_type=Path, dir_okay=False)
PROBLEMS: list[click.Parameter] = [
    click.Option(
        ["--shapes"],
        type=_FILE,
        metavar="FILE",
        help="Problems of a CSV file, a column each for M, N ..., or of a JSON list of objects with those keys.",
    ),
    click.Option(
        ["--model"],
        type=_FILE,
        metavar="config.json",
        help="The GEMMs of a model, from its Hugging Face config: of --M tokens, else "
        f"{', '.join(map(str, projections.LADDER))}.",
    ),
    click.Option(["--tp"], type=click.IntRange(1), metavar="CARDS", help="Cards that share --model."),
]
"""Options that say them in other ways than by themselves."""


def asked_problems(
    reference: str,
    signature: Signature,
    told: Mapping[str, str],
    *,
    shapes: Path | None,
    model: Path | None,
    tp: int | None,
) -> Suite:
    """The problems, none of them twice.

    Args:
        told: values by parameter, as on the command line: each may be a list, and every combination is meant.

    Raises:
        UsageError: a value is none, a file cannot be read, or two options contradict each other.
    """
    if shapes is not None and model is not None:
        raise UsageError("--shapes and --model both say which problems; give one of them")
    if tp is not None and model is None:
        raise UsageError("--tp says how many cards share a model; give its config with --model")
    if shapes is not None:
        problems, name = list(_of_file(signature, told, shapes)), shapes.name
    elif model is not None:
        problems, name = list(_of_model(signature, told, model, tp or 1)), f"{model.parent.name}/{model.name}"
    else:
        problems, name = [signature.problem(values) for values in _combinations(told)], signature.op
    entries = {problem.text: Entry(reference, signature, problem) for problem in problems}
    return Suite(name if len(entries) > 1 else problems[0].text, tuple(entries.values()))


def _combinations(told: Mapping[str, str]) -> Iterator[dict[str, str]]:
    for values in product(*(text.split(",") for text in told.values())):
        yield dict(zip(told, map(str.strip, values), strict=True))


def _of_file(signature: Signature, told: Mapping[str, str], file: Path) -> Iterator[Problem]:
    """Each row's, with what the command line adds to all of them."""
    rows = _rows(file)
    if not rows:
        raise UsageError(f"{file} has no problems in it")
    for number, row in enumerate(rows, 1):
        if row.pop("op", signature.op) != signature.op:
            raise UsageError(f"{file}, problem {number}: its op is not {signature.op}; --suite takes files of several")
        both = [name for name in told if name in row]
        if both:
            raise UsageError(f"{file} says {both[0]}, and so does --{both[0]}; leave one of them out")
        try:
            yield from [signature.problem({**row, **others}) for others in _combinations(told)]
        except UsageError as error:
            raise UsageError(f"{file}, problem {number}: {error}") from error


def _rows(file: Path) -> list[dict[str, Any]]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        if file.suffix == ".json":
            rows = json.loads(text)
            if isinstance(rows, list) and all(isinstance(row, dict) for row in rows):
                return [dict(row) for row in rows]
            raise UsageError(f'shapes are a list of objects such as {{"M": 16, "N": 4096}}, and {file} is not')
        reader = csv.DictReader(text.splitlines(), skipinitialspace=True, restkey="beyond the header")
        return [{name.strip(): cell.strip() for name, cell in row.items() if cell and cell.strip()} for row in reader]
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f"the shapes in {file} cannot be read: {reason(error)}") from error


def _of_model(signature: Signature, told: Mapping[str, str], file: Path, tp: int) -> Iterator[Problem]:
    """Token counts for each layer in turn, so that what is near in size follows each other."""
    if signature.op != "gemm":
        raise UsageError(f"--model gives the GEMMs of a model, and {signature.op} is none; tuner search gemm --model")
    if fixed := [name for name in ("N", "K") if name in told]:
        raise UsageError(f"--model says {fixed[0]}; leave --{fixed[0]} out")
    found = projections.load(file, tp)
    tokens = [signature.problem({"M": M})["M"] for M in told["M"].split(",")] if "M" in told else projections.LADDER
    others = list(_combinations({name: text for name, text in told.items() if name != "M"}))
    for layer in zip(*(found.gemms(M) for M in tokens), strict=True):
        yield from (signature.problem({**gemm, **other}) for other, gemm in product(others, layer))
