"""The source hash: what changes it and what does not."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from uuid import uuid4

import pytest

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.source import source_hash, tokens

BASE = '''
import math
import triton
import triton.language as tl
import {helper}

STEP = tl.constexpr(4)
UNUSED = 1


@triton.jit
def twice(x):
    return 2 * x


@triton.jit
def kernel(x, N, BLOCK: tl.constexpr):
    """Doubles."""
    # a comment
    n = tl.arange(0, BLOCK * STEP)
    tl.store(x + n, twice(tl.load(x + n)))


def grid(N):
    return math.ceil({helper}.share(N) / 4)


def launch(problem, config, tensors):
    return kernel, grid(problem["N"]), f"{{config}} of {{problem!r}}"
'''
HELPER = "def share(N):\n    return N // 2\n"


class Sources:
    """Writes a kernel file and its helper, loads them anew, and hashes `launch`."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._folder = folder
        monkeypatch.syspath_prepend(str(folder))

    def hash(self, *edits: tuple[str, str], helper: str = HELPER) -> str:
        name = f"helper_{uuid4().hex}"  # imported once a process, whatever the folder
        (self._folder / f"{name}.py").write_text(helper)
        source = BASE.format(helper=name)
        for old, new in edits:
            assert old in source
            source = source.replace(old, new)
        source = source.replace(name, "helper").replace("import helper\n", f"import {name} as helper\n")
        file = self._folder / f"kernel_of_{name}.py"
        file.write_text(source)
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return source_hash(module.launch)


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sources:
    return Sources(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# a comment", "# another comment, and a longer one"),
        ('"""Doubles."""', '"""Multiplies by two,\n    in place."""'),
        ("    n = tl.arange(0, BLOCK * STEP)", "    n = tl.arange(\n        0,   BLOCK*STEP\n    )"),
        ("UNUSED = 1", "UNUSED = 2"),
        ("import math\n", "import math\n\n\n\n"),
        ("@triton.jit\ndef twice", "def unrelated():\n    return 3\n\n\n@triton.jit\ndef twice"),
    ],
)
def test_layout_comments_and_neighbours_change_nothing(sources: Sources, old: str, new: str) -> None:
    assert sources.hash((old, new)) == sources.hash()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return 2 * x", "return x * 2"),  # a jit function it calls
        ("tl.constexpr(4)", "tl.constexpr(8)"),  # a constant it uses
        ("tl.store(x + n", "tl.store(x - n"),
        ("@triton.jit\ndef kernel", '@triton.jit(do_not_specialize=["N"])\ndef kernel'),
        ("/ 4)", "/ 8)"),  # a plain function that launch calls
        ("of {problem!r}", "for {problem!r}"),  # an f-string
    ],
)
def test_what_runs_changes_the_hash(sources: Sources, old: str, new: str) -> None:
    assert sources.hash((old, new)) != sources.hash()


def test_functions_of_imported_modules_count(sources: Sources) -> None:
    assert sources.hash(helper=HELPER.replace("// 2", "// 3")) != sources.hash()


def test_f_strings_are_one_token_on_every_python() -> None:
    assert tokens("x = f'{a:>{width}} of {b!r}'\n") == ["x", "=", "f'{a:>{width}} of {b!r}'", "\n"]


def test_every_kernel_of_ours_has_its_own() -> None:
    assert len({catalog.load(op).source for op in ("gemm", "softmax", "transpose")}) == 3


def test_code_without_a_file_is_refused() -> None:
    scope: dict[str, object] = {}
    exec("def launch(problem, config, tensors): return ()", scope)
    with pytest.raises(
        UsageError, match="a kernel's source is read from its file, and launch has no file; define it in one"
    ):
        source_hash(scope["launch"])  # type: ignore[arg-type]
