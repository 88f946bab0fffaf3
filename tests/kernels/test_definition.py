"""The definition hash: what changes it, what does not, and that it is the same in each process and on each Python."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.definition_hash import LEFT_OUT
from tuner.kernels.spec import Kernel

KERNEL = '''
"""A kernel without Triton, so that a bare Python reads it."""

from functools import cache, partial

import helper
from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature

TOLERANCES = {"fp32": 1e-6, "fp16": 1e-3}
SCALE = 2.0
MEMORY = {}


class Rounding:
    """Rounding of products."""

    def of(self, dtype):
        return TOLERANCES[dtype]


def draw(tensor, generator):
    tensor.uniform_(0, 1)


def operands(problem):
    return {
        "x": Operand((problem["N"],), problem.dtype, fill=draw),
        "out": Operand((problem["N"],), problem.dtype, role="out"),
    }


def launch(problem, config, tensors):
    return ()


@cache
def factor(shift=helper.SHIFT):
    return SCALE + shift


def reference(problem, tensors, rows):
    MEMORY[problem.text] = rows
    return {"out": helper.double(tensors["x"][rows]) * factor()}


def vendor(problem, tensors, scale):
    # in place
    return [tensors["out"].copy_(scale * x) for x in tensors["x"]]


def default(problem, limits):
    return {"BLOCK": 64, "num_warps": 4, "num_stages": 1}


def rounding(problem):
    return Rounding().of(problem.dtype)


KERNEL = Kernel(
    signature=Signature(
        op="twice",
        summary="out = 2 x",
        dims=(Dim("N"),),
        dtypes=("fp32", "fp16"),
        knobs=(Knob("BLOCK", (64, 128)), Knob("num_warps", (4,)), Knob("num_stages", (1,))),
    ),
    operands=operands,
    launch=launch,
    reference=reference,
    vendor=partial(vendor, scale=SCALE),
    default=default,
    rounding=rounding,
    flops=lambda problem: problem["N"],
    workspace=lambda problem, config, limits: {
        f"parts_of_{dtype}": Operand((config["BLOCK"],), dtype) for dtype in ("fp32",)
    },
    exact=False,
)
'''
HELPER = """
SHIFT = 0


def double(x):
    return 2 * x
"""
PRINT = "import sys; from tuner import catalog; print(catalog.resolve(sys.argv[1]).definition)"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return tmp_path


def definition(folder: Path, *edits: tuple[str, str], helper: str = HELPER) -> str:
    """Return the hash of the kernel with these edits, each module under a new path."""
    here = folder / str(len(list(folder.iterdir())))
    here.mkdir()
    sys.path.insert(0, str(here))
    sys.modules.pop("helper", None)
    try:
        return catalog.resolve(str(written(here, *edits, helper=helper))).definition
    finally:
        sys.path.remove(str(here))


def written(here: Path, *edits: tuple[str, str], helper: str = HELPER) -> Path:
    source = KERNEL
    for old, new in edits:
        assert old in source
        source = source.replace(old, new)
    (here / "helper.py").write_text(helper)
    file = here / "twice.py"
    file.write_text(source)
    return file


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    return SCALE + shift", "    return SCALE - shift", id="function of reference"),
        pytest.param("uniform_(0, 1)", "uniform_(-1, 1)", id="fill"),
        pytest.param('problem.dtype, role="out"', '"fp32", role="out"', id="operands"),
        pytest.param("copy_(scale * x)", "copy_(x * scale)", id="vendor"),
        pytest.param("scale=SCALE)", "scale=3.0)", id="argument of a partial"),
        pytest.param("SCALE = 2.0", "SCALE = 3.0", id="constant"),
        pytest.param('"fp16": 1e-3', '"fp16": 1e-2', id="table of a class"),
        pytest.param("return TOLERANCES[dtype]", "return 2 * TOLERANCES[dtype]", id="method"),
        pytest.param("exact=False", "exact=True", id="exact"),
        pytest.param("exact=False", "finite_only=True", id="finite_only"),
        pytest.param("    rounding=rounding,\n", "", id="rounding"),
        pytest.param('f"parts_of_{dtype}"', 'f"{dtype}_parts"', id="workspace"),
    ],
)
def test_what_decides_inputs_and_correctness_changes_it(folder: Path, old: str, new: str) -> None:
    assert definition(folder, (old, new)) != definition(folder)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("    # in place", "    # in place, and a longer comment", id="comment"),
        pytest.param('"""Rounding of products."""', '"""How products are rounded."""', id="docstring"),
        pytest.param("    exact=False,\n", "", id="a default that is stated"),
        pytest.param("    return ()", "    return tuple([])", id="launch"),
        pytest.param('"BLOCK": 64', '"BLOCK": 128', id="default"),
        pytest.param("(64, 128)", "(64, 128, 256)", id="choices"),
        pytest.param("exact=False", "valid=lambda problem, config, limits: config['BLOCK'] > 64", id="valid"),
        pytest.param('lambda problem: problem["N"]', 'lambda problem: 2 * problem["N"]', id="flops"),
    ],
)
def test_what_decides_neither_leaves_it(folder: Path, old: str, new: str) -> None:
    assert definition(folder, (old, new)) == definition(folder)


def test_functions_and_constants_of_imported_modules_count(folder: Path) -> None:
    assert definition(folder, helper=HELPER.replace("2 * x", "x + x")) != definition(folder)
    assert definition(folder, helper=HELPER.replace("SHIFT = 0", "SHIFT = 1")) != definition(folder)


def test_a_memory_that_was_filled_leaves_it(folder: Path) -> None:
    before = definition(folder)
    kernel = catalog.resolve(str(folder / "0" / "twice.py"))
    kernel.reference.fn.__globals__["MEMORY"]["a"] = object()  # type: ignore[attr-defined]
    kernel.reference.fn.__globals__["factor"]()  # type: ignore[attr-defined]
    assert kernel.definition == before


def test_a_wrapper_of_others_counts_by_what_it_wraps(folder: Path) -> None:
    wrapped = ("def reference(", "@contextlib.contextmanager\ndef reference(")
    plain = definition(folder, ("import helper", "import contextlib\nimport helper"), wrapped)
    edited = ("SCALE + shift", "SCALE - shift")
    assert definition(folder, ("import helper", "import contextlib\nimport helper"), wrapped, edited) != plain


def test_a_dataclass_counts_by_its_text(folder: Path) -> None:
    """Its `__init__` is in no file."""
    imported = ("import helper", "from dataclasses import dataclass\nimport helper")
    made = ("class Rounding:", "@dataclass(frozen=True)\nclass Rounding:\n    steps: int = 1\n")
    more = ("steps: int = 1", "steps: int = 2")
    assert definition(folder, imported, made) != definition(folder, imported, made, more)


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("seed", ["1", "2"])
def test_it_is_the_same_in_each_process_and_on_each_python(folder: Path, version: str, seed: str) -> None:
    python = sys.executable if version == f"{sys.version_info.major}.{sys.version_info.minor}" else bare(version)
    root = Path(__file__).parents[2]
    environment = {"PYTHONPATH": f"{root}:{folder}", "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [python, "-c", PRINT, str(written(folder))]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == definition(folder)


def bare(version: str) -> str:
    """Return another Python, without any package."""
    for found in (*Path.home().glob(f".pyenv/versions/{version}.*/bin/python"), shutil.which(f"python{version}")):
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return str(found)
    pytest.skip(f"there is no Python {version}")


def test_each_field_of_a_kernel_counts_or_has_a_reason_not_to() -> None:
    assert {each.name for each in fields(Kernel)} >= LEFT_OUT.keys()


def test_every_kernel_of_ours_has_its_own() -> None:
    assert len({catalog.load(op).definition for op in catalog.shipped()}) == len(catalog.shipped())


def test_code_without_a_file_is_refused(folder: Path) -> None:
    scope: dict[str, object] = {}
    exec("def factor(): return 2.0", scope)
    kernel = catalog.resolve(str(written(folder)))
    kernel.reference.fn.__globals__["factor"] = scope["factor"]  # type: ignore[attr-defined]
    refused = "a kernel's definition is read from its file, and factor has no file; define it in one"
    with pytest.raises(UsageError, match=refused):
        _ = kernel.definition
