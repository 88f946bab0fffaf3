"""Mistakes in kernel files: each ends in one line that names the field, or file and line, without a traceback."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from helpers import H200, reaching, toy
from invoked import Invoked
from shipped_spaces import shipped

import tuner.kernels
from tuner import catalog, recorded
from tuner.cli import cli
from tuner.cli.op_commands import OpCommands
from tuner.errors import KernelFault, UsageError
from tuner.kernels.fields import RESERVED
from tuner.lookup.query import COMPARED
from tuner.measure.compile import describe_error
from tuner.measure.gpu import GpuMeasurer
from tuner.records import Measurement, Outcome
from tuner.search import Result
from tuner.tuning.check_kernel import CheckKernelSettings, check_kernel
from tuner.tuning.check_knobs import CheckKnobsSettings
from tuner.tuning.tuned import nothing_ran

DOUBLE = '''"""out = 2 x."""

import triton
import triton.language as tl
from tuner import Attribute, Dim, Kernel, Knob, Launch, Operand, Signature


@triton.jit
def double(x, out, N, BLOCK: tl.constexpr):
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = 2 * tl.load(x + n, mask=n < N)
    tl.store(out + n, values, mask=n < N)


def launch(problem, config, tensors):
    N, block = problem["N"], config["BLOCK"]
    options = {"BLOCK": block, "num_warps": config["num_warps"], "num_stages": config["num_stages"]}
    return (Launch(double, (-(-N // block),), (tensors["x"], tensors["out"], N), options),)


KERNEL = Kernel(
    signature=Signature(
        op="double",
        summary="out = 2 x",
        dims=(Dim("N"),),
        dtypes=("fp32",),
        knobs=(
            Knob("BLOCK", (64, 128, 256, 512, 1024, 2048, 4096)),
            Knob("num_warps", (1, 2, 4, 8, 16)),
            Knob("num_stages", (1,)),
        ),
    ),
    operands=lambda problem: {"x": Operand((problem["N"],), "fp32"), "out": Operand((problem["N"],), "fp32", "out")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    vendor=lambda problem, tensors: tensors["out"].copy_(tensors["x"] * 2),
    default=lambda problem, limits: {"BLOCK": 256, "num_warps": 4, "num_stages": 1},
)
'''
QUICK = CheckKernelSettings(knobs=CheckKnobsSettings(configs=0, choices_s=0), small_sizes=(129,))
DIM, BLOCK = 'Dim("N")', 'Knob("BLOCK", (64, 128, 256, 512, 1024, 2048, 4096))'
KNOBS = DOUBLE[DOUBLE.index("knobs=(") : DOUBLE.index("    ),\n    operands")].rstrip()
WARPS, STAGES = 'Knob("num_warps", (1, 2, 4, 8, 16))', 'Knob("num_stages", (1,))'
X, OUT = 'Operand((problem["N"],), "fp32")', 'Operand((problem["N"],), "fp32", "out")'
OPERANDS = f'lambda problem: {{"x": {X}, "out": {OUT}}}'
GRID = "(-(-N // block),)"
RETURN = 'return (Launch(double, (-(-N // block),), (tensors["x"], tensors["out"], N), options),)'

HOOKED = RETURN.replace("options)", "options, pre_hook={})")
STORE = "tl.store(out + n, values, mask=n < N)"

REFERENCE = 'lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2}'
VENDOR = 'lambda problem, tensors: tensors["out"].copy_(tensors["x"] * 2)'
DEFAULT = '{"BLOCK": 256, "num_warps": 4, "num_stages": 1}'
LAST = f"default=lambda problem, limits: {DEFAULT},\n"
ATTRIBUTES = 'dtypes=("fp32",),'


def attribute(text: str) -> str:
    return f"{ATTRIBUTES} attributes=(Attribute({text}),),"


def also(text: str) -> str:
    """Return the end of the kernel with another field."""
    return f"{LAST}    {text},\n"


MISTAKES = {
    # The file.
    "no KERNEL": ("KERNEL = ", "OTHER = ", "a kernel file ends in KERNEL = Kernel(...)"),
    "KERNEL of another type": ("KERNEL = Kernel(", "KERNEL = dict(", "a kernel file ends in KERNEL = Kernel(...)"),
    "syntax error": ("def launch(", "def launch((", "line 15 raises SyntaxError"),
    "missing package": ("import triton\n", "import no_such_package\n", "needs no_such_package, which is not installed"),
    "missing name": ("launch=launch", "launch=start", "line 34 raises NameError: name 'start' is not defined"),
    "raises when imported": ("KERNEL = ", "1 / 0\nKERNEL = ", "line 21 raises ZeroDivisionError"),
    "ends the process": ("KERNEL = ", "raise SystemExit(3)\nKERNEL = ", "line 21 raises SystemExit"),
    "no launch": ("    launch=launch,\n", "", "missing 1 required positional argument: 'launch'"),
    "unknown field": (LAST, also("tolerance=1"), "unexpected keyword argument 'tolerance'"),
    # The signature.
    "op in capitals": ('op="double"', 'op="Double"', "an op's name is lower-case letters, digits and _"),
    "op is a number": ('op="double"', "op=3", "an op's name is lower-case letters, digits and _, up to 64, not 3"),
    "op that ships": (
        'op="double"',
        'op="gemm"',
        "gemm is one that ships; rename it, or state Kernel(..., replaces=True)",
    ),
    "summary is a number": ('summary="out = 2 x"', "summary=2", "double: summary is a string, not 2"),
    "signature is a dict": ("signature=Signature(", "signature=dict(", "Kernel: signature is a Signature, not {"),
    "dims is no tuple": (f"({DIM},)", DIM, "double: dims is a tuple of Dim values, not Dim("),
    "dims has text": (f"({DIM},)", '("N",)', "double: dims is a tuple of Dim values, and has 'N'"),
    "no dims": (f"({DIM},)", "()", "double: dims has at least one Dim, not ()"),
    "dim without a name": (
        DIM,
        "Dim(4096)",
        "the name of a dim is a letter, then letters, digits and _, up to 64, not 4096",
    ),
    "dim with a dash": (
        DIM,
        'Dim("N-1")',
        "the name of a dim is a letter, then letters, digits and _, up to 64, not 'N-1'",
    ),
    "dim called db": (DIM, 'Dim("db")', "a dim has a name of its own, and 'db' is an option of the command line"),
    "dim called json": (DIM, 'Dim("json")', "'json' is an option of the command line"),
    "dim called dtype": (DIM, 'Dim("dtype")', "'dtype' is an option of the command line"),
    "dim called dry_run": (DIM, 'Dim("dry_run")', "'dry_run' is an option of the command line"),
    "dim twice": (DIM, f"{DIM}, {DIM}", "double: dims and attributes have distinct names, and N is there twice"),
    "dim of a later dim": (DIM, 'Dim("N", "M"), Dim("M")', "the default of Dim N is a number or an earlier dim"),
    "dim of no dim": (
        DIM,
        'Dim("N", "X")',
        "the default of Dim N is a number or an earlier dim (none before it), not 'X'",
    ),
    "dim of size 0": (DIM, 'Dim("N", 0)', "Dim N: default is a whole number from 1 to 2147483647, not 0"),
    "dim of half": (DIM, 'Dim("N", 0.5)', "Dim N: default is a whole number from 1 to 2147483647, not 0.5"),
    "ranges fall": (DIM, 'Dim("N", ranges=(16, 9))', "Dim N: each of ranges is a whole number from 17 to 2147483647"),
    "help is a number": (DIM, 'Dim("N", help=1)', "Dim N: help is a string, not 1"),
    "dtypes is text": (ATTRIBUTES, 'dtypes="fp32",', "double: dtypes is a tuple of names of dtypes, not 'fp32'"),
    "no dtypes": (ATTRIBUTES, "dtypes=(),", "double: dtypes has at least one name, not ()"),
    "unknown dtype": (ATTRIBUTES, 'dtypes=("fp99",),', "double: a dtype is one of fp64, fp32"),
    "dtype by torch's name": (
        ATTRIBUTES,
        'dtypes=("float32",),',
        "goes by its short name, not 'float32'; write 'fp32'",
    ),
    "dtype twice": (ATTRIBUTES, 'dtypes=("fp32", "fp32"),', "dtypes have distinct names, and fp32 is there twice"),
    "attribute without choices": (
        ATTRIBUTES,
        attribute('"act", (), "no"'),
        "Attribute act: choices has at least one value",
    ),
    "attribute's default": (
        ATTRIBUTES,
        attribute('"act", ("no",), "yes"'),
        "Attribute act: default is one of no, not 'yes'",
    ),
    "attribute called gpu": (
        ATTRIBUTES,
        attribute('"gpu", (1,), 1'),
        "an attribute has a name of its own, and 'gpu' is",
    ),
    "attribute called like a dim": (ATTRIBUTES, attribute('"N", (1,), 1'), "distinct names, and N is there twice"),
    "attribute of no dtype": (
        ATTRIBUTES,
        attribute('"a", (1,), 1, "", ("bf16",)'),
        "dtypes of Attribute a are among fp32",
    ),
    "attribute's default is True, not 1": (
        ATTRIBUTES,
        attribute('"a", (1, 2), True'),
        "Attribute a: default is one of 1, 2",
    ),
    "knobs is no tuple": (KNOBS, f"knobs=[{BLOCK}],", "double: knobs is a tuple of Knob values, not [Knob("),
    "choices is a list": (
        BLOCK,
        'Knob("BLOCK", [64])',
        "Knob BLOCK: choices is a tuple of numbers, of bools or of strings, not [64]",
    ),
    "choices without a comma": (
        BLOCK,
        'Knob("BLOCK", (64))',
        "Knob BLOCK: choices is a tuple of numbers, of bools or of strings, not 64",
    ),
    "no choices": (BLOCK, 'Knob("BLOCK", ())', "Knob BLOCK: choices has at least one value, not ()"),
    "choices of two kinds": (
        BLOCK,
        'Knob("BLOCK", (64, "128"))',
        "choices are of one kind, not number and str ('128')",
    ),
    "choices of floats": (
        BLOCK,
        'Knob("BLOCK", (64.0, 128.0, 256.0))',
        "line 18: launch: Launch: grid is a tuple of one",
    ),
    "choice that is infinite": (BLOCK, 'Knob("BLOCK", (64, float("inf")))', "of bools or of strings, and has inf"),
    "attribute of None": (ATTRIBUTES, attribute('"a", (1, None), 1'), "of bools or of strings, and has None"),
    "choice twice": (BLOCK, 'Knob("BLOCK", (64, 64))', "Knob BLOCK: choices are distinct, and 64 is there twice"),
    "knob's default": (BLOCK, 'Knob("BLOCK", (64,), default=32)', "Knob BLOCK: default is one of 64, not 32"),
    "knob twice": (BLOCK, f"{BLOCK}, {BLOCK}", "double: knobs have distinct names, and BLOCK is there twice"),
    "knob without a name": (BLOCK, 'Knob("", (64,))', "the name of a knob is a letter, then letters"),
    "three warps": (WARPS, 'Knob("num_warps", (3,))', "Knob num_warps: each choice is a power of two, not 3"),
    "warps as text": (
        WARPS,
        'Knob("num_warps", ("4",))',
        "Knob num_warps: each choice is a whole number from 1 on, not '4'",
    ),
    "negative stages": (
        STAGES,
        'Knob("num_stages", (-1,))',
        "Knob num_stages: each choice is a whole number from 0 on, not -1",
    ),
    "no warps": (f"            {WARPS},\n", "", "double: every config states num_warps; add the knob"),
    # The kernel.
    "launch is None": ("launch=launch", "launch=None", "double: launch is a function, not None"),
    "valid is True": (LAST, also("valid=True"), "double: valid is a function, not True"),
    "exact is text": (LAST, also('exact="yes"'), "double: exact is True or False, not 'yes'"),
    "parts is a dict": (LAST, also("parts={}"), "double: parts is a tuple of dicts, not {}"),
    "no parts": (LAST, also("parts=()"), "double: parts has at least one dict, not ()"),
    "parts of no knob": (
        LAST,
        also('parts=({"TILE": (1,)},)'),
        "double: parts name knobs (BLOCK, num_warps, num_stages), not 'TILE'",
    ),
    "parts of no choice": (
        LAST,
        also('parts=({"BLOCK": (1,)},)'),
        "double: parts have choices of the knob BLOCK, not 1",
    ),
    # The operands.
    "unknown role": ('"out")', '"output")', "line 33: operands: Operand: role is in, out or inout, not 'output'"),
    "operand of no dtype": (X, 'Operand((problem["N"],), "fp99")', "line 33: operands: Operand: a dtype is one of"),
    "shape is a number": (X, 'Operand(problem["N"], "fp32")', "Operand: shape is a tuple of sizes, not 1024"),
    "shape of floats": (X, 'Operand((problem["N"] / 2,), "fp32")', "Operand: shape is a tuple of sizes, and has 512.0"),
    "negative shape": (X, 'Operand((-1,), "fp32")', "Operand: each size of shape is a whole number from 0 on, not -1"),
    "too many strides": (
        X,
        'Operand((problem["N"],), "fp32", strides=(1, 1))',
        "strides has a number for each dim of shape",
    ),
    "fill is a number": (X, 'Operand((problem["N"],), "fp32", fill=0)', "Operand: fill is a function, not 0"),
    "nothing is written": ('"fp32", "out")', '"fp32")', "operands has one that is written, and each has the role in"),
    "operands is a list": (OPERANDS, f"lambda problem: [{X}, {OUT}]", "line 33: operands returns a dict, not list"),
    "operand is a tuple": (OUT, "(1,)", "operands returns Operand values, and out is (1,)"),
    "operands raises": (X, 'Operand((problem["M"],), "fp32")', "line 33: operands raises KeyError: 'M'"),
    "output that shares memory": (
        OUT,
        'Operand((problem["N"],), "fp32", "out", strides=(0,))',
        "line 33: operands: Operand: written elements share no memory, and do by strides (0,)",
    ),
    "negative stride": (
        X,
        'Operand((problem["N"],), "fp32", strides=(-1,))',
        "each of strides is a whole number from 0",
    ),
    # Rules.
    "default raises": (DEFAULT, '{"BLOCK": problem["K"]}', "line 37: default raises KeyError: 'K'"),
    "default is no choice": (DEFAULT, DEFAULT.replace("256", "48"), "line 37: default chooses BLOCK among 64, 128"),
    "default omits a knob": (
        DEFAULT,
        '{"BLOCK": 64, "num_warps": 4}',
        "line 37: default: a double config states every knob",
    ),
    "default has another knob": (
        DEFAULT,
        DEFAULT.replace("BLOCK", "TILE"),
        "line 37: default: a double config has the knobs",
    ),
    "default is None": (DEFAULT, "None", "line 37: default returns a dict, not NoneType"),
    "default is refused": (
        LAST,
        also('valid=lambda problem, config, limits: config["BLOCK"] < 256'),
        "line 37: the default BLOCK=256 num_stages=1 num_warps=4 is refused by valid (",
    ),
    "valid raises": (
        LAST,
        also('valid=lambda problem, config, limits: config["TILE"]'),
        "line 38: valid raises KeyError: 'TILE'",
    ),
    "valid returns None": (
        LAST,
        also("valid=lambda problem, config, limits: None"),
        "line 38: valid returns True, False or a text, not None",
    ),
    "valid refuses all": (
        LAST,
        also("valid=lambda problem, config, limits: False"),
        "no config of double is feasible for double N=1024 dtype=fp32 on NVIDIA H200: 35 refused by valid (",
    ),
    "flops raises": (LAST, also('flops=lambda problem: problem["K"]'), "line 38: flops raises KeyError: 'K'"),
    "flops is text": (LAST, also('flops=lambda problem: "2"'), "line 38: flops returns a number from 0 on, not '2'"),
    "rounding is None": (
        LAST,
        also("rounding=lambda problem: None"),
        "line 38: rounding returns a number from 0 on, not None",
    ),
    "workspace is None": (
        LAST,
        also("workspace=lambda problem, config, limits: None"),
        "line 38: workspace returns a dict",
    ),
    "valid is no function of three": (
        LAST,
        also("valid=lambda problem: True"),
        "line 38: valid raises TypeError: <lambda>() takes 1 positional argument but 3 were given",
    ),
    "valid is an empty tuple": (LAST, also("valid=()"), "double: valid has at least one function, not ()"),
    "valid has a number": (LAST, also("valid=(1,)"), "double: valid is a function, not 1; define it"),
    "one of several rules refuses all": (
        LAST,
        also('valid=(lambda problem, config, limits: True, lambda problem, config, limits: "too large")'),
        "35 refused by valid (",
    ),
    "vendor is text": (VENDOR, '"torch"', "double: vendor is a function, not 'torch'"),
    "vendor's name is a number": (LAST, also("vendor_name=3"), "double: vendor_name is up to 24 letters, digits"),
    # Launches, compiled for a card.
    "launch raises": (
        'problem["N"], config["BLOCK"]',
        'problem["N"], config["TILE"]',
        "line 16: launch raises KeyError: 'TILE'",
    ),
    "launch returns None": (
        RETURN,
        RETURN.removeprefix("return "),
        "line 15: launch returns a tuple of Launch values, not None",
    ),
    "launches nothing": (RETURN, "return ()", "line 15: outputs deviate from the reference by inf"),
    "launch returns one": (
        RETURN,
        "return [Launch(double, (1,), (), {})]",
        "launch returns a tuple of Launch values, not [Launch(",
    ),
    "grid is a function": (
        GRID,
        "lambda meta: (1,)",
        "line 18: launch: Launch: grid is a tuple of one to three numbers",
    ),
    "grid of floats": (
        GRID,
        "(N / block,)",
        "line 18: launch: Launch: grid is a tuple of one to three numbers, and has 4.0",
    ),
    "no jit": ("@triton.jit\n", "", "Launch: fn is a function under @triton.jit, not <function double"),
    "unknown instruction": ("tl.arange(", "tl.no_such_thing(", "line 10: "),
    "unknown argument": ('{"BLOCK": block,', '{"TILE": block,', "line 9: TypeError: "),
    "launch takes no tensors": (
        "def launch(problem, config, tensors):",
        "def launch(problem, config):",
        "line 15: launch raises TypeError: launch() takes 2 positional arguments but 3 were given",
    ),
    "absent tensor": ('(tensors["x"], tensors["out"], N)', '(tensors["y"], N)', "line 18: launch raises KeyError: 'y'"),
    "launch reads an element": (
        'N, block = problem["N"]',
        'N, block = int(tensors["x"].sum())',
        "line 16: launch raises RuntimeError: Tensor.item() cannot be called on meta tensors",
    ),
    "argument is missing": (
        'tensors["x"], tensors["out"], N)',
        'tensors["x"], tensors["out"])',
        "line 9: TypeError: dynamic_func() missing 1 required positional argument: 'N'",
    ),
    "grid of four": (GRID, "(1, 1, 1, 1)", "line 18: launch: Launch: grid is a tuple of one to three numbers, not"),
    "hook is a number": (RETURN, HOOKED.format(1), "line 18: launch: Launch: pre_hook is a function, not 1; define it"),
    "hook raises": (RETURN, HOOKED.format("lambda given: given['y']"), "line 18: pre_hook raises KeyError: 'y'"),
    # Results, in the interpreter.
    "fill raises": (
        X,
        'Operand((problem["N"],), "fp32", fill=lambda tensor, generator: tensor.no_such())',
        "line 33: fill raises AttributeError: 'Tensor' object has no attribute 'no_such'",
    ),
    "reference raises": (REFERENCE, REFERENCE.replace('["x"]', '["y"]'), "line 35: reference raises KeyError: 'y'"),
    "reference of another shape": (
        REFERENCE,
        REFERENCE.replace("[rows]", "[rows][:1]"),
        "returns the rows of out in shape (65,), not (1,)",
    ),
    "reference of all rows": (
        REFERENCE,
        REFERENCE.replace("[rows]", ""),
        "returns the rows of out in shape (65,), not (129,)",
    ),
    "reference of another name": (REFERENCE, REFERENCE.replace('"out"', '"y"'), "and out is not in y"),
    "reference is a tensor": (
        REFERENCE,
        'lambda problem, tensors, rows: tensors["x"][rows] * 2',
        "reference returns a dict",
    ),
    "reference is wrong": (
        REFERENCE,
        REFERENCE.replace("* 2", "* 3"),
        "vendor and reference differ by more than rounding: out[0] is",
    ),
    "vendor raises": (VENDOR, VENDOR.replace('["x"]', '["y"]'), "line 36: vendor raises KeyError: 'y'"),
    "vendor writes nothing": (
        VENDOR,
        'lambda problem, tensors: tensors["x"] * 2',
        "vendor and reference differ by more than rounding: out[0] is",
    ),
    "vendor changes its input": (
        VENDOR,
        VENDOR.replace("* 2", ".mul_(2)").replace('["x"] ', '["x"]'),
        "line 36: vendor and reference only read x, and one of them changes it",
    ),
    "reference is NaN": (
        REFERENCE,
        REFERENCE.replace("* 2", '* float("nan")'),
        "reference has finite values, and none in",
    ),
    "reference is what the kernel wrote": (
        REFERENCE,
        'lambda problem, tensors, rows: {"out": tensors["out"][rows]}',
        "line 35: reference computes out from what the kernel reads, not from its outputs",
    ),
    "reference writes to the output": (
        REFERENCE,
        'lambda problem, tensors, rows: {"out": tensors["out"].copy_(tensors["x"] * 2)[rows]}',
        "line 35: reference computes out from what the kernel reads, not from its outputs",
    ),
    "roles are swapped": (f'"x": {X}, "out": {OUT}', f'"x": {OUT}, "out": {X}', "line 35: reference computes out from"),
    "in place, and not said": (
        STORE,
        f"{STORE}\n    tl.store(x + n, values, mask=n < N)",
        "line 8: writes to x, which is only read",
    ),
    "hook zeroes the input": (
        RETURN,
        HOOKED.format("lambda given: given['x'].zero_()"),
        "line 8: writes to x, which is only read",
    ),
    "strides are not passed": (
        X,
        'Operand((problem["N"],), "fp32", strides=(2,))',
        "line 8: outputs deviate from the reference by",
    ),
    "grid too small": (GRID, "(N // block,)", "line 8: outputs deviate from the reference by"),
    "reads what it should write": (
        'tensors["x"], tensors["out"], N',
        'tensors["out"], tensors["out"], N',
        "line 8: outputs deviate from the reference by",
    ),
    "reads the neighbour": ("tl.load(x + n,", "tl.load(x + n + 1,", "line 11: reads 1 element outside its tensors"),
    "reads the wrong element": (
        "tl.load(x + n,",
        "tl.load(x + N - 1 - n,",
        "line 8: outputs deviate from the reference by",
    ),
    "wrong factor": ("2 * tl.load", "3 * tl.load", "line 8: outputs deviate from the reference by"),
    "mask off by one": (
        "values, mask=n < N)",
        "values, mask=n < N - 1)",
        "line 8: outputs deviate from the reference by",
    ),
    "store without a mask": ("values, mask=n < N)", "values)", "line 12: writes 127 elements outside its tensors"),
    "load without a mask": (
        "tl.load(x + n, mask=n < N)",
        "tl.load(x + n)",
        "line 11: reads 127 elements outside its tens",
    ),
    "mask of another length": (
        "tl.load(x + n, mask=n < N)",
        "tl.load(x + n, mask=n <= N)",
        "line 11: reads 1 element outside its tensors; add a mask",
    ),
}


@pytest.mark.usefixtures("forked_helpers")
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_names_its_place(mistake: str, tmp_path: Path) -> None:
    old, new, message = MISTAKES[mistake]
    assert old in DOUBLE
    file = tmp_path / "mistaken.py"
    file.write_text(DOUBLE.replace(old, new, 1))
    report = check_kernel(str(file), {}, settings=QUICK)
    assert report.error is not None, [*report.steps]
    first = report.error.text.splitlines()[0]
    assert message in report.error.text
    assert "Traceback" not in report.error.text
    named = ("Knob", "Dim", "Attribute", "Kernel", "Launch", "Operand", "double: ", "mistaken.py")
    assert any(name in first for name in named), first


def test_the_right_kernel_passes(tmp_path: Path) -> None:
    """Each mistake is a change of this file. Here the worker and compile processes are started as users' are."""
    file = tmp_path / "right.py"
    file.write_text(DOUBLE)
    report = check_kernel(str(file), {}, settings=QUICK)
    assert report.error is None
    assert {step.name for step in report.steps} == {"load", "space", "compile", "interpret"}


def test_a_file_that_says_so_replaces_an_op_that_ships(tmp_path: Path) -> None:
    file = tmp_path / "gemm.py"
    file.write_text(DOUBLE.replace('op="double"', 'op="gemm"').replace(LAST, also("replaces=True")))
    assert catalog.resolve(str(file)).op == "gemm"
    assert catalog.load("gemm").signature.dims[0].name == "M"


def test_an_op_that_ships_may_be_named_by_its_own_file() -> None:
    file = Path(tuner.kernels.__file__).parent / "softmax" / "definition.py"
    assert catalog.resolve(str(file)).op == "softmax"


def test_each_option_of_a_command_with_an_op_is_reserved() -> None:
    options = set()
    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            command = cli.get_command(context, name)
            if isinstance(command, OpCommands):
                for option in (*command.params, *command._options):
                    names = {text.lstrip("-").replace("-", "_") for text in (*option.opts, *option.secondary_opts)}
                    options |= {option.name or "", *names}
    assert {"db", "json", "gpu", "replay", "policy", "trials", "budget", "effort", "seed", "sampler"} <= options
    assert options | {*COMPARED, "op", "device", "strict"} <= RESERVED


@pytest.mark.usefixtures("forked_helpers")
class TestCommand:
    def test_it_prints_what_was_checked(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tuner = Invoked.alone(tmp_path, monkeypatch)
        done = tuner("check", toy("double"), "N=300")
        assert done.return_value == 0
        assert "passes, compiled for nvidia-h200" in done.stdout
        assert "double N=300 dtype=fp32" in " ".join(done.stdout.split())

    @pytest.mark.parametrize("words", [("--N=300",), ("--N", "300"), ("--N", "300", "--device", H200.id)])
    def test_a_value_may_be_an_option_before_the_file_or_after_it(self, words: tuple[str, ...]) -> None:
        for arguments in ([*words, toy("double")], [toy("double"), *words]):
            done = CliRunner().invoke(cli, ["check", *arguments, "--json"], standalone_mode=False)
            assert done.exception is None, done.exception
            assert json.loads(done.stdout)["steps"][1]["subject"] == "double N=300 dtype=fp32"

    def test_it_prints_the_first_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "wrong.py").write_text(DOUBLE.replace("2 * tl.load", "3 * tl.load"))
        tuner = Invoked.alone(tmp_path, monkeypatch)
        done = tuner("check", "wrong.py")
        assert done.return_value == 1
        title, *steps = done.stdout.splitlines()
        assert title == "wrong.py fails, checked for nvidia-h200"
        assert {line.split()[1] for line in steps[:-1]} == {"ok"}
        assert steps[-1].startswith("  interpret  failed   ")
        assert steps[-1].split("; ")[-1] in done.stderr
        assert "wrong.py line 8: outputs deviate from the reference by 0.5" in done.stderr
        document = json.loads(tuner("check", "wrong.py", "--json").stdout)
        assert document["ok"] is False
        assert document["steps"][-1]["outcome"] == "failed"

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["absent.py"], "there is no kernel file"),
            (["gemm", "M"], "a value of the problem is given as NAME=VALUE, not 'M'"),
            (["gemm", "X=1"], "gemm is described by M, N, K"),
            (["gemm", "--device", "tpu"], "no recorded card is called 'tpu'; known are nvidia-h100-80gb-hbm3"),
        ],
    )
    def test_a_wrong_request_is_no_wrong_kernel(self, arguments: list[str], message: str) -> None:
        done = CliRunner().invoke(cli, ["check", *arguments], standalone_mode=False)
        assert isinstance(done.exception, UsageError)
        assert message in str(done.exception)


@pytest.mark.usefixtures("forked_helpers")
@pytest.mark.parametrize("space", {name.partition("-")[0]: name for name in recorded.names()}.values())
def test_a_recorded_problem_of_each_op_passes(space: str) -> None:
    """Given sizes are cut until they are interpreted in time."""
    found = shipped(space)
    quick = replace(QUICK, knobs=CheckKnobsSettings(configs=1, choices_s=0), elements=2**11)
    report = check_kernel(found.problem.op, found.problem.values, found.device.id, settings=quick)
    assert report.error is None, report.error
    assert not any("took more than" in step.text for step in report.steps)


class TestSearch:
    def test_the_first_failing_config_is_quoted(self) -> None:
        kernel = catalog.resolve(toy("double"))
        config = kernel.signature.config({"BLOCK": 64, "num_warps": 1, "num_stages": 1})
        failed = Measurement(config, Outcome.ERROR, stage="launch", error="KeyError: 'TILE'")
        text = str(nothing_ran(Result((failed,), "exhausted")))
        assert text == (
            "no config ran with correct results: 1 error (KeyError); nothing is stored\n"
            "the first, BLOCK=64 num_stages=1 num_warps=1, fails in launch: KeyError: 'TILE'"
        )

    def test_a_fault_keeps_the_name_of_its_exception(self, tmp_path: Path) -> None:
        file = tmp_path / "raising.py"
        file.write_text(DOUBLE.replace('config["BLOCK"]', 'config["TILE"]'))
        kernel = catalog.resolve(str(file))
        problem = kernel.signature.problem({"N": 64})
        config = kernel.default_config(problem, H200.limits)
        with pytest.raises(KernelFault) as caught:
            kernel.launch(problem, config, {})
        text = describe_error(caught.value)
        assert text == f"KeyError: {file} line 16: launch raises KeyError: 'TILE'"
        assert (
            Measurement(
                kernel.signature.config({"BLOCK": 64, "num_warps": 1, "num_stages": 1}), Outcome.ERROR, error=text
            ).failure
            == "error (KeyError)"
        )

    @pytest.mark.usefixtures("forked_helpers")
    @pytest.mark.parametrize(
        ("old", "new", "message"),
        [
            (REFERENCE, REFERENCE.replace('["x"]', '["y"]'), "line 35: reference raises KeyError: 'y'"),
            (REFERENCE, REFERENCE.replace("[rows]", "[rows][:1]"), "reference returns the rows of out in shape"),
            (VENDOR, VENDOR.replace('["x"]', '["y"]'), "line 36: vendor raises KeyError: 'y'"),
        ],
    )
    def test_a_worker_reports_a_function_that_raises(
        self, old: str, new: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", reaching(Path(__file__).parents[1])["PYTHONPATH"])
        file = tmp_path / "raising.py"
        file.write_text(DOUBLE.replace(old, new))
        kernel = catalog.resolve(str(file))
        problem = kernel.signature.problem({"N": 64})
        measurer = GpuMeasurer(str(file), problem, H200.limits, jobs=1, worker="cpu_worker", spare=False)
        try:
            measurer.submit(kernel.default_config(problem, H200.limits))
            with pytest.raises(KernelFault, match=message):
                measurer.next(60.0)
        finally:
            measurer.close()
