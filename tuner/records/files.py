"""Files that are written whole or not at all, and files that may be compressed. Standard library only.

A file from elsewhere is read up to a limit, since a small compressed file can hold a very large one. Only regular files
are read and written: a FIFO without a writer would block its reader, and a device need not end.
"""

from __future__ import annotations

import errno
import gzip
import os
import shutil
import stat
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from secrets import token_hex
from time import sleep
from typing import BinaryIO

_GZIP_MAGIC = b"\x1f\x8b"
_BUSY = (errno.EBUSY, errno.ETXTBSY)
_BUSY_ON_WINDOWS = (5, 32)
"""Access denied and sharing violation: another program has the file open."""
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket"}


@dataclass(frozen=True)
class Retries:
    """Attempts to replace a file that is busy: another program has it open, or it is a mount point."""

    attempts: int = 5
    wait_s: float = 0.2
    """Seconds between two attempts."""


class Damaged(ValueError):
    """Compressed data that cannot be read. The text is the reason, without the file's name, as in the classes below."""


class CutOff(Damaged):
    """Compressed data without its end."""


class TooLarge(ValueError):
    """More bytes than the limit, compressed or not."""


def write_atomically(
    file: Path,
    data: bytes | str,
    retries: Retries = Retries(),
    replace: Callable[[Path, Path], None] = os.replace,
) -> None:
    """Write a file in one step, replacing a file of that name. A text is written as UTF-8.

    The data goes to a temporary file in the same folder first, which takes the name only when it is on the disk. A
    symbolic link stays, and the file that it names is written. An existing file keeps its permissions.

    Args:
        replace: Renames the first file to the second.

    Raises:
        OSError: The file cannot be written, or is not a regular one. The temporary file is removed.
    """
    exists = _is_regular(file)
    target = Path(os.path.realpath(file))
    part = target.with_name(f".{os.getpid()}-{token_hex(4)}.part")
    try:
        with part.open("xb") as opened:
            opened.write(data.encode() if isinstance(data, str) else data)
            opened.flush()
            os.fsync(opened.fileno())
        if exists:
            shutil.copymode(target, part)
        _replace(part, target, retries, replace)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _is_regular(file: Path) -> bool:
    """Return whether a regular file is there. Raises OSError if something else is."""
    try:
        mode = os.stat(file).st_mode
    except FileNotFoundError:
        return False
    _check_regular(mode)
    return True


def _check_regular(mode: int) -> None:
    """Raise OSError unless this is the mode of a regular file."""
    if not stat.S_ISREG(mode):
        kind = _KINDS.get(stat.S_IFMT(mode), "a device")
        raise OSError(errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL, f"it is {kind}, not a regular file")


def _replace(part: Path, target: Path, retries: Retries, replace: Callable[[Path, Path], None]) -> None:
    """Rename a file, again after a while if the target is busy."""
    for attempt in range(1, retries.attempts + 1):
        try:
            replace(part, target)
        except OSError as error:
            if error.errno not in _BUSY and getattr(error, "winerror", None) not in _BUSY_ON_WINDOWS:
                raise
            if attempt == retries.attempts:
                raise OSError(error.errno, f"it is busy or a mount point, {attempt} times in a row") from error
            sleep(retries.wait_s)
        else:
            return


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


def open_regular(file: Path) -> BinaryIO:
    """Open a file to read. It is not opened if it is a FIFO, a device, a socket or a folder.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
    """
    _check_regular(os.stat(file).st_mode)
    descriptor = os.open(file, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        _check_regular(os.fstat(descriptor).st_mode)  # it may have been replaced
    except OSError:
        os.close(descriptor)
        raise
    return os.fdopen(descriptor, "rb")


def read(file: Path, limit: int) -> bytes:
    """Return the content of a file, uncompressed if it is gzip, regardless of its name.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
        TooLarge: It is longer than `limit` bytes, before or after.
        CutOff: The end is missing.
        Damaged: It is no gzip after the first bytes.
    """
    with open_regular(file) as opened:
        data = opened.read(limit + 1)
    return uncompress(data, limit)


def read_start(file: Path, size: int) -> bytes:
    """Return the first `size` bytes of a file, uncompressed if it is gzip, or all if it is shorter.

    Raises:
        OSError: The file cannot be read, or is not a regular one.
        CutOff: It ends before `size` bytes, and its own end is missing.
        Damaged: It is no gzip after the first bytes.
    """
    with open_regular(file) as opened:
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
