"""Text of the project's Python files: docstrings and messages, each with its line."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
FOLDERS = ("tuner", "kernels", "db", "api", "benchmarks", "scripts")
PROPERTIES = ("property", "cached_property", "setter", "getter")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Text:
    """A piece of text in a file."""

    kind: str
    """`module`, `class`, `function`, `property`, `attribute` (the string below an assignment) or `message`."""
    line: int
    content: str

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield each line of the text with its number in the file."""
        yield from enumerate(self.content.split("\n"), self.line)


def python_files(root: Path = ROOT) -> list[Path]:
    """Return the project's own Python files without the tests; linked folders count once."""
    found = [path for folder in FOLDERS for path in _real_files(root / folder)]
    return sorted(found)


def _real_files(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir() if folder.is_dir() else ():
        if path.is_dir() and not path.is_symlink():
            yield from _real_files(path)
        elif path.suffix == ".py":
            yield path


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Yield the docstrings of a module and of what it defines, and the strings below assignments."""
    for node in ast.walk(tree):
        match node:
            case ast.Module():
                kind = "module"
            case ast.ClassDef():
                kind = "class"
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                kind = "property" if _is_property(node) else "function"
            case _:
                continue
        for before, statement in zip([None, *node.body], node.body, strict=False):
            if (text := _string(statement)) is None:
                continue
            if before is None:
                yield Text(kind, text.lineno, text.value)
            elif isinstance(before, ast.Assign | ast.AnnAssign):
                yield Text("attribute", text.lineno, text.value)


def messages(tree: ast.Module) -> Iterator[Text]:
    """Yield the string literals that hold several words and are no docstring."""
    described = {(text.line, text.content) for text in docstrings(tree)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            continue
        if " " in node.value and (node.lineno, node.value) not in described:
            yield Text("message", node.lineno, node.value)


def report(findings: Iterable[tuple[Path, Iterable[tuple[int, str]]]], root: Path) -> int:
    """Print each finding of each file as `path:line: complaint`; return 1 if there is one."""
    found = False
    for path, complaints in findings:
        for line, complaint in complaints:
            print(f"{path.relative_to(root)}:{line}: {complaint}")
            found = True
    return int(found)


@dataclass(frozen=True)
class _Literal:
    lineno: int
    value: str


def _string(statement: ast.stmt) -> _Literal | None:
    if (
        isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
    ):
        return _Literal(statement.lineno, statement.value.value)
    return None


def _is_property(node: Function) -> bool:
    names = (ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list)
    return any(name in PROPERTIES for name in names)
