"""Prints the sizes of the code: packages and their imports, largest modules and functions, docstrings. Checks nothing.

python scripts/report_sizes.py
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from check_docstrings import findings
from source_text import ROOT, Function, docstrings, python_files

LARGEST = 10
LONG_MODULE, LONG_FUNCTION = 300, 50
LINKED = ("kernels", "db", "api")
"""Folders that are sub-packages of `tuner`."""


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    path: Path
    """Path from the root of the repository."""
    source: str
    tree: ast.Module

    @property
    def lines(self) -> int:
        return len(self.source.splitlines())

    @property
    def room(self) -> str | None:
        """Name of the package below `tuner` that the file belongs to; None outside `tuner`."""
        first, *rest = self.path.parts
        if first in LINKED:
            return first
        return rest[0].removesuffix(".py") if first == "tuner" else None

    def functions(self) -> Iterator[tuple[str, int]]:
        """Yield name and number of lines of each function, without its decorators."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node.name, (node.end_lineno or node.lineno) - node.lineno + 1

    def imports(self) -> set[str]:
        """Return the other packages that this file imports."""
        found = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.ImportFrom) and node.module == "tuner":
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                found.add(_room_of(node.module or ""))
            elif isinstance(node, ast.Import):
                found |= {_room_of(alias.name) for alias in node.names}
        return found - {"", self.room}


def _room_of(module: str) -> str:
    package, _, rest = module.partition(".")
    return rest.partition(".")[0] if package == "tuner" else ""


def read(root: Path = ROOT) -> list[Module]:
    """Return the project's modules."""
    sources = [(path.relative_to(root), path.read_text()) for path in python_files(root)]
    return [Module(path, source, ast.parse(source)) for path, source in sources]


def rooms(modules: list[Module]) -> Iterator[str]:
    """Yield a table of the packages: modules, lines, share of all lines, packages imported."""
    packaged = [module for module in modules if module.room]
    names = sorted({module.room for module in packaged if module.room})
    total = sum(module.lines for module in packaged)
    arrows = 0
    yield f"{'package':12} modules  lines  share  imports"
    for name in names:
        inside = [module for module in packaged if module.room == name]
        lines = sum(module.lines for module in inside)
        imported = set().union(*(module.imports() for module in inside)) & set(names)
        arrows += len(imported)
        yield f"{name:12} {len(inside):7} {lines:6} {lines / total:6.1%}  {' '.join(sorted(imported))}"
    yield f"{len(names)} packages, {len(packaged)} modules, {total} lines, {arrows} imports between packages"


def largest(modules: list[Module]) -> Iterator[str]:
    """Yield the largest modules and functions, with the number of those over the usual size."""
    by_lines = sorted(modules, key=lambda module: -module.lines)
    over = sum(module.lines > LONG_MODULE for module in modules)
    yield f"largest modules ({over} of {len(modules)} over {LONG_MODULE} lines)"
    for module in by_lines[:LARGEST]:
        yield f"{module.lines:6}  {module.path}"
    functions = [(lines, f"{module.path} {name}") for module in modules for name, lines in module.functions()]
    functions.sort(reverse=True)
    over = sum(lines > LONG_FUNCTION for lines, _ in functions)
    yield f"largest functions ({over} of {len(functions)} over {LONG_FUNCTION} lines)"
    for lines, name in functions[:LARGEST]:
        yield f"{lines:6}  {name}"


def described(modules: list[Module]) -> Iterator[str]:
    """Yield the number of docstrings by kind with their words, and the number of refused ones."""
    texts = [text for module in modules for text in docstrings(module.tree)]
    counts = Counter(text.kind for text in texts)
    yield "docstrings    number  words each"
    for kind, count in counts.most_common():
        words = sum(len(re.findall(r"\S+", text.content)) for text in texts if text.kind == kind)
        yield f"{kind:12} {count:7} {words / count:11.1f}"
    refused = sum(1 for module in modules for _ in findings(module.source))
    yield f"{refused} findings of check_docstrings.py in {len(texts)} docstrings"


def main(root: Path = ROOT) -> None:
    """Print the report."""
    modules = read(root)
    for part in (rooms, largest, described):
        print(*part(modules), "", sep="\n")


if __name__ == "__main__":
    main()
