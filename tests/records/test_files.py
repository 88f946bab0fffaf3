"""Files are written whole or not at all, and what is compressed is read up to a limit."""

from __future__ import annotations

import errno
import gzip
import os
import signal
import socket
from collections.abc import Iterator
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


def test_a_link_stays_and_its_target_is_written(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    target, link, dangling = tmp_path / "deep" / "a.json", tmp_path / "link", tmp_path / "dangling"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to("deep/a.json")
    dangling.symlink_to("deep/new.json")
    for name in (link, dangling):
        files.write_atomically(name, b"new")
        assert name.is_symlink()
    assert target.read_text() == (tmp_path / "deep" / "new.json").read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o640
    assert sorted(os.listdir(tmp_path / "deep")) == ["a.json", "new.json"]
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        files.write_atomically(loop, b"new")


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[Path]:
    """A FIFO without a writer. Reading it ends the test after 20 s."""

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    os.mkfifo(tmp_path / "fifo")
    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(20)
    yield tmp_path / "fifo"
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_only_regular_files_are_read_and_written(tmp_path: Path, fifo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    unix = socket.socket(socket.AF_UNIX)
    unix.bind("socket")  # relative, since the name of a socket is short
    for other, kind in (
        (fifo, "a FIFO"),
        (Path(os.devnull), "a device"),
        (Path(), "a folder"),
        (Path("socket"), "a s"),
    ):
        for act in (
            lambda path: files.read(path, 10),
            lambda path: files.read_start(path, 1),
            lambda path: files.write_atomically(path, b""),
        ):
            with pytest.raises(OSError, match=f"it is {kind}.*, not a regular file"):
                act(other)
    unix.close()
    assert sorted(os.listdir(tmp_path)) == ["fifo", "socket"]


def test_a_busy_file_is_replaced_when_it_is_free(file: Path) -> None:
    file.write_bytes(b"old")
    busy = [OSError(errno.EBUSY, "Device or resource busy"), OSError(errno.ETXTBSY, "Text file busy")]

    def replace(part: Path, target: Path) -> None:
        if busy:
            raise busy.pop()
        os.replace(part, target)

    files.write_atomically(file, b"new", files.Retries(wait_s=0.0), replace)
    assert (file.read_bytes(), busy) == (b"new", [])
    busy += [OSError(errno.EBUSY, "Device or resource busy")] * 9
    with pytest.raises(OSError, match="it is busy or a mount point, 3 times in a row") as caught:
        files.write_atomically(file, b"newer", files.Retries(3, 0.0), replace)
    assert (caught.value.errno, len(busy)) == (errno.EBUSY, 6)
    assert os.listdir(file.parent) == [file.name]


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
