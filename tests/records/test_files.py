"""Files are written whole or not at all, and what is compressed is read up to a limit."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from tuner.records import files


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "data.json"


def test_what_is_written_takes_the_place_of_what_was_there(file: Path) -> None:
    files.write_atomically(file, b"one")
    files.write_atomically(file, "zw\u00f6lf")
    assert file.read_bytes() == "zw\u00f6lf".encode()
    assert os.listdir(file.parent) == [file.name]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "full").touch()
    with pytest.raises(IsADirectoryError):
        files.write_atomically(tmp_path / "folder", b"one")
    with pytest.raises(FileNotFoundError):
        files.write_atomically(tmp_path / "missing" / "file", b"one")
    assert os.listdir(tmp_path) == ["folder"]


@pytest.mark.parametrize("written", [b"content", files.compress(b"content")], ids=["plain", "compressed"])
def test_compressed_or_not_the_content_is_read(file: Path, written: bytes) -> None:
    file.write_bytes(written)
    assert files.read(file, 100) == files.uncompress(written, 100) == b"content"
    assert files.read_start(file, 3) == b"con"
    assert files.read_start(file, 100) == b"content"


def test_the_same_content_is_compressed_to_the_same_bytes() -> None:
    assert files.compress(b"content") == files.compress(b"content") == gzip.compress(b"content", mtime=0)
    assert files.is_compressed(files.compress(b""))
    assert not files.is_compressed(b"")


def test_a_small_file_that_holds_a_very_large_one_is_refused(file: Path) -> None:
    bomb = files.compress(bytes(1 << 20))
    assert len(bomb) < 1100
    file.write_bytes(bomb)
    assert files.read_start(file, 2) == b"\0\0"
    for limit in (1100, (1 << 20) - 1):
        with pytest.raises(files.TooLarge, match=f"it is larger than {limit:,} bytes"):
            files.read(file, limit)
    assert len(files.read(file, 1 << 20)) == 1 << 20


def test_a_plain_file_has_the_same_limit(file: Path) -> None:
    file.write_bytes(b"content")
    assert files.read(file, 7) == b"content"
    with pytest.raises(files.TooLarge):
        files.read(file, 6)


def test_what_is_cut_off_or_damaged_is_refused() -> None:
    data = files.compress(bytes(range(256)) * 20)
    for length in (2, 3, len(data) // 2, len(data) - 1):
        with pytest.raises(files.CutOff, match="its end is missing"):
            files.uncompress(data[:length], 10_000)
    for damaged in (data[:12] + b"\xff" * 20 + data[32:], data[:-8] + bytes(8), b"\x1f\x8bno gzip at all"):
        with pytest.raises(files.Damaged):
            files.uncompress(damaged, 10_000)
