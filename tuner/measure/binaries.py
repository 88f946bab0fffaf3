"""Triton's cache: a folder that can be written, and files without damage, else a kernel is compiled again.

Triton takes a cached kernel as it finds it. A machine that lost power, or a full disk, leaves files of the right name
without their content, and the card then refuses them, or the kernel's metadata cannot be read.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from tuner.errors import UsageError, reason

_log = logging.getLogger("tuner")

_HEADER = struct.Struct("<4sB11xHHIQQQIHHHHHH")
"""Header of a 64-bit ELF file, the format of a cubin."""
_SECTION = struct.Struct("<IIQQQQIIQQ")
_NO_BITS = 8
"""Type of a section without bytes in the file."""


@contextmanager
def checked_cache() -> Iterator[None]:
    """Let Triton compile kernels again whose cached files are damaged, unless it has a cache manager of the user's.

    Raises:
        UsageError: its folder cannot be written.
    """
    from triton import knobs

    if knobs.cache.manager_class is not None:
        yield
        return
    knobs.cache.manager_class = _checked_manager()
    try:
        yield
    except OSError:
        check_folder()
        raise
    finally:
        del knobs.cache.manager_class


def check_folder() -> None:
    """Raise UsageError if the folder of Triton's cache cannot be written."""
    from triton import knobs

    folder = Path(knobs.cache.dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise UsageError(
            f"Triton's cache is a folder that can be written, and {folder} cannot ({reason(error)}); "
            "name another in TRITON_CACHE_DIR"
        ) from error


@cache
def _checked_manager() -> type[Any]:
    from triton.runtime.cache import FileCacheManager

    class CheckedCache(FileCacheManager):  # type: ignore[misc]
        """Triton's cache in files, without kernels that have a damaged file and without damaged launchers."""

        def get_group(self, filename: str) -> dict[str, str] | None:
            group: dict[str, str] | None = super().get_group(filename)
            fault = None if group is None else fault_of(group)
            if fault is None:
                return group
            _log.warning("Triton's cache: %s; it is compiled again", fault)
            return None

        def get_file(self, filename: str) -> str | None:
            path: str | None = super().get_file(filename)
            if path is None or not filename.endswith(".so") or is_whole(Path(path).read_bytes()):
                return path
            _log.warning("Triton's cache: %s is cut short or no library; it is compiled again", path)
            return None

    return CheckedCache


def fault_of(group: Mapping[str, str]) -> str | None:
    """Return what is wrong with the files of a cached kernel, by their names; None if each is whole."""
    for path in group.values():
        if (fault := _fault_of_file(Path(path))) is not None:
            return f"{path} {fault}"
    if not any(name.endswith((".cubin", ".hsaco")) for name in group):
        return f"{next(iter(group.values()), 'a kernel')} has no binary beside it"
    return None


def _fault_of_file(path: Path) -> str | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if not content:
        return "is empty"
    if path.suffix == ".cubin":
        return None if is_whole(content) else "is cut short or no binary"
    if path.suffix == ".hsaco":
        return None
    try:
        text = content.decode()
        if path.suffix == ".json" and not isinstance(json.loads(text), dict):
            return "is no description of a kernel"
    except ValueError:
        return "is no text" if path.suffix != ".json" else "is no JSON"
    return None


def is_whole(binary: bytes) -> bool:
    """Return whether a cubin or a library has all parts that its header and its sections name, and code among them."""
    try:
        header = _HEADER.unpack_from(binary)
        magic, bits, *_, programs_at, sections_at, _, _, program, programs, size, count, names_at = header
        if magic != b"\x7fELF" or bits != 2 or size != _SECTION.size or not 0 <= names_at < count:
            return False
        if programs_at + programs * program > len(binary):
            return False
        sections = [_SECTION.unpack_from(binary, sections_at + nth * size) for nth in range(count)]
    except struct.error:
        return False
    if any(kind != _NO_BITS and start + length > len(binary) for _, kind, _, _, start, length, *_ in sections):
        return False
    start, length = sections[names_at][4:6]
    names = binary[start : start + length]
    return any(
        names[name:].startswith(b".text") and any(binary[start : start + length])
        for name, _, _, _, start, length, *_ in sections
    )
