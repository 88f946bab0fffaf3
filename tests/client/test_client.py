"""`best_config`: a dictionary hit after the first query, the same answer for life, and never an exception."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fresh_client import forget
from helpers import A100, H200

from tuner import Best, best_config, catalog
from tuner.db.store import Store
from tuner.kernels.spec import Attribute, Config, Dim, Knob, Signature
from tuner.measure import device
from tuner.records import Answer, Comparison, Environment, Provenance

SCALE = Signature(  # an op without code here
    op="scale",
    dims=(Dim("M"), Dim("N", default="M")),
    dtypes=("bf16", "fp16"),
    attributes=(Attribute("layout", ("nn", "nt"), "nn"),),
    knobs=(Knob("BLOCK", (64, 128)), Knob("num_warps", (4, 8)), Knob("num_stages", (2, 3))),
)
HERE = Provenance(H200, Environment("3.6.0", "12.9", "2.10.0", "580.95"), "9f2c0a1b2c3d4e5f", "cold-events-1")
DEVICE = "nvidia-h200"


@pytest.fixture(autouse=True)
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the path of a database that does not exist yet, with a fresh default client."""
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.delenv("TUNER_DISABLE", raising=False)
    forget()
    yield tmp_path / "tuner.db"
    forget()


def block(size: int) -> Config:
    return SCALE.config({"BLOCK": size, "num_warps": 4, "num_stages": 2})


def keep(
    path: Path, config: Config, *, provenance: Provenance = HERE, signature: Signature = SCALE, **values: object
) -> Answer:
    """Store an answer for a problem."""
    problem = signature.problem(values or {"M": 4096})
    answer = Answer(problem, "tuned", config, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(path)
    run = store.start_run(signature, problem, provenance, {"known": 0})
    store.add_answer(run, answer, provenance, "trials", {}, Comparison((config.text,), ((10.0,),)))
    store.close()
    return answer


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    assert {(record.name, record.levelname) for record in caplog.records} <= {("tuner", "WARNING")}
    return caplog.messages


def elsewhere(code: str, *arguments: str, **environment: str) -> tuple[Any, str]:
    """Return what another process prints, as JSON, and its log on stderr."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


class TestAnswers:
    def test_the_stored_answer_is_given_with_its_evidence(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        kept = keep(path, block(128), M=4096)
        best = best_config("scale", device=DEVICE, M=4096)
        assert best == Best(block(128), "exact", (), kept)
        assert best.config is not None
        assert dict(best.config) == {"BLOCK": 128, "num_warps": 4, "num_stages": 2}
        assert messages(caplog) == []

    def test_the_second_time_it_is_the_same_object(self, path: Path) -> None:
        keep(path, block(128))
        assert best_config("scale", device=DEVICE, M=4096) is best_config("scale", device=DEVICE, M=4096)

    def test_the_second_time_nothing_is_read(self, path: Path) -> None:
        keep(path, block(128))
        first = best_config("scale", device=DEVICE, M=4096)
        for file in path.parent.iterdir():
            file.unlink()
        assert best_config("scale", device=DEVICE, M=4096) is first

    def test_the_database_is_not_held_open(self, path: Path) -> None:
        keep(path, block(128))
        best_config("scale", device=DEVICE, M=4096)
        assert [file.name for file in path.parent.iterdir()] == [path.name]  # the last to close it removes its log

    def test_one_problem_said_in_many_ways_has_one_answer(self, path: Path) -> None:
        keep(path, block(128), M=4096)
        wordings: list[dict[str, Any]] = [
            {"M": 4096},
            {"M": "4096"},
            {"N": 4096, "M": 4096},
            {"M": 4096, "dtype": "bfloat16"},
            {"M": 4096, "dtype": "torch.bfloat16"},
            {"layout": "nn", "M": 4096, "N": None},
        ]
        assert {best_config("scale", device=DEVICE, **values).config for values in wordings} == {block(128)}

    def test_other_sizes_dtypes_layouts_and_devices_have_their_own(self, path: Path) -> None:
        keep(path, block(128), M=4096)
        keep(path, block(64), M=16)
        assert best_config("scale", device=DEVICE, M=4096).config == block(128)
        assert best_config("scale", device=DEVICE, M=16).config == block(64)
        for values in ({"M": 17}, {"M": 4096, "N": 16}, {"M": 4096, "dtype": "fp16"}, {"M": 4096, "layout": "nt"}):
            assert best_config("scale", device=DEVICE, **values) == Best(None, "none")
        assert best_config("scale", device=A100.id, M=4096) == Best(None, "none")

    def test_a_replayed_answer_is_given_as_stale_and_said_once(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        keep(path, block(128), provenance=replace(HERE, recorded="scale-4096-bf16-nvidia-h200"))
        for _ in range(3):
            best = best_config("scale", device=DEVICE, M=4096)
        reason = "recorded: replayed from scale-4096-bf16-nvidia-h200, not measured here"
        assert (best.config, best.match, best.stale) == (block(128), "stale", (reason,))
        assert messages(caplog) == [
            f"scale M=4096 N=4096 dtype=bf16: the config is stale ({reason}); "
            "tuner search scale --M 4096 --N 4096 --dtype bf16"
        ]

    def test_a_kernel_of_ours_is_looked_up_by_its_own_signature(self, path: Path) -> None:
        gemm = catalog.load("gemm")
        problem = gemm.signature.problem({"M": 64})
        config = gemm.default_config(problem, H200.limits)
        keep(path, config, signature=gemm.signature, M=64)
        assert best_config("gemm", device=DEVICE, M=64).config == config


ASK = """
import json, sys
from tuner import best_config
best = best_config("scale", device="nvidia-h200", M=int(sys.argv[1]))
print(json.dumps([best.match, best.config and best.config["BLOCK"]]))
"""


class TestPinned:
    def test_what_is_stored_later_is_seen_by_the_next_process_only(self, path: Path) -> None:
        keep(path, block(64))
        before = best_config("scale", device=DEVICE, M=4096)
        keep(path, block(128))
        assert best_config("scale", device=DEVICE, M=4096) is before
        assert before.config == block(64)
        assert elsewhere(ASK, "4096") == (["exact", 128], "")

    def test_that_holds_for_every_problem_of_an_op_once_one_was_looked_up(self, path: Path) -> None:
        keep(path, block(64), M=4096)
        best_config("scale", device=DEVICE, M=4096)
        keep(path, block(128), M=16)
        assert best_config("scale", device=DEVICE, M=16) == Best(None, "none")
        assert elsewhere(ASK, "16")[0] == ["exact", 128]

    def test_a_database_made_later_is_not_seen(self, path: Path) -> None:
        best = best_config("gemm", device=DEVICE, M=64)
        gemm = catalog.load("gemm")
        config = gemm.default_config(gemm.signature.problem({"M": 64}), H200.limits)
        keep(path, config, signature=gemm.signature, M=64)
        assert best_config("gemm", device=DEVICE, M=64) is best
        assert best_config("gemm", device=DEVICE, dtype="bf16", M=64) == best == Best(None, "none")

    def test_a_database_that_was_unreadable_stays_so(self, path: Path) -> None:
        path.write_text("this is no database, and it is long enough for that to be seen")
        assert best_config("gemm", device=DEVICE, M=64) == Best(None, "none")
        path.unlink()
        gemm = catalog.load("gemm")
        config = gemm.default_config(gemm.signature.problem({"M": 128}), H200.limits)
        keep(path, config, signature=gemm.signature, M=128)
        assert best_config("gemm", device=DEVICE, M=128) == Best(None, "none")


class TestK07Disabled:
    @pytest.fixture(autouse=True)
    def disabled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TUNER_DISABLE", "1")

    def test_what_is_stored_is_not_used_and_the_answer_says_so(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        gemm = catalog.load("gemm")
        config = gemm.default_config(gemm.signature.problem({"M": 64}), H200.limits)
        keep(path, config, signature=gemm.signature, M=64)
        best = best_config("gemm", device=DEVICE, M=64)
        assert (best.match, best.stale, best.answer) == ("disabled", (), None)
        assert messages(caplog) == []

    def test_nothing_is_read_or_written(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        path.write_text("this is no database, and it is long enough for that to be seen")
        assert best_config("gemm", device=DEVICE, M=64).match == "disabled"
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        assert messages(caplog) == []

    def test_an_op_whose_code_is_not_here_reads_nothing_either(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        path.write_text("this is no database, and it is long enough for that to be seen")
        assert best_config("scale", device=DEVICE, M=64) == Best(None, "disabled")
        assert messages(caplog) == []

    @pytest.mark.parametrize("value", ["", "0"])
    def test_only_1_disables(self, path: Path, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
        monkeypatch.setenv("TUNER_DISABLE", value)
        keep(path, block(128))
        assert best_config("scale", device=DEVICE, M=4096).match == "exact"


NOT_UNDERSTOOD: list[tuple[str, dict[str, Any], str]] = [
    ("nothing", {"M": 64}, "no kernel is called 'nothing', and nothing is stored under that name"),
    ("../gemm", {"M": 64}, "no kernel is called '../gemm', and nothing is stored under that name"),
    ("scale", {"M": 0}, "scale: M is a whole number from 1 to 2147483647, not 0"),
    ("scale", {"M": -1}, "scale: M is a whole number from 1 to 2147483647, not -1"),
    ("scale", {"M": 2**31}, "scale: M is a whole number from 1 to 2147483647, not 2147483648"),
    ("scale", {"M": 1.5}, "scale: M is a whole number from 1 to 2147483647, not 1.5"),
    ("scale", {"M": True}, "scale: M is a whole number from 1 to 2147483647, not True"),
    ("scale", {"M": [64]}, "scale: M is a whole number from 1 to 2147483647, not [64]"),
    ("scale", {}, "scale needs M; give M=SIZE"),
    ("scale", {"M": 64, "Q": 1}, "scale is described by M, N, dtype, layout, not by 'Q'"),
    ("scale", {"M": 64, "dtype": "fp32"}, "scale knows dtype bf16, fp16, not fp32"),
    ("scale", {"M": 64, "layout": "tt"}, "scale: layout is one of nn, nt, not 'tt'"),
    ("gemm", {"M": 0}, "gemm: M is a whole number from 1 to 2147483647, not 0"),
]


class TestG01NeverRaises:
    """A default, or None without one, and one warning for each key in the life of a process."""

    @pytest.mark.parametrize(
        ("op", "values", "warning"), NOT_UNDERSTOOD, ids=[f"{op}-{values}" for op, values, _ in NOT_UNDERSTOOD]
    )
    def test_a_problem_that_is_not_understood(
        self, path: Path, caplog: pytest.LogCaptureFixture, op: str, values: dict[str, Any], warning: str
    ) -> None:
        keep(path, block(128))
        for _ in range(3):
            assert best_config(op, device=DEVICE, **values) == Best(None, "none")
        assert messages(caplog) == [warning]

    def test_a_problem_that_is_not_tuned(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        keep(path, block(128), M=4096)
        for _ in range(3):
            assert best_config("scale", device=DEVICE, M=64) == Best(None, "none")
        assert messages(caplog) == [
            "scale M=64 N=64 dtype=bf16: no config is given (its code cannot be loaded here, so there is no default), "
            "since it is not tuned on nvidia-h200; "
            "tuner search scale --M 64 --N 64 --dtype bf16"
        ]

    def test_each_key_has_a_warning_of_its_own(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        keep(path, block(128), M=4096)
        for _ in range(2):
            for size in (1, 2, 3):
                best_config("scale", device=DEVICE, M=size)
        assert [message.partition(" N")[0] for message in messages(caplog)] == ["scale M=1", "scale M=2", "scale M=3"]

    def test_one_key_said_in_two_ways_has_one_warning(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        keep(path, block(128), M=4096)
        best_config("scale", device=DEVICE, M=64, N=64)
        best_config("scale", device=DEVICE, N=64, M=64)
        best_config("scale", device=DEVICE, M=64, dtype="bf16")
        assert len(messages(caplog)) == 1

    def test_no_database(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(3):
            assert best_config("gemm", device=DEVICE, M=64) == Best(None, "none")
        assert messages(caplog) == [
            "gemm M=64 N=64 K=64 dtype=bf16: no config is given (a device that is named by its id has no "
            "known limits, so there is no default), since it is not tuned on nvidia-h200; "
            "tuner search gemm --M 64 --N 64 --K 64 --dtype bf16"
        ]
        assert not path.exists()

    @pytest.mark.parametrize("op", ["gemm", "scale"])
    def test_a_damaged_database(self, path: Path, caplog: pytest.LogCaptureFixture, op: str) -> None:
        path.write_text("this is no database, and it is long enough for that to be seen")
        for _ in range(3):
            assert best_config(op, device=DEVICE, M=64) == Best(None, "none")
        (message,) = messages(caplog)
        assert f"the database {path} cannot be read: file is not a database" in message

    def test_a_database_of_a_newer_version_is_read(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        keep(path, block(128))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        for _ in range(3):
            assert best_config("scale", device=DEVICE, M=4096).config == block(128)
        (message,) = messages(caplog)
        assert f"the database {path} has schema 9999" in message
        assert message.endswith("until then it is only read")

    @pytest.mark.parametrize("op", ["gemm", "scale"])
    def test_a_database_of_a_newer_version_that_cannot_be_read(
        self, path: Path, caplog: pytest.LogCaptureFixture, op: str
    ) -> None:
        keep(path, block(128))
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("ALTER TABLE answers DROP COLUMN speedup")
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        for _ in range(3):
            assert best_config(op, device=DEVICE, M=64) == Best(None, "none")
        (message,) = messages(caplog)
        assert f"the database {path} has schema 9999" in message

    @pytest.mark.parametrize("op", ["gemm", "scale"])
    def test_a_folder_for_a_database(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, op: str
    ) -> None:
        monkeypatch.setenv("TUNER_DB", str(tmp_path))
        for _ in range(3):
            assert best_config(op, device=DEVICE, M=64) == Best(None, "none")
        (message,) = messages(caplog)
        assert f"the database {tmp_path} cannot be read: unable to open database file" in message

    @pytest.mark.parametrize("op", ["gemm", "scale"])
    def test_a_database_whose_name_the_system_refuses(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, op: str
    ) -> None:
        monkeypatch.setenv("TUNER_DB", str(tmp_path / ("x" * 300)))
        assert best_config(op, device=DEVICE, M=64) == Best(None, "none")
        assert len(messages(caplog)) == 1

    def test_answers_of_an_older_signature(self, path: Path) -> None:
        """The kernel here has a dim more than when its answers were stored."""
        gemm = catalog.load("gemm")
        older = replace(gemm.signature, dims=gemm.signature.dims[:2])
        config = gemm.default_config(gemm.signature.problem({"M": 64}), H200.limits)
        keep(path, config, signature=older, M=64)
        assert best_config("gemm", device=DEVICE, M=64) == Best(None, "none")

    @pytest.mark.skipif(device.count() > 0, reason="there is a GPU here")
    def test_no_gpu(self, path: Path, caplog: pytest.LogCaptureFixture) -> None:
        for _ in range(3):
            assert best_config("gemm", M=64) == Best(None, "none")
        assert messages(caplog) == [
            "gemm M=64 N=64 K=64 dtype=bf16: no config is given (its default cannot be computed here), "
            "since nothing can be looked up: there is no GPU 0: the driver shows none"
        ]

    @pytest.mark.skipif(device.count() > 0, reason="there is a GPU here")
    def test_a_captured_call_without_a_gpu_has_the_first_config(
        self, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        gemm = catalog.load("gemm")
        kernel = replace(gemm, signature=replace(gemm.signature, op="captured_gemm", captured=True))
        assert best_config(kernel, M=64) == Best(None, "none")
        assert "the first config is launched, since nothing can be looked up" in messages(caplog)[0]


WITHOUT_TRITON = """
import json, sys
for name in ("triton", "torch", "optuna"):
    sys.modules[name] = None  # as where they are not installed
from tuner import best_config
best = best_config("gemm", device="nvidia-h200", M=int(sys.argv[1]))
print(json.dumps([best.match, dict(best.config or {})]))
"""
HEAVY = """
import json, sys
import tuner
imported = sorted({"torch", "triton", "optuna", "sqlalchemy", "alembic"} & sys.modules.keys())
best = tuner.best_config("scale", device="nvidia-h200", M=4096)
missed = tuner.best_config("scale", device="nvidia-h200", M=16)
looked_up = sorted({"torch", "triton", "optuna"} & sys.modules.keys())
print(json.dumps([imported, best.match, missed.match, looked_up]))
"""


class TestWithoutTheHeavyPackages:
    def test_neither_importing_nor_looking_up_loads_them(self, path: Path) -> None:
        keep(path, block(128), M=4096)
        printed, _ = elsewhere(HEAVY)
        assert printed == [[], "exact", "none", []]

    def test_a_kernel_whose_code_needs_them_is_answered_from_the_store(self, path: Path) -> None:
        gemm = catalog.load("gemm")
        config = gemm.default_config(gemm.signature.problem({"M": 64}), H200.limits)
        keep(path, config, signature=gemm.signature, M=64)
        assert elsewhere(WITHOUT_TRITON, "64") == (["exact", dict(config)], "")

    def test_a_miss_says_so_once_and_gives_nothing(self, path: Path) -> None:
        keep(path, block(128))
        printed, log = elsewhere(WITHOUT_TRITON, "64")
        assert printed == ["none", {}]
        assert log == "no kernel is called 'gemm', and nothing is stored under that name\n"

    def test_a_triton_that_is_installed_and_broken_is_as_good_as_none(self, path: Path, tmp_path: Path) -> None:
        gemm = catalog.load("gemm")
        config = gemm.default_config(gemm.signature.problem({"M": 64}), H200.limits)
        keep(path, config, signature=gemm.signature, M=64)
        (tmp_path / "broken" / "triton").mkdir(parents=True)
        (tmp_path / "broken" / "triton" / "__init__.py").write_text(
            "raise ImportError('libtriton.so: undefined symbol: _ZN4llvm')"
        )
        ask = ASK.replace('"scale"', '"gemm"').replace('["BLOCK"]', '["BLOCK_M"]')
        printed, _ = elsewhere(ask, "64", PYTHONPATH=str(tmp_path / "broken"))
        assert printed == ["exact", config["BLOCK_M"]]


def test_the_code_of_a_kernel_may_do_anything_and_raises_nothing_into_a_model(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A package offers an op whose module does not load."""
    (tmp_path / "broken_kernels.py").write_text("raise AttributeError('triton.language has no such word')")
    info = tmp_path / "broken_kernels-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-kernels\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[tuner.kernels]\nbroken = broken_kernels\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert best_config("broken", device=DEVICE, M=64) == Best(None, "none")
    assert messages(caplog)[0] == (
        "the code of broken cannot be loaded: AttributeError: triton.language has no such word"
    )
