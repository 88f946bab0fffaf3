"""Hash of a kernel's definition: the code and the flags that decide its inputs and which outputs are right.

An answer rests on them as on `launch`: a mended reference may find a config wrong that an older one let pass. The hash
covers each field of a kernel but those of `LEFT_OUT`, the functions of ours that they reach, and the values that these
name: constants, tables, defaults of parameters. Values that equal a field's default are left out, so that a new field
keeps old hashes valid. Text is compared by tokens, as in the source hash.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import linecache
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.parts import plain
from tuner.kernels.source import is_others, named, plain_function, tokens

LEFT_OUT = {
    "signature": "its part of a key is the text of the problem and of the config",
    "launch": "the source hash covers it",
    "default": "it decides what is compared with, not what is right",
    "valid": "it decides which configs are tried, and the feasible configs of a search are compared themselves",
    "parts": "as valid",
    "flops": "it only scales the reported rate",
    "draw": "it draws problems, and a problem is a part of the key",
    "estimate": "it orders what is tried",
    "vendor_name": "it is the vendor's name in tables",
    "vendors": "they are compared with, and decide nothing that is right",
    "replaces": "it decides which file is loaded",
    "waits": "it decides when a launch runs, not what it computes",
}
"""Fields of a kernel that its definition hash does not cover, each with the reason."""
CHECK_VERSION = 1
"""Version of the check of outputs. A check that refuses what an older one let pass has a higher one."""
_LIBRARY = {
    f"tuner.kernels.{name}"
    for name in ("spec", "launch", "signature", "problem", "values", "rules", "dtypes", "fields", "parts", "source")
}
"""Modules that kernels are written with. Their functions count by name, as those of torch do."""


def definition_hash(kernel: Any) -> str:
    """Return the first 16 hex digits of the sha256 over the fields of a kernel that decide inputs and correctness.

    Raises:
        UsageError: The source of a function is not in a file.
    """
    reached = Reached()
    reached.add("check", str(CHECK_VERSION))
    for each in fields(kernel):
        value = plain(getattr(kernel, each.name))
        default = each.default if each.default_factory is MISSING else each.default_factory()
        if each.name not in LEFT_OUT and (default is MISSING or value != default):
            reached.add(each.name, reached.text(value))
    return reached.digest()


class Reached:
    """The functions, classes and values that code reaches, as names with texts.

    Args:
        exact: leave out globals that only share their name with an attribute in a function's code.
    """

    def __init__(self, *, exact: bool = False) -> None:
        self._exact = exact
        self.pieces: set[tuple[str, str]] = set()
        self._seen: dict[object, object] = {}
        """By id; the objects are kept, so that no id is given again."""
        self._trees: dict[str, tuple[str, ast.Module]] = {}

    def add(self, name: str, text: str) -> None:
        """Add a text under a name."""
        self.pieces.add((name, text))

    def digest(self) -> str:
        """Return the first 16 hex digits of the sha256 over all that was added."""
        digest = hashlib.sha256()
        for name, piece in sorted(self.pieces):
            digest.update(f"{name}\0{piece}\0".encode())
        return digest.hexdigest()[:16]

    def source(self, function: FunctionType) -> str:
        """Return a function's source. Raises OSError if it is in no file."""
        return textwrap.dedent(inspect.getsource(function.__code__))

    def text(self, value: Any) -> str:
        """Return a value as a text that is the same in each process; functions that it holds are reached."""
        value = plain_function(plain(value))
        kind = type(value)
        if isinstance(value, Enum):
            return f"{kind.__qualname__}.{value.name}"
        if value is None or isinstance(value, bool | int | float | complex | str | bytes):
            return repr(value)
        if isinstance(value, Mapping):
            return self._all("{}", (f"{self.text(key)}: {self.text(held)}" for key, held in value.items()))
        if isinstance(value, tuple | list):
            return self._all("[]", map(self.text, value))
        if isinstance(value, set | frozenset):
            return self._all("{}", sorted(map(self.text, value)))
        return self._code_text(value)

    def _code_text(self, value: Any) -> str:
        """Return the text of a function, a class or an object."""
        kind = type(value)
        if isinstance(value, FunctionType):
            self._function(value)
            return f"function {value.__qualname__}"
        if isinstance(value, MethodType):
            return f"{self.text(value.__func__)} of {self.text(value.__self__)}"
        if isinstance(value, partial):
            return f"partial {self.text(value.func)} {self.text(value.args)} {self.text(value.keywords)}"
        if isinstance(value, type):
            self._class(value)
            return f"class {value.__qualname__}"
        if isinstance(inner := getattr(value, "__wrapped__", None), FunctionType):  # of functools.cache
            return self.text(inner)
        if kind.__module__.partition(".")[0] == "torch" and kind.__name__ == "dtype":
            return repr(value)
        if kind.__name__ == "constexpr":
            return self.text(value.value)
        if is_others(kind.__module__) or kind.__module__ == "builtins":
            return f"{kind.__qualname__} {getattr(value, '__qualname__', '')}"
        self._class(kind)
        if id(value) in self._seen or not is_dataclass(value):
            return f"object of {kind.__qualname__}"
        self._seen[id(value)] = value
        return f"{kind.__qualname__} {self.text({each.name: getattr(value, each.name) for each in fields(value)})}"

    @staticmethod
    def _all(brackets: str, texts: Iterable[str]) -> str:
        return f"{brackets[0]}{', '.join(texts)}{brackets[1]}"

    def _function(self, function: FunctionType) -> None:
        """Add a function and what it names."""
        module = str(function.__globals__.get("__name__", ""))
        if id(function) in self._seen or module in _LIBRARY:
            return
        self._seen[id(function)] = function
        if is_others(module):  # a wrapper such as that of torch.no_grad(), around a function of ours
            for cell in function.__closure__ or ():
                if isinstance(inner := plain_function(cell.cell_contents), FunctionType):
                    self._function(inner)
            return
        name = function.__qualname__
        try:
            source = self.source(function)
        except OSError as error:
            raise UsageError(
                f"a kernel's definition is read from its file, and {name} has no file; define it in one"
            ) from error
        self.add(name, " ".join(tokens(source)))
        if defaults := [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items()]:
            self.add(f"defaults of {name}", self.text(defaults))
        for used, value, namespace in named(function, exact=self._exact):
            if value is not None and not isinstance(value, ModuleType):
                self._global(used, value, namespace)

    def _class(self, kind: type) -> None:
        """Add a class of ours: its text and what its methods name, but for those that a decorator has made of it."""
        if id(kind) in self._seen or is_others(kind.__module__) or kind.__module__ in (*_LIBRARY, "builtins"):
            return
        self._seen[id(kind)] = kind
        try:
            self.add(kind.__qualname__, " ".join(tokens(textwrap.dedent(inspect.getsource(kind)))))
        except OSError:  # made by code, such as a namedtuple: its name stands for it
            return
        for base in kind.__bases__:
            self._class(base)
        for member in vars(kind).values():
            for inner in (member, getattr(member, "__func__", None), getattr(member, "fget", None)):
                if not isinstance(inner, FunctionType) or inner.__code__.co_filename.startswith("<"):
                    continue
                if inner.__globals__.get("__name__") == kind.__module__:
                    self._function(inner)

    def _global(self, name: str, value: Any, namespace: Mapping[str, Any]) -> None:
        """Add a value under the name by which code reaches it.

        Of a table that code may fill later, such as a cache, the text that made it counts.
        """
        made = self._made(name, namespace) if isinstance(value, dict | list | set) else None
        if made is None:
            self.add(name, self.text(value))
            return
        source, node = made
        self.add(name, " ".join(tokens(source)))
        if (name, id(namespace)) in self._seen:
            return
        self._seen[name, id(namespace)] = namespace
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and inner.id in namespace and inner.id != name:
                self._global(inner.id, namespace[inner.id], namespace)

    def _made(self, name: str, namespace: Mapping[str, Any]) -> tuple[str, ast.expr] | None:
        """Return the expression that a module assigns to a name, or None if it assigns none."""
        file = namespace.get("__file__")
        if not isinstance(file, str):
            return None
        if file not in self._trees:
            linecache.checkcache(file)
            source = "".join(linecache.getlines(file))
            self._trees[file] = source, ast.parse(source)
        source, tree = self._trees[file]
        for statement in tree.body:
            targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                value = getattr(statement, "value", None)
                segment = None if value is None else ast.get_source_segment(source, value)
                return None if value is None or segment is None else (segment, value)
        return None
