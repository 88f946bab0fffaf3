"""A folder of JSON files for other tools, with names made from problems and cards."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError
from tuner.exchange.imported import Skipped
from tuner.records import files


def relative_path(*parts: str) -> str:
    """Return the relative path of these parts.

    Raises:
        UsageError: A part could lead out of the folder or is not a portable file name.
    """
    for part in parts:
        if not re.fullmatch(r"[A-Za-z0-9][\w,=()\[\] .+-]{0,200}", part):
            raise UsageError(f"a file's name is letters, digits and _,=()[] .+-, not {part[:80]!r}")
    return "/".join(parts)


def write(folder: Path, documents: Mapping[str, Any]) -> tuple[list[str], list[Skipped]]:
    """Write JSON documents by relative path, and return the written paths and the skipped ones.

    A file that exists is skipped.

    Raises:
        UsageError: The folder cannot be written.
    """
    if os.path.lexists(folder) and not folder.is_dir():
        raise UsageError(f"{folder} is no folder, and this format has a file for each table or search; name a folder")
    written, skipped = list[str](), list[Skipped]()
    for path, document in documents.items():
        file = folder / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(file):
                skipped.append(
                    Skipped(path, "the file exists; import it to keep its configs, and export to a new folder")
                )
                continue
            files.write_atomically(file, f"{json.dumps(document, indent=4)}\n")
        except OSError as error:
            raise UsageError(f"{file} cannot be written: {error.strerror}; name a writable folder") from error
        written.append(path)
    return written, skipped
