"""A folder of JSON files that others will read. Names come from problems and cards, so they are checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.claim import Refused


def path_of(*parts: str) -> str:
    """The relative path of these parts, none of which leads elsewhere.

    Raises:
        UsageError: one is no name for a file.
    """
    for part in parts:
        if not re.fullmatch(r"[A-Za-z0-9][\w,=()\[\] .+-]{0,200}", part):
            raise UsageError(f"{part[:80]!r} is no name for a file")
    return "/".join(parts)


def write(folder: Path, documents: Mapping[str, Any]) -> tuple[list[str], list[Refused]]:
    """Writes documents by path; which were written, and which not: what is there already is left as it is.

    Raises:
        UsageError: the folder cannot be written.
    """
    written, kept = list[str](), list[Refused]()
    for path, document in documents.items():
        file = folder / path
        text = f"{json.dumps(document, indent=4)}\n"
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(file):
                kept.append(Refused(path, "there already; import it to keep what it has, and export to a new folder"))
                continue
            beside = file.with_name(f".{os.getpid()}.part")
            beside.write_text(text, encoding="utf-8")
            os.replace(beside, file)
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}; name a folder that can") from error
        written.append(path)
    return written, kept
