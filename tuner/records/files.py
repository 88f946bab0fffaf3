"""Files that are written whole or not at all, and files that may be compressed. Standard library only.

A file from elsewhere is read up to a limit, since a small compressed file can hold a very large one.
"""

from __future__ import annotations

import gzip
import os
import zlib
from io import BytesIO
from pathlib import Path
from typing import BinaryIO

_GZIP_MAGIC = b"\x1f\x8b"


class Damaged(ValueError):
    """Compressed data that cannot be read. The text is the reason, without the file's name, as in the classes below."""


class CutOff(Damaged):
    """Compressed data without its end."""


class TooLarge(ValueError):
    """More bytes than the limit, compressed or not."""


def write_atomically(file: Path, data: bytes | str) -> None:
    """Write a file in one step, replacing a file of that name. A text is written as UTF-8.

    The data goes to a temporary file in the same folder first, which takes the name only when it is on the disk.

    Raises:
        OSError: The file cannot be written. The temporary file is removed.
    """
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        with part.open("wb") as opened:
            opened.write(data.encode() if isinstance(data, str) else data)
            opened.flush()
            os.fsync(opened.fileno())
        os.replace(part, file)
    except OSError:
        part.unlink(missing_ok=True)
        raise


def is_compressed(data: bytes) -> bool:
    """Return whether the data begin as gzip does."""
    return data.startswith(_GZIP_MAGIC)


def compress(data: bytes, level: int = 9) -> bytes:
    """Return the data as gzip. The same data give the same bytes, since no time is written."""
    return gzip.compress(data, level, mtime=0)


def uncompress(data: bytes, limit: int) -> bytes:
    """Return the data, uncompressed if they are gzip.

    Raises:
        TooLarge: They are longer than `limit` bytes, before or after.
        CutOff: The end is missing.
        Damaged: They are no gzip after the first bytes.
    """
    if len(data) > limit:
        raise TooLarge(f"it is larger than {limit:,} bytes")
    if not is_compressed(data):
        return data
    with BytesIO(data) as file:
        plain = _inflated_start(file, limit + 1)
    if len(plain) > limit:
        raise TooLarge(f"it is larger than {limit:,} bytes")
    return plain


def read(file: Path, limit: int) -> bytes:
    """Return the content of a file, uncompressed if it is gzip, regardless of its name.

    Raises:
        OSError: The file cannot be read.
        TooLarge: It is longer than `limit` bytes, before or after.
        CutOff: The end is missing.
        Damaged: It is no gzip after the first bytes.
    """
    with file.open("rb") as opened:
        data = opened.read(limit + 1)
    return uncompress(data, limit)


def read_start(file: Path, size: int) -> bytes:
    """Return the first `size` bytes of a file, uncompressed if it is gzip, or all if it is shorter.

    Raises:
        OSError: The file cannot be read.
        CutOff: It ends before `size` bytes, and its own end is missing.
        Damaged: It is no gzip after the first bytes.
    """
    with file.open("rb") as opened:
        compressed = is_compressed(opened.read(len(_GZIP_MAGIC)))
        opened.seek(0)
        return _inflated_start(opened, size) if compressed else opened.read(size)


def _inflated_start(file: BinaryIO, size: int) -> bytes:
    try:
        with gzip.GzipFile(fileobj=file) as unzipped:
            return unzipped.read(size)
    except EOFError as error:
        raise CutOff("its end is missing") from error
    except (zlib.error, gzip.BadGzipFile) as error:
        raise Damaged(str(error)) from error
