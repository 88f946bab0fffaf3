"""The README and the docs: commands run or parse, Python runs, numbers are right, pages are short."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from commands import run_tuner
from shipped_spaces import shipped

import tuner
from tuner import recorded
from tuner.kernels.spec import Kernel, Launch, Operand, Signature
from tuner.measure import device
from tuner.records import VENDOR, median

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
STUDIES = sorted((ROOT / "docs" / "studies").glob("*.md"))
LESSONS = sorted((ROOT / "docs" / "lessons").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *DOCS, *LESSONS, *STUDIES]
LONGER = ("glossary.md", "lesson.md")
"""Pages that may be longer than others: a table of all terms, and a lesson to read from start to end."""
PAGE_WORDS, DOCS_WORDS = 800, 14_500


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return os.environ | {
        "TUNER_DB": str(tmp_path_factory.mktemp("docs") / "tuner.db"),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }


def test_the_readmes_commands_and_python_run(environment: dict[str, str]) -> None:
    lines = [line for block in blocks(ROOT / "README.md", "console") for line in block.splitlines()]
    commands = [line.removeprefix("$ ") for line in lines]
    assert [line for line in lines if line.startswith("$ ")] == lines
    for command in commands:
        if "serve" not in command and "curl" not in command:  # the service has its own test
            subprocess.run(["sh", "-c", command], env=environment, check=True, capture_output=True)
    (story,) = blocks(ROOT / "README.md", "python")
    done = subprocess.run(
        [sys.executable, "-P", "-c", story], env=environment, check=True, capture_output=True, text=True
    )
    match, block_m, warps = done.stdout.split()
    assert match == "stale"
    assert int(block_m) >= 64
    assert int(warps) >= 4


def test_the_commands_of_the_ops_page_run_as_far_as_there_is_a_card(environment: dict[str, str]) -> None:
    commands = [line.removeprefix("$ ") for line in "".join(blocks(ROOT / "docs" / "ops.md", "console")).splitlines()]
    here, elsewhere = commands
    assert subprocess.run(elsewhere.split(), env=environment, check=False).returncode == 0
    assert subprocess.run(here.split(), env=environment, check=False).returncode == (0 if device.count() else 3)


def test_the_commands_on_comparing_run(environment: dict[str, str], tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "bench.md", "console")
    for line in block.splitlines():
        start, *arguments = shlex.split(line)[1:]
        assert start == "tuner"
        done = run_tuner(*arguments, environment=environment, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert {file.name for file in tmp_path.iterdir()} == {"llama.json", "llama.html"}


def test_the_commands_on_spaces_run(environment: dict[str, str], tmp_path: Path) -> None:
    (block,) = blocks(ROOT / "docs" / "spaces.md", "console")
    for line in block.splitlines():
        start, *arguments = shlex.split(line)[1:]
        assert start == "tuner"
        done = run_tuner(*arguments, environment=environment, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert [file.name for file in tmp_path.glob("caches/*")] == ["softmax-8192x8192-fp32-nvidia-h200.json"]


def test_one_config_for_several_problems_is_what_the_page_shows(environment: dict[str, str], tmp_path: Path) -> None:
    (shown,) = blocks(ROOT / "docs" / "search.md", "text")
    (block,) = [block for block in blocks(ROOT / "docs" / "search.md", "console") if "--joint" in block]
    for line in block.splitlines():
        command = ["sh", "-c", line.removeprefix("$ ")]
        done = subprocess.run(command, env=environment, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.splitlines()[-2:] == shown.splitlines()[-2:]


def command_lines(page: Path) -> list[list[str]]:
    """Return the words of each line of a page's console blocks, without comments."""
    lines = "".join(blocks(page, "console")).replace("\\\n", " ").splitlines()
    return [shlex.split(line.removeprefix("$ ").partition(" #")[0].rstrip("& ")) for line in lines]


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_of_pages_have_the_options_that_they_are_given(page: Path, tmp_path: Path) -> None:
    """Parsed, not run: some take hours, a card or a file of the reader's."""
    import click

    from tuner.cli import cli

    with click.Context(cli, info_name="tuner") as context:
        for program, *arguments in command_lines(page):
            if program == "tuner" and not arguments[0].startswith("-"):
                (tmp_path / "token.txt").touch()
                arguments = [str(tmp_path / word) if word == "token.txt" else word for word in arguments]
                command = cli.get_command(context, arguments[0])
                assert command is not None, arguments
                if "--help" not in arguments:
                    command.make_context(arguments[0], arguments[1:], parent=context)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_scripts_of_pages_exist_and_have_the_options_that_they_are_given(page: Path) -> None:
    for program, *arguments in command_lines(page):
        if program == "python":
            source = (ROOT / arguments[0]).read_text()
            assert all(f'"{word}"' in source for word in arguments[1:] if word.startswith("--")), arguments
        elif program.startswith("scripts/"):
            assert os.access(ROOT / program, os.X_OK)


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_python_of_pages_is_python(page: Path) -> None:
    for source in (*blocks(page, "python"), *blocks(page, "py")):
        compile(source, page.name, "exec")


def words(page: Path) -> int:
    return len(page.read_text().split())


@pytest.mark.parametrize("page", [page for page in DOCS if page.name not in LONGER], ids=named)
def test_a_page_is_short(page: Path) -> None:
    assert words(page) <= PAGE_WORDS


def test_the_docs_are_short_together() -> None:
    assert sum(words(page) for page in DOCS if page.name not in LONGER) <= DOCS_WORDS


def test_a_term_has_one_row_of_the_glossary_in_alphabetical_order() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", (ROOT / "docs" / "glossary.md").read_text(), re.MULTILINE)[1:]
    terms = [re.split(r" \(|,", row)[0].lower() for row in rows]
    assert len(set(terms)) == len(terms) > 60
    assert terms == sorted(terms)


def test_what_a_kernel_file_may_state_is_on_its_page() -> None:
    text = (ROOT / "docs" / "kernels.md").read_text()
    parts = {f"`{field.name}`" for field in fields(Kernel)}
    values = {field.name for value in (Signature, Operand, Launch) for field in fields(value)} - {
        "fn",
        "args",
        "kwargs",
        "captured",  # of no file
    }
    assert {part for part in parts if part not in text} == set()
    assert {name for name in values if name not in text} == set()


def test_public_names_and_variables_are_on_a_page() -> None:
    text = "".join(page.read_text() for page in PAGES)
    sources = [file for folder in ("tuner", "db", "api") for file in (ROOT / folder).rglob("*.py")]
    variables = {name for file in sources for name in re.findall(r'"(TUNER_[A-Z_]+)"', file.read_text())}
    assert len(variables) >= 6
    for_our_processes = {"TUNER_CARD", "TUNER_RUN", "TUNER_RUN_REPORT", "TUNER_TASK"}
    inner = {"Precompiled", "__version__", *for_our_processes}
    assert {name for name in {*tuner.__all__, *variables} if name not in text} <= inner


def test_every_command_is_in_the_readme() -> None:
    import click

    from tuner.cli import cli

    text = (ROOT / "README.md").read_text()
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            assert f"`tuner {name}" in text


def test_the_kernel_of_the_docs_is_a_kernel(tmp_path: Path) -> None:
    from helpers import H200, wrongness

    from tuner import catalog

    source, _ = blocks(ROOT / "docs" / "kernels.md", "python")
    file = tmp_path / "documented.py"
    file.write_text(source)
    kernel = catalog.resolve(str(file))
    problem = kernel.signature.problem({"N": 1000})
    error, allowed = wrongness(kernel, problem, kernel.default_config(problem, H200.limits), "cpu")
    assert error == 0
    assert allowed < 1e-6


def test_the_table_of_spaces_is_what_the_files_say() -> None:
    text = (ROOT / "docs" / "spaces.md").read_text()
    for name in recorded.names():
        space = shipped(name)
        assert space.default is not None
        best, default, vendor = (median(space.comparison.of(c)) for c in (space.best.text, space.default.text, VENDOR))
        row = f"| `{name}` | {len(space.measurements):,} | {best / default:.3f} | {best / vendor:.3f} |"
        assert row in text


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", text):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target
