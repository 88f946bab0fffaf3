"""Captured calls as JSON: nothing is lost, and nothing else is read."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutations import mutated

from tuner.captured import document
from tuner.captured.call import (
    Argument,
    CapturedCall,
    Contents,
    DescriptorArgument,
    DtypeArgument,
    Examined,
    Function,
    Grids,
    TensorArgument,
)
from tuner.errors import UsageError
from tuner.kernels.dtypes import ALL_DTYPES
from tuner.kernels.spec import Value

NOT_FINITE = (math.inf, -math.inf, math.nan)
ODD: tuple[Value, ...] = (
    *(None, True, False, 0, -1, 2**31, -(2**63), 2**64 - 1),
    *(0.0, -0.0, 0.1, 1e-320, 1.7e308, *NOT_FINITE),
    *("", "None", "bf16", 'quotes " and \\', "\u4e2d\U0001f600\x00\n"),
)
FINITE = [value for value in ODD if value not in NOT_FINITE and value == value]


def tensor(dice: random.Random, names: list[str]) -> TensorArgument:
    shape = tuple(dice.choice([0, 1, 3, 127]) for _ in range(dice.randrange(3)))
    low, high, mean, deviation = (dice.choice([None, -3, 0.5, -0.0, *NOT_FINITE]) for _ in range(4))
    contents = Contents(None, low, high, mean, deviation)
    if math.prod(shape) < 10:
        contents = Contents(tuple(dice.choice([-(2**63), 0, 2**64 - 1]) for _ in range(math.prod(shape))), low=0)
    strides = tuple(dice.choice([0, 1, 127, 2**40]) for _ in shape)
    same_as = dice.choice(["", *names])
    return TensorArgument(
        shape, strides, dice.choice(ALL_DTYPES), dice.randrange(16), same_as, replace(contents, is_sorted=bool(names))
    )


def drawn(seed: int) -> CapturedCall:
    """Return a call with odd values by seed."""
    dice = random.Random(seed)
    arguments: dict[str, Argument] = {}
    names: list[str] = []
    for name in ("x", "_y", "\u00e4", "Z9"):
        arguments[name] = tensor(dice, names)
        names.append(name)
    base = tensor(dice, names)
    arguments["desc"] = DescriptorArgument(base, (3, 127), (127, 1), (1, 64), dice.choice(["zero", "nan"]))
    arguments |= {f"value{number}": value for number, value in enumerate(ODD)}
    arguments["dtype"] = DtypeArgument("float8e4nv")
    configs = tuple({"BLOCK": dice.choice(FINITE), "num_warps": 4, "num_stages": 3} for _ in range(3))
    agreed = dice.choice([None, configs[0]])
    roles = {name: dice.choice(["in", "out", "inout"]) for name in names}
    basis = "reference" if agreed is None else "agreement"
    sizes: dict[tuple[Value, ...], tuple[int, ...]] = {
        (dice.choice(FINITE), number): (7, 2**31, 1)[: dice.randrange(1, 4)] for number in range(5)
    }
    return CapturedCall(
        function=Function("__main__", "/home/\u00fc/my kernels.py", "kernel"),
        op="main_kernel",
        key={"n": 5, "scale": dice.choice(ODD), "a": dice.choice(ODD)},
        arguments=arguments,
        configs=configs,
        grids=dice.choice([Grids((), {}), Grids(("BLOCK", "num_warps"), sizes)]),
        options={"num_ctas": 2, "debug": dice.choice(ODD)},
        reset=tuple(dice.sample(names, 2)),
        restored=("x", "desc"),
        examined=dice.choice([None, Examined(roles, basis, agreed, 3, 0, "abc", "3.6.0")]),  # type: ignore[arg-type]
    )


def written(call: CapturedCall) -> Any:
    """Return the document as another process reads it."""
    return json.loads(json.dumps(document.to_json(call), allow_nan=False))


@pytest.mark.parametrize("seed", range(40))
def test_a_call_is_read_as_it_was_written(seed: int) -> None:
    call = drawn(seed)
    again = document.from_json(written(call))
    assert repr(again) == repr(call)  # -0.0 and NaN too, which == does not tell
    assert list(again.arguments) == list(call.arguments)
    assert list(again.key) == list(call.key)


def test_a_file_says_whether_the_search_is_widened(tmp_path: Path) -> None:
    file, call = tmp_path / f"a{document.SUFFIX}", drawn(1)
    document.write(call, file)
    assert repr(document.read(file)) == repr((call, False))
    document.write(call, file, widen=True)
    assert repr(document.read(file)) == repr((call, True))


def test_a_file_that_is_no_document_is_refused_in_one_line(tmp_path: Path) -> None:
    file = tmp_path / f"a{document.SUFFIX}"
    with pytest.raises(UsageError, match=r"a captured call is a JSON file that can be read; .*No such file"):
        document.read(file)
    for data in (b"{", b"\xff", b"[" * 100_000, b"[]", b'{"format": NaN}', b" " * (document.LARGEST_DOCUMENT + 1)):
        file.write_bytes(data)
        with pytest.raises(UsageError, match=r"^[^\n]*a\.call\.json[^\n]*$"):
            document.read(file)


def test_a_damaged_document_is_refused_and_never_misread(tmp_path: Path) -> None:
    file, dice, refused = tmp_path / f"a{document.SUFFIX}", random.Random(0), 0
    for seed in range(300):
        file.write_bytes(mutated(written(drawn(seed % 7)), dice))
        try:
            call, _ = document.read(file)
        except UsageError as error:
            refused += "\n" not in str(error)
        else:
            assert repr(document.from_json(written(call))) == repr(call)
            refused += 1
    assert refused == 300


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "a captured call has format 1, not 2; capture it with this version"),
        ({"op": "Gemm"}, "an op's name is lower-case letters, digits and _, up to 64, not 'Gemm'"),
        ({"configs": []}, "at least one config"),
        ({"configs": [{"BLOCK": {"float": "nan"}}]}, "a config has finite numbers, bools, texts or null, and BLOCK"),
        (
            {"key": {"n": 2**64}},
            "a value is a number of up to 64 bits, true, false, null or a text, not 18446744073709",
        ),
        ({"key": {"n": [1]}}, r"a value is .*, not \[1\]"),
        ({"key": {"n": {"float": "1.0"}}}, r"a value is .*, not \{'float': '1.0'\}"),
        ({"key": {"a b": 1}}, "the name of a parameter or a knob is a Python identifier, not 'a b'"),
        ({"key": {f"n{i}": 1 for i in range(1001)}}, "up to 1000 arguments, not 1001"),
        ({"reset": ["dtype"]}, "reset, restored and roles name tensors among the arguments, not 'dtype'"),
        ({"grids": {"knobs": ["BLOCK"], "sizes": [[[1, 2], [1]]]}}, "a grid is a value for each knob and one to three"),
        ({"grids": {"knobs": [], "sizes": [[[], []]]}}, "a grid is a value for each knob and one to three numbers"),
        ({"grids": {"knobs": [], "sizes": [[[], [-1]]]}}, "a grid's size is a whole number, not '-1'"),
        ({"function": {"module": "", "file": "a.py", "name": "f"}}, "a function has a module and a file, not ''"),
        ({"function": {"module": "m", "file": "a.py", "name": "f.g"}}, "Python identifier, not 'f.g'"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        document.from_json(written(drawn(1)) | change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"strides": [1, 1, 1]}, "a stride for each size, not 3 for 2"),
        ({"dtype": "bfloat16"}, "goes by its short name, bf16, not 'bfloat16'"),
        ({"dtype": "complex64"}, "a dtype is one of"),
        ({"offset": 16}, "offset is 0 to 15 bytes, not 16"),
        ({"same_as": "later"}, "x is the same as a tensor before it, not as 'later'"),
        ({"contents": {"values": [1, 2]}}, "a value for each element, not 2"),
        ({"contents": {"values": [0.5]}}, "a list of whole numbers"),
        ({"contents": {"low": True}}, "a number as low"),
        ({"shape": [1] * 65, "strides": [1] * 65}, "up to 64 dimensions, not 65"),
    ],
)
def test_a_wrong_tensor_is_named(change: dict[str, Any], message: str) -> None:
    plain = {"shape": [3, 1], "strides": [1, 1], "dtype": "fp16", "offset": 0, "same_as": "", "contents": {}}
    data = written(replace(drawn(1), arguments={}, reset=(), restored=(), examined=None))
    assert document.from_json(data | {"arguments": {"x": {"tensor": plain}}}).arguments
    with pytest.raises(UsageError, match=message):
        document.from_json(data | {"arguments": {"x": {"tensor": plain | change}}})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"basis": "trust"}, "the basis is reference or agreement, not 'trust'"),
        ({"agreed": None}, "an agreed config if its basis is agreement, and only then"),
        ({"roles": {"x": "read"}}, "a role is in, out, inout, and that of x is 'read'"),
        ({"agreeing": -1}, "agreeing is a whole number"),
    ],
)
def test_a_wrong_examination_is_named(change: dict[str, Any], message: str) -> None:
    examined = Examined({"x": "out"}, "agreement", {"BLOCK": 1}, 1, 0, "abc", "3.6.0")
    data = written(replace(drawn(1), examined=examined))
    with pytest.raises(UsageError, match=message):
        document.from_json(data | {"examined": data["examined"] | change})
