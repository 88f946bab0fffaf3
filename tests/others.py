"""Small files in the shapes that other projects have, and what importing them comes to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.db.intake import Arrival
from tuner.exchange.adopt import adopt
from tuner.exchange.claim import Given, Refused
from tuner.exchange.files import read
from tuner.kernels.spec import Signature

CONFIG = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 64,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 32,
    "num_warps": 4,
    "num_stages": 3,
}


def rung(block: int = 16, **others: Any) -> dict[str, Any]:
    return {**CONFIG, "BLOCK_SIZE_M": block, **others}


def put(folder: Path, name: str, document: Any) -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(document if isinstance(document, str) else json.dumps(document))
    return file


def taken(
    *paths: Path, known: Signature | None = None, given: Given | None = None
) -> tuple[list[Arrival], dict[str, list[str]]]:
    """What files come to: the answers, and by file why something was not taken."""
    reading = read(paths, given or Given())
    arrivals, refused = adopt(reading.claims, lambda op: known, lambda id: None)
    reasons: dict[str, list[str]] = {}
    for one in (*reading.refused, *reading.not_understood, *refused):
        assert isinstance(one, Refused)
        reasons.setdefault(one.file, []).append(one.reason)
    return arrivals, reasons


def questions(arrivals: list[Arrival]) -> list[str]:
    """What each answers, and on which card."""
    return [f"{arrival.answer.problem.text} on {arrival.provenance.device.id}" for arrival in arrivals]
