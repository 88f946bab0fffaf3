"""Documents of captured calls, by which worker processes load their kernels: files in a folder of the user's."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from time import time

import platformdirs

from tuner.captured import document
from tuner.captured.call import CapturedCall
from tuner.errors import UsageError


@dataclass(frozen=True)
class CallDocumentsSettings:
    """Retention of documents."""

    kept_s: float = 7 * 86_400
    """Age at which an unused document is removed, in seconds."""


SETTINGS = CallDocumentsSettings()


def folder() -> Path:
    """Return the folder of the documents that worker processes read."""
    return platformdirs.user_cache_path("triton-tuner") / "calls"


def written(call: CapturedCall, *, widen: bool = False) -> str:
    """Write the document of a call, and return the path by which the catalog finds its kernel.

    The path has a hash of the contents, so a changed call has another path and no process reads an outdated document.

    Raises:
        UsageError: the folder cannot be written.
    """
    contents = json.dumps([document.to_json(call), widen], allow_nan=False)
    path = folder() / f"{call.op}-{sha256(contents.encode()).hexdigest()[:16]}{document.SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _remove_old(path.parent)
        if path.exists():
            os.utime(path)
        else:
            document.write(call, path, widen)
    except OSError as error:
        raise UsageError(
            f"captured calls are written to {path.parent}, which fails: {error.strerror}; "
            "name another folder by XDG_CACHE_HOME"
        ) from error
    return str(path)


def _remove_old(where: Path) -> None:
    for path in where.glob(f"*{document.SUFFIX}"):
        with suppress(FileNotFoundError):  # another process removes them too
            if time() - path.stat().st_mtime > SETTINGS.kept_s:
                path.unlink()
