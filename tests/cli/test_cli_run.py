"""`tuner run`: a script as Python runs it, with its autotuned kernels served, in child processes too."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import pytest
from click.testing import CliRunner
from commands import run_tuner
from helpers import toy

import tuner
from tuner.cli import cli
from tuner.cli.run_summary import summary
from tuner.client import run_report
from tuner.db.store import Store
from tuner.errors import UsageError

STARTED = str(Path(tuner.__file__).parent / "cli" / "started")
TELLS = """
import json, os, sys
TELLS = 1
def hooked():
    return [type(each).__name__ for each in sys.meta_path].count("_AfterTriton")
if __name__ == "__main__":
    print(json.dumps([sys.argv, sys.path, __name__, __file__, repr(__spec__)[:40], sys.modules[__name__].TELLS,
                      os.environ.get("OPENBLAS_NUM_THREADS"), "sitecustomize" in sys.modules]))
    sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tells.py").write_text(TELLS)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "package" / "__main__.py").write_text(TELLS)
    return tmp_path


class Executed(Exception):
    """The command that a process would become."""


@pytest.fixture
def execute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that runs `tuner run` up to the point at which the process becomes another."""
    for name in ("TUNER_SNAPSHOT", "TUNER_URL", "TUNER_AUTOTUNE", "PYTHONPATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "default.db"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def execve(path: str, command: list[str], environment: Mapping[str, str]) -> NoReturn:
        raise Executed(command, dict(environment))

    monkeypatch.setattr(os, "execve", execve)

    def run(*arguments: str) -> tuple[list[str], dict[str, str], str]:
        done = CliRunner().invoke(cli, ["run", *arguments], standalone_mode=False)
        if not isinstance(done.exception, Executed):
            assert done.exception is not None
            raise done.exception
        command, environment = done.exception.args
        return command, environment, done.stderr

    return run


@pytest.mark.parametrize("command", [["tells.py"], ["-m", "tells"], ["-m", "package"], ["package"]])
def test_a_script_sees_what_it_sees_under_python(folder: Path, command: list[str]) -> None:
    arguments = [*command, "one", "--mode", "-h", "--", "two words"]
    plain = subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True)
    ours = run_tuner("run", "--quiet", *arguments, folder=folder)
    assert ours.returncode == plain.returncode == 7
    assert json.loads(ours.stdout)[:-1] == json.loads(plain.stdout)[:-1]
    assert ours.stderr == plain.stderr == ""


@pytest.fixture
def heard() -> Iterator[None]:
    """Have child processes hear SIGINT, also if this one was started in the background, where it is ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heard")
@pytest.mark.parametrize("line", ["raise RuntimeError('theirs')", "import os; os.kill(os.getpid(), 2)"])
def test_a_script_ends_as_it_does_under_python(tmp_path: Path, line: str) -> None:
    (tmp_path / "ends.py").write_text(f"def main():\n    {line}\nmain()\n")
    plain = subprocess.run([sys.executable, "ends.py"], cwd=tmp_path, capture_output=True, text=True)
    ours = subprocess.run(
        [sys.executable, "-m", "tuner", "run", "ends.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ours.returncode == plain.returncode != 0
    assert ours.stderr == plain.stderr + "tuner: no autotuned kernel was called\n"


def test_the_next_sitecustomize_runs_and_child_processes_are_prepared(folder: Path) -> None:
    (folder / "other").mkdir()
    (folder / "other" / "sitecustomize.py").write_text(
        "import os; os.environ['OTHERS'] = os.environ.get('OTHERS', '') + 'x'"
    )
    (folder / "parent.py").write_text(
        "import multiprocessing, os, subprocess, sys\n"
        "from tells import hooked\n"
        "def show(queue):\n    queue.put((hooked(), os.environ['OTHERS']))\n"
        "if __name__ == '__main__':\n"
        "    found = [(hooked(), os.environ['OTHERS'])]\n"
        "    for method in ('fork', 'spawn'):\n"
        "        context = multiprocessing.get_context(method)\n"
        "        queue = context.SimpleQueue()\n"
        "        child = context.Process(target=show, args=(queue,))\n"
        "        child.start(); found.append(queue.get()); child.join()\n"
        "    code = 'import tells, os; print(tells.hooked(), os.environ[\"OTHERS\"])'\n"
        "    print(found, subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)\n"
    )
    done = run_tuner("run", "parent.py", folder=folder, environment={"PYTHONPATH": str(folder / "other")})
    assert done.stdout == "[(1, 'x'), (1, 'x'), (1, 'xx')] 1 xx\n\n"
    assert done.stderr == "tuner: no autotuned kernel was called\n"


def test_looking_for_triton_is_no_import_of_it(folder: Path) -> None:
    (folder / "looks.py").write_text(
        "import importlib.util, sys\n"
        "assert importlib.util.find_spec('triton') and importlib.util.find_spec('triton.compiler')\n"
        "import triton.runtime.autotuner as autotuner\n"
        "print(autotuner.Autotuner.run.__code__.co_filename)\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "run", "looks.py"], cwd=folder, capture_output=True, text=True
    )
    assert done.stdout.endswith("whole_process.py\n"), done.stderr


def test_a_scripts_kernels_are_captured_in_its_child_processes_too(tmp_path: Path) -> None:
    db = tmp_path / "calls.db"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(Path(toy("")).parents[1])
    options = ["--mode", "capture", "--db", str(db)]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tuner", "run", *options, toy("run_on_no_card"), "100", "200", "100"],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["100", "64", "200", "64", "100", "64", "300", "64"], done.stderr
    assert done.returncode == 5
    assert done.stderr.splitlines()[-1] == (
        f"tuner: 3 problems of 1 kernel: 3 without an answer; 3 captured in {db}; "
        f"tuner search --captured --db {db} tunes them"
    )
    store = Store.open(db)
    assert {stored.call.key["n"] for stored in store.captured.all()} == {100, 200, 300}
    assert {stored.call.op for stored in store.captured.all()} == {"run_on_no_card_double"}
    store.close()


class TestWhatTheProcessBecomes:
    def test_options_become_variables(self, execute: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TUNER_SNAPSHOT", "other.json")
        monkeypatch.setenv("TUNER_URL", "http://127.0.0.1:1")
        monkeypatch.setenv("PYTHONPATH", "")
        monkeypatch.chdir(folder)
        command, environment, _ = execute("--mode", "tune", "--db", "new.db", "tells.py", "--db", "theirs")
        assert command == [sys.executable, "tells.py", "--db", "theirs"]
        assert environment["TUNER_AUTOTUNE"] == "tune"
        assert environment["TUNER_DB"] == str(folder / "new.db")
        assert not {"TUNER_SNAPSHOT", "TUNER_URL"} & {*environment}
        assert environment["PYTHONPATH"] == STARTED
        report = run_report.read(Path(environment["TUNER_RUN_REPORT"]))
        assert (report.store, report.is_option) == (str(folder / "new.db"), True)

    def test_a_run_in_a_run_adds_its_folder_once(
        self, execute: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([STARTED, "/other"]))
        _, environment, _ = execute(str(folder / "tells.py"))
        assert environment["PYTHONPATH"] == os.pathsep.join([STARTED, "/other"])
        assert "TUNER_AUTOTUNE" not in environment

    def test_without_triton_the_script_runs_and_one_line_says_so(
        self, execute: Any, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "triton", None)
        for quiet in ([], ["--quiet"]):
            command, environment, said = execute(*quiet, str(folder / "tells.py"))
            assert command[1:] == [str(folder / "tells.py")]
            assert "TUNER_RUN" not in environment
            lines = " ".join(said.split())
            assert lines == (
                ""
                if quiet
                else f"triton is not installed in {sys.prefix}, so no kernel is served; "
                "the script runs without the tuner"
            )

    @pytest.mark.parametrize(
        ("arguments", "error"),
        [
            (["nothing.py"], "SCRIPT is a Python file, and there is no 'nothing.py'; tuner run -m MODULE runs"),
            (
                ["-m", "nothing.at.all"],
                f"-m names a module that {sys.executable} can import, and there is no 'nothing.at.all'; "
                "install it there, or run it from its folder",
            ),
            (["-m", ""], f"-m names a module that {sys.executable} can import, and there is no ''; "
             "install it there, or run it from its folder"),
            (["--db", "mysql://x", "{tells}"], "a database is the path of a file or postgresql://user@host/name"),
        ],
    )  # fmt: skip
    def test_wrong_uses_are_refused_with_one_line(
        self, execute: Any, folder: Path, arguments: list[str], error: str
    ) -> None:
        with pytest.raises(UsageError) as refused:
            execute(*(each.format(tells=folder / "tells.py") for each in arguments))
        assert str(refused.value).startswith(error)
        assert "\n" not in str(refused.value)

    def test_a_command_of_a_package_is_named(
        self, execute: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        command = tmp_path / "serves"
        command.write_text(f"#!{sys.executable}\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
        with pytest.raises(UsageError, match=f"no 'serves'; for the command of that name: tuner run {command}"):
            execute("serves")

    def test_a_database_to_serve_from_exists(self, execute: Any, folder: Path) -> None:
        with pytest.raises(tuner.errors.StoreError, match=r"there is no database at .*nothing\.db"):
            execute("--db", str(folder / "nothing.db"), str(folder / "tells.py"))


class TestSummary:
    def line(self, folder: Path, *notes: tuple[str, str, str], is_option: bool = False) -> str:
        file = folder / "report"
        run_report.begin(file, "/data/tuner.db", is_option=is_option)
        os.environ[run_report.VARIABLE] = str(file)
        try:
            for note in notes:
                run_report.note(*note)
        finally:
            del os.environ[run_report.VARIABLE]
        return summary(file)

    def test_matches_are_counted_by_problem_and_the_worst_of_a_problem_counts(self, tmp_path: Path) -> None:
        notes = [("none", "a", "a M=1"), ("exact", "a", "a M=1"), ("exact", "a", "a M=2"), ("exact", "a", "a M=2")]
        notes += [("neighbour", "b", "b M=1"), ("disabled", "b", "b M=2")]
        assert self.line(tmp_path, *notes) == (
            "4 problems of 2 kernels: 1 exact, 1 neighbour, 1 without an answer, 1 disabled; "
            "tuner run --mode capture captures those without an answer"
        )

    def test_one_problem_is_one(self, tmp_path: Path) -> None:
        assert self.line(tmp_path, ("exact", "a", "a M=1")) == "1 problem of 1 kernel: 1 exact"

    def test_captured_calls_come_with_the_command_that_tunes_them(self, tmp_path: Path) -> None:
        notes = [("none", "a", "a M=1"), ("captured", "a", "a M=1"), ("captured", "a", "a M=1")]
        head = "1 problem of 1 kernel: 1 without an answer; 1 captured in /data/tuner.db; tuner search --captured"
        assert self.line(tmp_path, *notes) == f"{head} tunes them"
        assert self.line(tmp_path, *notes, is_option=True) == f"{head} --db /data/tuner.db tunes them"

    def test_a_note_that_was_cut_off_is_left_out(self, tmp_path: Path) -> None:
        self.line(tmp_path, ("exact", "a", "a M=1"))
        with (tmp_path / "report").open("a") as report:
            report.write('["none", "a", "a M')
        assert summary(tmp_path / "report") == "1 problem of 1 kernel: 1 exact"

    def test_outside_of_a_run_nothing_is_noted(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(run_report.VARIABLE, str(tmp_path / "removed"))
        run_report.note("exact", "a", "a M=1")
        assert list(tmp_path.iterdir()) == []
