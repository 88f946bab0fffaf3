"""Refuses words that `docs/glossary.md` lists as not the project's term, in pages, docstrings and messages.

python scripts/check_words.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

from source_text import ROOT, docstrings, messages, python_files, report

GLOSSARY = Path("docs") / "glossary.md"
HEADER = "| term | meaning | not |"


def terms(glossary: str) -> dict[str, str]:
    """Return the term to use for each word that the glossary's table forbids.

    Raises:
        ValueError: the page has no such table, or it forbids nothing.
    """
    _, header, table = glossary.partition(HEADER)
    rows = [line.strip().strip("|").split("|") for line in table.strip().splitlines() if line.startswith("|")]
    found: dict[str, str] = {}
    for term, _, forbidden in (row for row in rows[1:] if len(row) == 3):
        for word in filter(None, (word.strip() for word in forbidden.split(","))):
            found.setdefault(word, term.strip())
    if not header or not found:
        raise ValueError(
            f"{GLOSSARY} has a table {HEADER!r} with forbidden words in its last column, and none is there"
        )
    return found


def pattern(words: Mapping[str, str]) -> re.Pattern[str]:
    """Return what matches a forbidden word alone or with the ending of a plural or a past form."""
    longest_first = sorted(words, key=len, reverse=True)
    return re.compile(rf"\b({'|'.join(map(re.escape, longest_first))})(?:s|es|d|ed|ing)?\b", re.IGNORECASE)


def findings(lines: Iterator[tuple[int, str]], words: Mapping[str, str]) -> Iterator[tuple[int, str]]:
    """Yield line and message for each forbidden word."""
    matcher = pattern(words)
    lower = {word.lower(): term for word, term in words.items()}
    for number, line in lines:
        for found in matcher.finditer(line):
            yield number, f"{found[0]!r} is not the project's word; see {lower[found[1].lower()]!r} in {GLOSSARY}"


def python_lines(source: str) -> Iterator[tuple[int, str]]:
    """Yield each line of the docstrings and messages of a module with its number."""
    tree = ast.parse(source)
    return chain.from_iterable(text.lines() for text in (*docstrings(tree), *messages(tree)))


def pages(root: Path) -> list[Path]:
    """Return the pages for users: README, CHANGELOG, CONTRIBUTING and docs without the glossary and the studies."""
    top = [root / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [page for page in (*top, *sorted((root / "docs").glob("*.md"))) if page != root / GLOSSARY and page.exists()]


def main(root: Path = ROOT) -> int:
    """Print each finding; return 1 if there is one."""
    words = terms((root / GLOSSARY).read_text())
    texts: list[tuple[Path, Iterator[tuple[int, str]]]] = []
    texts += [(page, enumerate(page.read_text().splitlines(), 1)) for page in pages(root)]
    texts += [(path, python_lines(path.read_text())) for path in python_files(root)]
    return report(((path, findings(lines, words)) for path, lines in texts), root)


if __name__ == "__main__":
    sys.exit(main())
