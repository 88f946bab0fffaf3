"""The checks of docstrings and words, on small projects that break one rule each."""

from __future__ import annotations

from pathlib import Path

import check_docstrings
import check_words
import pytest
import report_sizes
from source_text import python_files

GLOSSARY = """# Glossary

| term | meaning | not |
|---|---|---|
| answer | The config that a search found. | |
| interleaved comparison (`Comparison`) | Contenders timed in turn. | duel, met |
| early elimination | Finalists leave. | race, sent home |
"""


def project(folder: Path, files: dict[str, str]) -> Path:
    """Write files beside the glossary; return their root."""
    for name, text in {"docs/glossary.md": GLOSSARY, **files}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def complaints(source: str) -> list[tuple[int, str]]:
    return list(check_docstrings.findings(source))


@pytest.mark.parametrize(
    "opening", ["What", "Whether", "How", "Of", "That", "Who", "Where", "None of", "So", "Numbers of"]
)
@pytest.mark.parametrize(
    "source",
    ['"""{} it is."""', 'class A:\n    """{} it is."""', 'def f():\n    """{} it is."""', 'x = 1\n"""{} it is."""'],
    ids=["module", "class", "function", "attribute"],
)
def test_riddles_are_refused_everywhere(opening: str, source: str) -> None:
    assert any(f"begins with {opening!r}" in complaint for _, complaint in complaints(source.format(opening)))


def test_a_function_begins_with_a_verb_and_a_property_with_a_noun() -> None:
    source = '''
class Card:
    """A card."""

    size: int
    """The size, in bytes."""

    @property
    def name(self):
        """The name."""

    @functools.cached_property
    def speed(self):
        """A rate, in GB/s."""

    def read(self):
        """The name."""

        def inner():
            """A name."""

@triton.jit
def kernel(x):
    """An element."""
'''
    assert sorted(line for line, _ in complaints(source)) == [17, 20, 24]


def test_a_docstring_counts_and_names_processes_as_things() -> None:
    source = 'def f():\n    """Return so many rows.\n\n    Nobody who asks waits.\n    """\n'
    assert [line for line, _ in complaints(source)] == [2, 4, 4]
    assert complaints('def f():\n    """Return the whole row."""\n    return "nobody who asks"\n') == []


def test_forbidden_words_come_from_the_glossary() -> None:
    words = check_words.terms(GLOSSARY)
    assert set(words) == {"duel", "met", "race", "sent home"}
    assert words["duel"].startswith("interleaved comparison")


@pytest.mark.parametrize("page", ["", "# Glossary\n\n| term | meaning |\n|---|---|\n| duel | none |\n", GLOSSARY[:40]])
def test_a_glossary_that_forbids_nothing_is_refused(page: str) -> None:
    with pytest.raises(ValueError, match="has a table"):
        check_words.terms(page)


def test_words_are_found_in_pages_docstrings_and_messages_but_not_in_studies_and_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "README.md": "All is well.\nTwo Duels at dawn, a duelist and a metric.\n",
        "docs/search.md": "A finalist is sent home.\n",
        "docs/studies/old.md": "the duel\n",
        "tuner/a.py": 'def duel(n):\n    """Race them."""\n    raise ValueError(f"two met {n}")\n\nKEY = "duel"\n',
    }
    root = project(tmp_path, files)
    assert check_words.main(root) == 1
    places = [line.split(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert places == ["README.md:2:", "docs/search.md:1:", "tuner/a.py:2:", "tuner/a.py:3:"]


def test_a_clean_project_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = project(tmp_path, {"tuner/a.py": '"""Comparisons."""\n\ndef compare():\n    """Return the leader."""\n'})
    assert (check_docstrings.main(root), check_words.main(root)) == (0, 0)
    assert capsys.readouterr().out == ""


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    root = project(tmp_path, {"kernels/gemm.py": '"""Gemm."""\n', "tuner/__init__.py": ""})
    (root / "tuner" / "kernels").symlink_to("../kernels")
    assert [path.name for path in python_files(root)] == ["gemm.py", "__init__.py"]


def test_the_report_shows_packages_imports_and_the_largest(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    body = "\n".join(f"    x{number} = {number}" for number in range(60))
    imports = "from tuner import errors\nfrom tuner.search import search\n"
    files = {
        "db/store.py": f'"""Stores."""\n{imports}\ndef long():\n{body}\n',
        "tuner/errors.py": '"""Errors."""\n',
        "tuner/search/loop.py": '"""Searching."""\nimport tuner.errors\n',
    }
    root = project(tmp_path, files)
    report_sizes.main(root)
    printed = capsys.readouterr().out
    assert "3 packages, 3 modules, 68 lines, 3 imports between packages" in printed
    assert "largest functions (1 of 1 over 50 lines)\n    61  db/store.py long" in printed
    assert "0 findings of check_docstrings.py in 3 docstrings" in printed
