"""Commands that take an op: where its options may stand, and the help that every command has."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import click
import pytest
from helpers import OPS, toy
from invoked import Invoked

from tuner.cli import cli
from tuner.errors import TunerError

SIZES = ("--M", "8192")
FULL = ("--M", "8192", "--N", "8192", "--dtype", "fp32")


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    "words",
    [
        ["search", "softmax", *SIZES, "--trials", "5"],
        ["search", "--trials", "5", "softmax", *SIZES],
        ["search", "--trials=5", *SIZES, "softmax"],
        ["search", *SIZES, "--trials", "5", "softmax"],
        ["search", "--M=8192", "--trials", "5", "softmax", "--N", "8192"],
        ["search", "--force", "softmax", "--trials", "5", *SIZES],
        ["search", "--no-warm-start", *SIZES, "softmax", "--trials=5"],
        ["search", "--trials", "5", "--", "softmax", *SIZES],
        ["bench", *SIZES, "softmax"],
        ["bench", "--policy", "cold", "softmax", *SIZES],
        ["bench", "--dtype", "fp32", "softmax", *SIZES],
    ],
    ids=" ".join,
)
def test_options_stand_before_the_op_between_and_after_it(tuner: Invoked, words: list[str]) -> None:
    document = tuner.json(*words)
    row = document["rows"][0] if words[0] == "bench" else document
    assert row["problem"] == {"M": 8192, "N": 8192, "dtype": "fp32"}
    if words[0] == "search":
        assert json.loads(tuner("show", "1", "--json").stdout)["measured"] == 5


def test_an_option_of_a_users_kernel_stands_before_its_file(tuner: Invoked) -> None:
    words = ("search", "--device", "nvidia-h200", "--N", "300", toy("double"), "--dry-run")
    assert tuner.json(*words)["rows"][0]["problem"]["N"] == 300


@pytest.mark.parametrize("words", [["best", *SIZES, "softmax"], ["why", *SIZES, "softmax"]], ids=" ".join)
def test_commands_that_read_take_them_too(tuner: Invoked, words: list[str]) -> None:
    tuner("search", "softmax", *SIZES, "--trials", "5")
    assert json.loads(tuner(*words, "--json").stdout)["problem"] == {"M": 8192, "N": 8192, "dtype": "fp32"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("search --M -5 gemm", "gemm: M is a whole number from 1 to 2147483647, not '-5'"),
        ("search --M=-5 gemm", "gemm: M is a whole number from 1 to 2147483647, not '-5'"),
        ("search --trials -1 gemm --M 4096", "-1 is not in the range x>=1"),
        ("search --forcee gemm --M 4096", "No such option '--forcee'. (Did you mean one of: '--effort', '--force'?)"),
        ("search gemm --M 4096 --forcee", "No such option '--forcee'. (Did you mean one of: '--effort', '--force'?)"),
        ("best --strictt mine.py", "No such option '--strictt'. (Did you mean one of: '--strict', '--triton'?)"),
        ("serach gemm --M 4096", "No such command 'serach'. Did you mean 'search'?"),
        ("search gem --M 4096", "no kernel is called 'gem'; did you mean gemm?"),
        ("check softmax --jsn", "No such option '--jsn'."),
        ("check softmax --M", "No such option '--M'."),
        ("search --M 4096", f"name an OP ({OPS}), or a kernel file.py, or a suite"),
        ("search", f"name an OP ({OPS}), or a kernel file.py, or a suite with --suite"),
        ("best", f"name an OP ({OPS}), or a kernel file.py"),
        ("best --", f"name an OP ({OPS}), or a kernel file.py"),
        ("search gemm softmax --M 64", "Got unexpected extra argument (softmax)"),
        ("bench --suite llama gemm", "--suite takes the place of OP; leave out gemm or --suite"),
        ("bench gemm --M 4096 --suite=llama", "--suite takes the place of OP; leave out gemm or --suite"),
        ("search --only op=gemm gemm", "--only takes the place of OP; leave out gemm or --only"),
        ("bench --suite llama --M 64", "No such option '--M'"),
    ],
)
def test_what_is_wrong_is_named(tuner: Invoked, words: str, message: str) -> None:
    error = tuner(*words.split()).exception
    assert isinstance(error, TunerError | click.ClickException)
    assert message in (error.format_message() if isinstance(error, click.ClickException) else str(error))


HELP = """
    import json, sys

    class Missing:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in {missing}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.partition(".")[0])

    sys.meta_path.insert(0, Missing())
    import click
    from click.testing import CliRunner
    from tuner import recorded
    from tuner.cli import cli

    shipped = recorded.signatures()
    recorded.signatures = lambda: {{op: signature for op, signature in shipped.items() if op != "scaled_gemm"}}
    shown = {{}}
    for words in {commands}:
        done = CliRunner().invoke(cli, [*words, "--help"], standalone_mode=False)
        shown[" ".join(words)] = repr(done.exception) if done.exception else done.stdout
    json.dump(shown, sys.stdout)
"""
WITHOUT = ("triton", "torch", "optuna", "numpy", "plotly", "fastapi", "pynvml")
WITH_OP = ("search", "best", "why", "explain", "verify", "bench", "record", "forget")


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of every command, and of every op's, in a process that can import none of the extras.

    No space of scaled_gemm is recorded there, as of an op that is new.
    """
    ops = ("gemm", "scaled_gemm", "softmax", "transpose")
    with click.Context(cli) as context:
        commands = [[name] for name in cli.list_commands(context)] + [[name, op] for name in WITH_OP for op in ops]
    story = dedent(HELP).format(missing=WITHOUT, commands=commands)
    done = subprocess.run([sys.executable, "-P", "-c", story], capture_output=True, text=True, check=True)
    shown: dict[str, str] = json.loads(done.stdout)
    assert len(shown) == len(commands)
    return shown


def test_the_help_of_every_command_needs_no_extra(helps: dict[str, str]) -> None:
    assert {words: text for words, text in helps.items() if not text.startswith("Usage: ")} == {}


def test_help_fits_a_terminal(helps: dict[str, str]) -> None:
    wide = {words: [line for line in text.splitlines() if len(line) > 80] for words, text in helps.items()}
    assert {words: lines for words, lines in wide.items() if lines} == {}


@pytest.mark.parametrize("name", WITH_OP)
def test_the_help_of_a_command_has_all_options_and_says_what_an_op_is(helps: dict[str, str], name: str) -> None:
    shown = " ".join(helps[name].split())
    assert "OP is one of the ops below, or a kernel file such as mine.py" in shown
    assert "scaled_gemm its options are known once triton is installed: pip install 'triton-tuner[gpu]'" in shown
    with click.Context(cli) as context:
        command: Any = cli.get_command(context, name)
        for option in (*command.params, *command._options):
            assert all(text in shown for text in option.opts), option.opts


def test_an_op_whose_code_cannot_be_loaded_has_the_other_options(helps: dict[str, str]) -> None:
    assert "its options are known once triton is installed" in " ".join(helps["search scaled_gemm"].split())
    assert "--effort" in helps["search scaled_gemm"]
    assert "--M SIZE" in helps["search gemm"]  # known by a recorded space


def test_a_dry_run_without_triton_says_why_configs_are_not_counted(tmp_path: Path) -> None:
    story = f"""
        import sys
        from tuner.cli import main

        sys.modules.update(dict.fromkeys({WITHOUT}))
        sys.argv = "tuner search gemm --M 48 --dry-run --device nvidia-h200 --db {tmp_path / "tuner.db"}".split()
        sys.exit(main())
    """
    done = subprocess.run([sys.executable, "-P", "-c", dedent(story)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "unknown: the kernel's code is needed to count them: pip install 'triton-tuner[gpu]'\n" in done.stdout


def test_a_model_has_problems_of_some_ops_only(helps: dict[str, str], tuner: Invoked) -> None:
    for op, has in (("gemm", True), ("scaled_gemm", True), ("softmax", False), ("transpose", False)):
        shown = helps[f"search {op}"]
        assert ("--model" in shown, "--tp " in shown, "--shapes" in shown) == (has, has, True), op
    assert "--model" not in tuner("search", toy("double"), "--help").stdout


def test_options_of_the_command_that_an_option_hides_are_still_refused_in_a_sentence(tuner: Invoked) -> None:
    error = tuner("search", "softmax", "--model", "config.json").exception
    assert "--model states the problems of gemm" in str(error)
