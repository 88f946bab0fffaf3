"""Answers are compiled before a server needs them: real compilers, for a card that this machine does not have."""

from __future__ import annotations

import _ctypes
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from fresh_client import forget
from helpers import H200
from triton.runtime.cache import get_cache_manager

import tuner
from tuner import catalog, precompile
from tuner.cli import cli
from tuner.client import client
from tuner.db.store import Store
from tuner.errors import NoDevice, UnknownName, UsageError
from tuner.kernels.spec import Value
from tuner.measure import device
from tuner.measure.binaries import checked_cache, fault_of, is_whole
from tuner.records import Answer, Comparison, Environment, Outcome, Provenance

HERE = Provenance(H200, Environment("3.6.0", "12.9", "2.10.0", "580.95"), "9f2c0a1b2c3d4e5f", "cold-events-1")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Path:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    forget()
    return tmp_path


def keep(folder: Path, op: str, sizes: dict[str, object], **knobs: Value) -> None:
    """Store an answer: the default, with some knobs changed."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(sizes)
    config = kernel.signature.config({**kernel.default(problem, H200.limits), **knobs})
    answer = Answer(problem, "tuned", config, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(folder / "tuner.db")
    run = store.start_run(kernel.signature, problem, HERE, {"known": 0})
    store.add_answer(run, answer, HERE, "trials", {}, Comparison((config.text,), ((10.0,),)))
    store.close()


def cubins(folder: Path) -> int:
    return len(list((folder / "cache").rglob("*.cubin")))


def test_each_answered_config_is_compiled_once(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64})
    keep(folder, "softmax", {"M": 64, "N": 100}, num_warps=2)
    keep(folder, "gemm", {"M": 16, "N": 64, "K": 128})
    first = precompile(device=H200.id)
    assert (first.device, first.compiled, first.cached, first.failed) == (H200.id, 3, 0, ())
    assert cubins(folder) == 3
    second = precompile(device=H200.id)
    assert (second.compiled, second.cached, second.failed) == (0, 3, ())
    assert cubins(folder) == 3


def test_the_newest_answer_of_a_problem_is_what_is_compiled(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64}, num_warps=1)
    keep(folder, "softmax", {"M": 64}, num_warps=2)
    assert precompile(device=H200.id).compiled == 1
    (metadata,) = (path for path in (folder / "cache").rglob("softmax_one_pass.json"))
    assert json.loads(metadata.read_text())["num_warps"] == 2


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def overwrite(path: Path) -> None:
    path.write_bytes(bytes(len(path.read_bytes())))


DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "binary cut short": ("*.cubin", cut),
    "binary half written": ("*.cubin", lambda path: path.write_bytes(path.read_bytes()[:4096].ljust(20_000, b"\0"))),
    "binary empty": ("*.cubin", lambda path: path.write_bytes(b"")),
    "binary of zeros": ("*.cubin", overwrite),
    "binary replaced": ("*.cubin", lambda path: path.write_text("a page of HTML")),
    "binary lost": ("*.cubin", Path.unlink),
    "metadata cut short": ("softmax_one_pass.json", cut),
    "metadata empty": ("softmax_one_pass.json", lambda path: path.write_bytes(b"")),
    "metadata another": ("softmax_one_pass.json", lambda path: path.write_text("[]")),
    "listing empty": ("__grp__softmax_one_pass.json", lambda path: path.write_bytes(b"")),
    "code no text": ("*.ptx", lambda path: path.write_bytes(b"\xff\xfe\xff")),
}


def test_kernels_whose_cached_files_are_damaged_are_compiled_again(folder: Path) -> None:
    for size in range(len(DAMAGES) + 2):
        keep(folder, "softmax", {"M": 1, "N": 2**size})
    precompile(device=H200.id)
    whole, lost, *damaged = sorted(path.parent for path in (folder / "cache").rglob("*.cubin"))
    (lost / "softmax_one_pass.ttgir").unlink()  # which only a debugger reads
    for place, (pattern, spoil) in zip(damaged, DAMAGES.values(), strict=True):
        (path,) = place.glob(pattern)
        spoil(path)
    again = precompile(device=H200.id)
    from_another = again.compiled - len(DAMAGES)  # Triton 3.9 compiles again if any file of a kernel is missing
    assert (from_another, again.cached, again.failed) in ((0, 2, ()), (1, 1, ()))
    binaries = list((folder / "cache").rglob("*.cubin"))
    assert len(binaries) == len(DAMAGES) + 2
    assert all(is_whole(binary.read_bytes()) for binary in binaries)
    last = precompile(device=H200.id)
    assert (last.compiled, last.cached, last.failed) == (0, len(binaries), ())
    assert whole.exists()


def test_a_binary_that_is_cut_anywhere_is_not_whole(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64})
    precompile(device=H200.id)
    (path,) = (folder / "cache").rglob("*.cubin")
    binary = path.read_bytes()
    assert is_whole(binary)
    assert not any(is_whole(binary[:length]) for length in range(0, len(binary), 11))
    assert fault_of({"double.cubin": str(path)}) is None
    path.write_bytes(binary[:-1])
    assert fault_of({"double.cubin": str(path)}) == f"{path} is cut short or no binary"


def test_a_launcher_that_is_cut_short_is_built_again(folder: Path) -> None:
    library = Path(_ctypes.__file__).read_bytes()
    with checked_cache():
        manager = get_cache_manager("00" * 32)
        manager.put(library, "launcher.so")
        path = manager.get_file("launcher.so")
        assert path is not None
        Path(path).write_bytes(library[: len(library) // 2])
        assert manager.get_file("launcher.so") is None
    assert get_cache_manager("00" * 32).get_file("launcher.so") == path


def test_a_cache_that_cannot_be_written_ends_in_one_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(folder, "softmax", {"M": 64})
    keep(folder, "softmax", {"M": 128})
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder / "tuner.db"))
    done = CliRunner().invoke(cli, ["warm", "--device", H200.id], standalone_mode=False)
    assert done.output == ""
    assert isinstance(done.exception, UsageError)
    assert str(done.exception) == (
        f"Triton's cache is a folder that can be written, and {folder / 'tuner.db'} cannot (File exists); "
        "name another in TRITON_CACHE_DIR"
    )


def test_without_triton_a_line_names_the_package_to_install(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64})
    package = folder / "missing" / "triton"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ModuleNotFoundError('No module named triton', name='triton')")
    environment = {**os.environ, "PYTHONPATH": str(package.parent)}
    command = [sys.executable, "-P", "-m", "tuner", "warm", "--device", H200.id]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "tuner: the code of softmax needs triton, which is not installed; pip install 'triton-tuner[gpu]'"
    ]


def test_only_the_ops_that_are_named(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64})
    keep(folder, "transpose", {"M": 64})
    assert precompile("transpose", device=H200.id).compiled == 1
    assert [path.stem for path in (folder / "cache").rglob("*.cubin")] == ["transpose_kernel"]


def test_a_failure_is_reported_and_stops_nothing_else(folder: Path) -> None:
    too_much: dict[str, Value] = {
        "BLOCK_M": 128,
        "BLOCK_N": 256,
        "BLOCK_K": 128,
        "num_warps": 8,
        "num_stages": 4,
        "VARIANT": "tiles",
        "STORES": 1,
    }
    keep(folder, "gemm", {"M": 4096}, **too_much)
    keep(folder, "gemm", {"M": 64})
    done = precompile("gemm", device=H200.id)
    (failed,) = done.failed
    assert done.compiled == 1
    assert failed.outcome is Outcome.INFEASIBLE
    assert failed.problem is not None
    assert failed.problem["M"] == 4096
    assert failed.error == "needs 393216 bytes of shared memory, a block has 232448"


def test_more_answers_than_are_sent_at_once(folder: Path) -> None:
    for size in range(1, 13):
        keep(folder, "softmax", {"M": 1, "N": size})
    done = precompile(device=H200.id, jobs=1)
    assert done.compiled + done.cached == 12


def test_an_unknown_op_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"^no kernel is called 'gemmm'; did you mean gemm\?$"):
        precompile("gemmm", device=H200.id)


def test_without_answers_there_is_nothing_to_do() -> None:
    done = precompile(device=H200.id)
    assert (done.compiled, done.cached, done.failed) == (0, 0, ())


@pytest.mark.skipif(device.count() > 0, reason="there is a GPU here")
def test_without_a_gpu_a_card_is_named() -> None:
    with pytest.raises(NoDevice, match="there is no GPU 0: the driver shows none"):
        precompile()


class TestCommand:
    def test_for_a_reader(self, folder: Path) -> None:
        keep(folder, "softmax", {"M": 64})
        printed = CliRunner().invoke(cli, ["warm", "softmax", "--device", H200.id], standalone_mode=False)
        assert printed.output.startswith("nvidia-h200  1 compiled, 0 cached already, 0 failed; ")
        assert printed.return_value == 0

    def test_for_a_program_with_what_failed(self, folder: Path) -> None:
        keep(
            folder,
            "gemm",
            {"M": 4096},
            BLOCK_M=128,
            BLOCK_N=256,
            BLOCK_K=128,
            num_warps=8,
            num_stages=4,
            VARIANT="tiles",
            STORES=1,
        )
        printed = CliRunner().invoke(cli, ["warm", "--device", H200.id, "--json"], standalone_mode=False)
        document = json.loads(printed.stdout)
        assert printed.return_value == 1
        assert (document["compiled"], document["cached"]) == (0, 0)
        (failed,) = document["failed"]
        assert (failed["op"], failed["problem"]["M"], failed["outcome"]) == ("gemm", 4096, "infeasible")
        assert failed["config"]["BLOCK_N"] == 256

    def test_an_unknown_device_is_refused(self, folder: Path) -> None:
        keep(folder, "softmax", {"M": 64})
        refused = CliRunner().invoke(cli, ["warm", "--device", "nvidia-h100"], standalone_mode=False)
        assert isinstance(refused.exception, UnknownName)
        assert str(refused.exception) == "no device is called 'nvidia-h100'; there are nvidia-h200"
        other_op = CliRunner().invoke(cli, ["warm", "gemm", "--device", H200.id], standalone_mode=False)
        assert other_op.return_value == 0
        assert "nothing is tuned for it yet" in other_op.output

    def test_nothing_is_tuned(self) -> None:
        printed = CliRunner().invoke(cli, ["warm", "--device", H200.id], standalone_mode=False)
        assert printed.return_value == 0
        assert "nothing is tuned for it yet; tuner search OP tunes a problem" in printed.output


def test_a_refresh_forgets_answers(folder: Path) -> None:
    keep(folder, "softmax", {"M": 64}, num_warps=1)
    before = tuner.best_config("softmax", device=H200.id, M=64)
    keep(folder, "softmax", {"M": 64}, num_warps=2)
    client.refresh()
    after = tuner.best_config("softmax", device=H200.id, M=64)
    assert before.config is not None
    assert after.config is not None
    assert (before.config["num_warps"], after.config["num_warps"]) == (1, 2)
    assert replace(before, config=None, answer=None) == replace(after, config=None, answer=None)
