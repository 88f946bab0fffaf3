"""The document of a captured call: JSON, written without loss and read strictly, since its origin is unknown.

The order of the fields of `key`, `arguments` and `configs` counts: the dims of the problem follow it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tuner.captured.arguments import (
    argument_to_json,
    arguments_from_json,
    checked_name,
    config_from_json,
    value_from_json,
    value_to_json,
    values_from_json,
    values_to_json,
)
from tuner.captured.call import (
    AGREEMENT,
    REFERENCE,
    Argument,
    CapturedCall,
    DescriptorArgument,
    Examined,
    Function,
    Grids,
    Role,
    TensorArgument,
)
from tuner.errors import UsageError, reason
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Value
from tuner.records import files
from tuner.records.strict import MALFORMED, JsonObject, whole_number

FORMAT = 1
"""Number of the format that this version writes and reads."""
SUFFIX = ".call.json"
"""Suffix of the name of a document's file."""
LARGEST_DOCUMENT = 1_000_000
"""Largest size of a document, in bytes."""
_ROLES: Final[tuple[Role, ...]] = ("in", "out", "inout")


def to_json(call: CapturedCall) -> dict[str, Any]:
    """Return a call as JSON values. `from_json` makes the call again."""
    return {
        "format": FORMAT,
        "op": call.op,
        "function": {"module": call.function.module, "file": call.function.file, "name": call.function.name},
        "key": values_to_json(call.key),
        "arguments": {name: argument_to_json(argument) for name, argument in call.arguments.items()},
        "configs": [values_to_json(config) for config in call.configs],
        "grids": {
            "knobs": list(call.grids.knobs),
            "sizes": [[[*map(value_to_json, given)], list(size)] for given, size in call.grids.sizes.items()],
        },
        "options": values_to_json(call.options),
        "reset": list(call.reset),
        "restored": list(call.restored),
        "examined": None if call.examined is None else _examined_json(call.examined),
    }


def from_json(data: object) -> CapturedCall:
    """Return the call that `to_json` wrote.

    Raises:
        UsageError: A field is missing, has another type, is too large or contradicts another one.
    """
    return _call(JsonObject(data, "a captured call"))


def write(call: CapturedCall, path: Path, widen: bool = False) -> None:
    """Write a call to a file.

    Args:
        widen: Search the neighbours of the configs too.

    Raises:
        OSError: The file cannot be written.
    """
    files.write_atomically(path, json.dumps({**to_json(call), "widen": widen}, allow_nan=False) + "\n")


def read(path: Path) -> tuple[CapturedCall, bool]:
    """Return the call of a file, and whether the neighbours of its configs are searched too.

    Raises:
        UsageError: The file cannot be read, or is no captured call.
    """
    try:
        data = json.loads(files.read(path, LARGEST_DOCUMENT))
        given = JsonObject(data, "a captured call")
        return from_json(data), given.boolean("widen") if "widen" in given.data else False
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error
    except (OSError, *MALFORMED) as error:
        raise UsageError(f"a captured call is a JSON file that can be read; {path}: {reason(error)}") from error


def _call(given: JsonObject) -> CapturedCall:
    number = given.whole("format")
    if number != FORMAT:
        raise UsageError(f"a captured call has format {FORMAT}, not {number}; capture it with this version")
    arguments = arguments_from_json(given.object("arguments"))
    configs = tuple(config_from_json(JsonObject(config, "a config")) for config in given.items("configs"))
    if not configs:
        raise UsageError("a captured call has at least one config, and here is none")
    return CapturedCall(
        function=_function(given.object("function")),
        op=_op(given),
        key=values_from_json(given.object("key")),
        arguments=arguments,
        configs=configs,
        grids=_grids(given.object("grids")),
        options=values_from_json(given.object("options")),
        reset=_tensor_names(given, "reset", arguments),
        restored=_tensor_names(given, "restored", arguments),
        examined=given.optional("examined", lambda name: _examined(given.object(name), arguments)),
    )


def _op(given: JsonObject) -> str:
    op = given.text("op")
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", op):
        raise UsageError(f"an op's name is lower-case letters, digits and _, up to 64, not {shown(op)}")
    return op


def _function(given: JsonObject) -> Function:
    function = Function(given.text("module"), given.text("file"), given.text("name"))
    if not function.module or not function.file or "\0" in function.module + function.file:
        raise UsageError(f"a function has a module and a file, not {shown(function.module)} and {shown(function.file)}")
    return Function(function.module, function.file, checked_name(function.name))


def _grids(given: JsonObject) -> Grids:
    knobs = tuple(map(checked_name, given.items("knobs")))
    table = given.data.get("sizes")
    if not isinstance(table, list):
        raise UsageError(f"a table of grids is a list, not {shown(table)}")
    sizes: dict[tuple[Value, ...], tuple[int, ...]] = {}
    for row in table:
        match row:
            case [list(values), list(grid)] if len(values) == len(knobs) and 1 <= len(grid) <= 3:
                sizes[tuple(map(value_from_json, values))] = tuple(whole_number(size, "a grid's size") for size in grid)
            case _:
                raise UsageError(f"a grid is a value for each knob and one to three numbers, not {shown(row)}")
    return Grids(knobs, sizes)


def _tensor_names(given: JsonObject, field: str, arguments: Mapping[str, Argument]) -> tuple[str, ...]:
    names = given.texts(field)
    for name in names:
        _check_tensor(name, arguments)
    return names


def _check_tensor(name: str, arguments: Mapping[str, Argument]) -> None:
    if not isinstance(arguments.get(name), TensorArgument | DescriptorArgument):
        raise UsageError(f"reset, restored and roles name tensors among the arguments, not {shown(name)}")


def _examined_json(examined: Examined) -> dict[str, Any]:
    return {
        "roles": dict(examined.roles),
        "basis": examined.basis,
        "agreed": None if examined.agreed is None else values_to_json(examined.agreed),
        "agreeing": examined.agreeing,
        "differing": examined.differing,
        "source": examined.source,
        "triton": examined.triton,
    }


def _examined(given: JsonObject, arguments: Mapping[str, Argument]) -> Examined:
    roles, basis = given.mapping("roles"), given.text("basis")
    for name, role in roles.items():
        _check_tensor(name, arguments)
        if role not in _ROLES:
            raise UsageError(f"a role is {', '.join(_ROLES)}, and that of {name} is {shown(role)}")
    if basis not in (REFERENCE, AGREEMENT):
        raise UsageError(f"the basis is {REFERENCE} or {AGREEMENT}, not {shown(basis)}")
    agreed = given.optional("agreed", lambda name: config_from_json(given.object(name)))
    if (agreed is None) != (basis == REFERENCE):
        raise UsageError(f"an examination has an agreed config if its basis is {AGREEMENT}, and only then")
    return Examined(
        roles,
        basis,
        agreed,
        given.whole("agreeing"),
        given.whole("differing"),
        given.text("source"),
        given.text("triton"),
    )
