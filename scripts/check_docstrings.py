"""Refuses docstrings that do not say what they describe: ruff's D401 misses openings such as "Whether" and "How".

python scripts/check_docstrings.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from source_text import ROOT, Text, docstrings, python_files, report

RIDDLES = re.compile(r"(What|Whether|How|Of|That|Who|Where|None of|So|Numbers of)\b")
"""Openings that no docstring has."""
NOUNS = re.compile(r"(A|An|The)\b")
"""Openings that no docstring of a function or method has: it begins with a verb, a property with a noun."""
WORDS = re.compile(r"\b(so many|how many|nobody|somebody|who|whom|whoever|at hand|in vain|for good)\b", re.IGNORECASE)
"""Words that no docstring holds: "number of" counts, and a process is "it" or "which"."""


def findings(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and message for each rule that a docstring of a module breaks."""
    for text in docstrings(ast.parse(source)):
        if complaint := _opening(text):
            yield text.line, complaint
        for number, line in text.lines():
            for word in WORDS.findall(line):
                yield number, f"a docstring has no {word.lower()!r}"


def _opening(text: Text) -> str | None:
    content = text.content.strip()
    if found := RIDDLES.match(content):
        remedy = "begin with an imperative verb" if text.kind == "function" else "begin with a noun"
        return f"docstring of a {text.kind} begins with {found[0]!r}; {remedy}"
    if text.kind == "function" and (found := NOUNS.match(content)):
        return f"docstring of a function begins with {found[0]!r}; begin with an imperative verb"
    return None


def main(root: Path = ROOT) -> int:
    """Print each finding; return 1 if there is one."""
    return report(((path, findings(path.read_text())) for path in python_files(root)), root)


if __name__ == "__main__":
    sys.exit(main())
