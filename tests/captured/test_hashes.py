"""Hashes of captured functions: equal wherever the function is loaded, and changed by what changes its code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from calls import SHAPES, copied

from tuner.captured.autotuned import taken_apart
from tuner.captured.call import Function
from tuner.captured.functions import load
from tuner.captured.hashes import definition_of, source_of

TEXT = '''
import torch
import triton
import triton.language as tl

SCALE = tl.constexpr(2)
FACTORS = (1, 2)
TABLE = {"a": 1}
size = load = shape = 3  # a benchmark's


def reference(x, n):
    """The right result."""
    return softmax_of(x.softmax(0), TABLE)


def softmax_of(x, table):
    return x * table["a"]


def softmax(x):
    return kernel[lambda meta: (1,)](x, size)


@triton.jit
def scaled(x):
    return x * SCALE


def start(arguments):
    arguments["x"].zero_()


@triton.autotune(
    configs=[triton.Config({"BLOCK": 16}, pre_hook=start), triton.Config({"BLOCK": 32}, pre_hook=start)],
    key=["n"],
)
@triton.heuristics({
    "EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "FIRST": lambda args: FACTORS[0] + args["n"].shape,
})
@triton.jit
def kernel(x, n, EVEN: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(x + at, scaled(tl.load(x + at)))
'''


def hashes(folder: Path, text: str, name: str = "script") -> tuple[str, str]:
    """Return the source of `kernel` and the definition of `reference`, each loaded without the rest of its file."""
    file = copied(text, folder, f"{name}.py")
    source = source_of(taken_apart(load(Function("__main__", file, "kernel"))))
    return source, definition_of(load(Function("__main__", file, "reference")))


def test_they_are_those_of_the_whole_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the process that captures, the names of a benchmark are there too."""
    alone = hashes(tmp_path, TEXT)
    monkeypatch.syspath_prepend(tmp_path)
    whole: Any = __import__("script")
    monkeypatch.delitem(sys.modules, "script")
    assert whole.size == 3
    assert (source_of(taken_apart(whole.kernel)), definition_of(whole.reference)) == alone


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("configs=[", "configs=[triton.Config({'BLOCK': 64}), "),
        ("size = load = shape = 3", "size = load = shape = 4"),
        ('"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, ', '"EVEN": lambda args: args["n"]%args["BLOCK"]==0,\n'),
        ("    at = tl.arange", "    # elements\n    at = tl.arange"),
        ('key=["n"]', 'key=["x", "n"]'),
        ('"""The right result."""', '"""The result."""'),
        ("def softmax(x):", "def softmax(x, y):"),
    ],
)
def test_what_does_not_change_the_code_does_not_change_them(tmp_path: Path, before: str, after: str) -> None:
    assert TEXT.count(before) == 1
    assert hashes(tmp_path, TEXT) == hashes(tmp_path, TEXT.replace(before, after), "other")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("SCALE = tl.constexpr(2)", "SCALE = tl.constexpr(3)"),
        ("x * SCALE", "x + SCALE"),
        ('arguments["x"].zero_()', 'arguments["x"].fill_(1)'),
        ("FACTORS = (1, 2)", "FACTORS = (2, 2)"),
        ('args["n"] % args["BLOCK"] == 0', 'args["n"] % args["BLOCK"] == 1'),
        ("FACTORS[0] + args", "FACTORS[1] + args"),
        ("@triton.jit\ndef kernel", "@triton.jit(do_not_specialize=['n'])\ndef kernel"),
        (", pre_hook=start", ""),
    ],
)
def test_what_changes_the_code_changes_the_source(tmp_path: Path, before: str, after: str) -> None:
    source, definition = hashes(tmp_path, TEXT)
    other = hashes(tmp_path, TEXT.replace(before, after), "other")
    assert other[0] != source
    assert other[1] == definition


@pytest.mark.parametrize(
    ("before", "after"),
    [('x * table["a"]', 'x + table["a"]'), ('TABLE = {"a": 1}', 'TABLE = {"a": 2}'), ("x.softmax(0)", "x.softmax(1)")],
)
def test_what_changes_the_reference_changes_the_definition(tmp_path: Path, before: str, after: str) -> None:
    source, definition = hashes(tmp_path, TEXT)
    other = hashes(tmp_path, TEXT.replace(before, after), "other")
    assert other[0] == source
    assert other[1] != definition


def test_lambdas_of_one_line_differ() -> None:
    """The lines of both are the same, and so is the statement around them."""
    even, bias = taken_apart(load(Function("__main__", SHAPES, "biased"))).inner.values()
    assert definition_of(even) != definition_of(bias)
