"""PTX as instructions: the code of one kernel, with the source line of each instruction.

PTX is read, not the layouts of Triton's own representation: it states each address and width that the compiler chose,
for Triton and Gluon alike, and its language does not change from one version of Triton to the next.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s[^,]*?([\w$]+)(?:\[(\d+)\])?\s*(?:,|$)", re.DOTALL)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"[^"]*?"?([^"/]+)"\s*(?:,.*)?$', re.MULTILINE)
_LOCATION = re.compile(r"\.loc\s+(\d+)\s+(\d+)")
_LABEL = re.compile(r"([$\w]+):(?!:)")
_GUARD = re.compile(r"@(!?)(%?[\w$]+)\s+")
_REGISTER = re.compile(r"%[\w$]+(?:\.[xyz])?")
_THREADS = re.compile(r"\.(?:reqntid|maxntid)\s+(\d+)")

_WITHOUT_TARGET = frozenset(
    ("st", "red", "bra", "stmatrix", "cp", "mbarrier", "bar", "barrier", "fence", "membar", "prefetch", "ret", "exit")
)
"""Instructions whose first operand is no register that they set."""


@dataclass(frozen=True)
class Instruction:
    """One instruction. `line` is its place in the source, such as `tiles.py:35`; empty if unknown."""

    opcode: str
    operands: tuple[str, ...]
    guard: str = ""
    """Predicate register; the instruction has an effect in threads in which it is true."""
    negated: bool = False
    """True if it has an effect where the guard is false."""
    line: str = ""

    @cached_property
    def parts(self) -> tuple[str, ...]:
        """The opcode at its dots: `("ld", "global", "v4", "b32")`."""
        return tuple(self.opcode.split("."))

    @cached_property
    def reads(self) -> tuple[str, ...]:
        """Registers whose values it needs."""
        sources = self.operands if self.parts[0] in _WITHOUT_TARGET else self.operands[1:]
        return tuple(dict.fromkeys(_REGISTER.findall(" ".join(sources))))

    @cached_property
    def writes(self) -> tuple[str, ...]:
        """Registers that it sets."""
        if self.parts[0] in _WITHOUT_TARGET:
            return ()
        return tuple(_REGISTER.findall(" ".join(self.operands[:1])))

    @property
    def width(self) -> int:
        """Bytes that one thread of a load or store moves."""
        count = next((int(part[1:]) for part in self.parts if part in ("v2", "v4", "v8")), 1)
        digits = re.search(r"\d+$", self.parts[-1])
        return count * int(digits[0]) // 8 if digits else 0


@dataclass(frozen=True)
class Code:
    """The instructions of one kernel."""

    name: str
    parameters: tuple[str, ...]
    descriptors: frozenset[str]
    """Parameters that are tensor descriptors, passed by value."""
    threads: int
    """Threads of a program."""
    instructions: tuple[Instruction, ...]
    labels: Mapping[str, int] = field(repr=False)
    """Index of the instruction that follows each label."""
    tables: Mapping[str, tuple[str, ...]] = field(repr=False)
    """Labels of each table of jump targets."""


def parse(ptx: str) -> Code | None:
    """Return the code of the first kernel in a PTX text; None if there is none."""
    plain = re.sub(r"//[^\n]*", "", ptx).replace("\t", " ")
    entry = _ENTRY.search(plain)
    if entry is None:
        return None
    name, parameters, attributes = entry.groups()
    named = _PARAMETER.findall(parameters)
    threads = _THREADS.search(attributes)
    files = dict(_FILE.findall(ptx))
    instructions: list[Instruction] = []
    labels: dict[str, int] = {}
    tables: dict[str, tuple[str, ...]] = {}
    line = ""
    for scope, statement in _statements(_body(plain, entry.end())):
        if statement.startswith(".loc"):
            found = _LOCATION.match(statement)
            if found is not None and found[2] != "0" and found[1] in files:
                line = f"{files[found[1]]}:{found[2]}"
        elif statement.endswith(":"):
            labels[f"{scope}{statement[:-1]}"] = len(instructions)
        elif statement.startswith(".branchtargets"):
            table = next(name for name, place in reversed(labels.items()) if place == len(instructions))
            tables[table] = tuple(re.findall(r"\$[\w$]+", statement))
        elif not statement.startswith("."):
            instructions.append(_instruction(statement, scope, line))
    return Code(
        name,
        tuple(parameter for parameter, _ in named),
        frozenset(parameter for parameter, size in named if size == "128"),
        int(threads[1]) if threads else 128,
        tuple(instructions),
        labels,
        tables,
    )


def _body(text: str, start: int) -> str:
    """Return the text up to the brace that closes the one before `start`."""
    depth = 1
    for brace in re.finditer(r"[{}]", text[start:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[start : start + brace.start()]
    return text[start:]


def _statements(body: str) -> Iterator[tuple[str, str]]:
    """Yield the statements and labels of a function, each with its scope: inline assembly has labels of its own."""
    scopes, opened, pending = [""], 0, ""
    for raw in body.splitlines():
        text = raw.strip()
        if not pending and text.startswith(".loc"):
            yield scopes[-1], text
            continue
        pending = f"{pending} {text}".strip()
        while pending:
            if pending[0] == "{":
                opened += 1
                scopes.append(f"{opened}.")
                pending = pending[1:].strip()
            elif pending[0] == "}":
                scopes.pop()
                pending = pending[1:].strip()
            elif label := _LABEL.match(pending):
                yield scopes[-1], label[0]
                pending = pending[label.end() :].strip()
            elif ";" in pending:
                statement, _, pending = pending.partition(";")
                pending = pending.strip()
                if statement.strip():
                    yield scopes[-1], statement.strip()
            else:
                break


def _instruction(statement: str, scope: str, line: str) -> Instruction:
    guard = _GUARD.match(statement)
    rest = statement[guard.end() :] if guard else statement
    opcode, _, operands = rest.partition(" ")
    split = tuple(_operands(operands.strip()))
    if opcode.startswith("bra") and split and not split[0].startswith("$"):
        split = (f"{scope}{split[0]}",)  # a label of inline assembly
    return Instruction(opcode, split, guard[2] if guard else "", bool(guard and guard[1]), line)


def _operands(text: str) -> Iterator[str]:
    """Yield operands, split at the commas outside brackets."""
    depth, start = 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            yield text[start:place].strip()
            start = place + 1
    if text[start:].strip():
        yield text[start:].strip()
