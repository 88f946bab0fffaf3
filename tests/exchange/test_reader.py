"""Files of an import: told apart by their folders, regular ones only, in any encoding of JSON."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from others import imported, put, table_config

from tuner.errors import UsageError

NAME = "E=8,N=2,device_name=NVIDIA_H200.json"


@pytest.fixture(autouse=True)
def soon() -> Iterator[None]:
    """A limit of 20 s: a FIFO without a writer would block its reader for good."""

    def hangs(*_: object) -> None:
        raise AssertionError("it hangs")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_seven_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = [f"triton_3_{minor}_0/deep" for minor in range(1, 7)]
    for folder in (*folders, "."):
        put(tmp_path, f"{folder}/{NAME}", {"1": table_config(num_warps=3)})
    put(tmp_path, "other.json", [])
    _, reasons = imported(tmp_path)
    assert sorted(reasons) == sorted(
        [*(f"{folder}/{NAME}" for folder in folders), f"{tmp_path.name}/{NAME}", "other.json"]
    )


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path) -> None:
    file = put(tmp_path, NAME, {"1": table_config()})
    answers, reasons = imported(tmp_path, file, Path(os.path.relpath(file)))
    assert ([one.origin for one in answers], reasons) == ([NAME], {})


def test_what_is_no_regular_file_gets_a_line(tmp_path: Path) -> None:
    folder, empty = tmp_path / "configs", tmp_path / "empty"
    put(folder, NAME, {"1": table_config()})
    (folder / "folder.json").mkdir()
    os.mkfifo(folder / "fifo.json")
    (folder / "lost.json").symlink_to("nowhere")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "link.json").symlink_to(NAME)
    empty.mkdir()
    answers, reasons = imported(folder, empty)
    assert len(answers) == 1
    assert reasons == {
        "fifo.json": ["it cannot be read: it is a FIFO, not a regular file"],
        "lost.json": ["it cannot be read: No such file or directory"],
        "loop.json": ["it cannot be read: Too many levels of symbolic links"],
        "link.json": ["unknown format"],  # the problem is in the name
    }


def test_a_path_that_is_no_regular_file_gets_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("socket")
    _, reasons = imported(Path("fifo"), Path("socket"), Path(os.devnull))
    listener.close()
    assert {name: reason.partition(", not")[0] for name, (reason,) in reasons.items()} == {
        "fifo": "it cannot be read: it is a FIFO",
        "socket": "it cannot be read: it is a socket",
        "null": "it cannot be read: it is a device",
    }
    (tmp_path / "loop").symlink_to("loop")
    for path, why in (
        ("x" * 5000, "File name too long"),
        ("loop", "Too many levels of symbolic links"),
        ("fifo/x", "Not a directory"),
    ):
        with pytest.raises(UsageError, match=f"{path} cannot be read: {why}"):
            imported(Path(path))
    with pytest.raises(UsageError, match="there is no file or folder nowhere"):
        imported(Path("nowhere"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-32"])
def test_json_is_read_in_each_of_its_encodings(tmp_path: Path, encoding: str) -> None:
    text = json.dumps({"1": table_config()}, indent=2).replace("\n", "\r\n")
    (tmp_path / NAME).write_bytes(text.encode(encoding))
    answers, reasons = imported(tmp_path)
    assert (len(answers), reasons) == (1, {})


def test_a_name_that_is_no_text_is_shown_in_part(tmp_path: Path) -> None:
    for name in (b"\xff.json", NAME.encode().replace(b"H200", b"H\xff")):
        with open(os.fsencode(tmp_path) + b"/" + name, "w") as file:
            json.dump({"1": table_config()}, file)
    answers, reasons = imported(tmp_path)
    assert answers == []
    assert reasons == {
        "\ufffd.json": ["unknown format"],
        NAME.replace("H200", "H\ufffd"): ["a device name has 1 to 100 printable characters, not 'NVIDIA H\\udcff'"],
    }
