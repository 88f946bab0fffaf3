"""Small files in the formats of other tools, and the answers that importing them gives."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.db.import_rules import ImportedAnswer
from tuner.exchange.convert import to_answers
from tuner.exchange.imported import ImportOptions
from tuner.exchange.reader import read
from tuner.kernels.spec import Signature

CONFIG = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 32,
    "num_warps": 4,
    "num_stages": 3,
}


def table_config(block: int = 16, **others: Any) -> dict[str, Any]:
    """Return one config of a table of vLLM's or SGLang's."""
    return {**CONFIG, "BLOCK_SIZE_M": block, **others}


def put(folder: Path, name: str, document: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def imported(
    *paths: Path, known: Signature | None = None, options: ImportOptions | None = None
) -> tuple[list[ImportedAnswer], dict[str, list[str]]]:
    """Return the answers of files, and the reasons of what is skipped by file."""
    content = read(paths, options or ImportOptions())
    answers, skipped = to_answers(content.configs, lambda op: known, lambda id: None)
    reasons: dict[str, list[str]] = {}
    for one in (*content.skipped, *content.not_understood, *skipped):
        reasons.setdefault(one.file, []).append(one.reason)
    return answers, reasons


def keys(answers: list[ImportedAnswer]) -> list[str]:
    """Return the problem and the card of each answer."""
    return [f"{one.answer.problem.text} on {one.provenance.device.id}" for one in answers]
