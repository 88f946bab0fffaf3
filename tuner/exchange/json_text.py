"""JSON of files of other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from tuner.exchange import kernel_tuner


def parsed(data: bytes) -> Any:
    """Return the JSON in UTF-8, UTF-16 or UTF-32, with or without a byte order mark.

    A Kernel Tuner cache whose search was interrupted lacks its end. It is read up to its last whole entry.

    Raises:
        ValueError: It is not JSON.
        RecursionError: It is nested too deeply.
    """
    text = data.decode(json.detect_encoding(data), "surrogatepass").removeprefix("\ufeff")
    try:
        return json.loads(text)
    except ValueError:
        for whole in _completed(text):
            document = _loaded(whole)
            if isinstance(document, dict) and kernel_tuner.is_cache(document):
                return document
        raise


def _completed(text: str) -> Iterator[str]:
    """Yield the text as a cache that is closed: after its last comma, or after its last whole entry."""
    if '"cache"' in text:
        yield f"{text.rstrip().removesuffix(',')}}}}}"
        yield f"{text[: text.rfind('}') + 1]}}}}}"


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
