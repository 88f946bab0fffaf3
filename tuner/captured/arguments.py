"""Values and arguments of a captured call as JSON, read strictly."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from tuner.captured.call import Argument, Contents, DescriptorArgument, DtypeArgument, TensorArgument
from tuner.errors import UsageError
from tuner.kernels.dtypes import dtype_name, shown
from tuner.kernels.spec import Value
from tuner.kernels.values import is_value as is_choice
from tuner.records.strict import JsonObject, is_text, whole_number

_MOST_NAMES = 1000
"""Largest number of arguments, of names in the key, of knobs, and of options of a call."""
_MOST_RANKS = 64
_LONGEST_TEXT = 10_000
"""Largest number of characters of a text argument."""
_WIDEST_INT = 2**64
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def checked_name(name: object) -> str:
    """Return the name of a parameter or a knob. Raises UsageError if it is no Python identifier."""
    if not isinstance(name, str) or not name.isidentifier() or len(name) > _LONGEST_TEXT:
        raise UsageError(f"the name of a parameter or a knob is a Python identifier, not {shown(name)}")
    return name


def _fields(given: JsonObject) -> Mapping[str, Any]:
    """Return the fields of an object whose names are parameters or knobs."""
    if len(given.data) > _MOST_NAMES:
        raise UsageError(f"a call has up to {_MOST_NAMES} arguments, not {len(given.data)}")
    return {checked_name(name): value for name, value in given.data.items()}


def value_to_json(value: Value) -> Any:
    """Return a value as JSON. A float that is not finite is an object."""
    if type(value) is float and not math.isfinite(value):
        return {"float": str(value)}
    return value


def values_to_json(values: Mapping[str, Value]) -> dict[str, Any]:
    """Return values by name as JSON."""
    return {name: value_to_json(value) for name, value in values.items()}


def value_from_json(data: object) -> Value:
    """Return the value that `value_to_json` wrote."""
    if data is None or isinstance(data, bool) or (type(data) is float and math.isfinite(data)):
        return data
    if type(data) is int and abs(data) < _WIDEST_INT:
        return data
    if is_text(data) and len(data) <= _LONGEST_TEXT:
        return data
    if isinstance(data, dict) and data.keys() == {"float"} and is_text(name := data["float"]) and name in _FLOATS:
        return _FLOATS[name]
    raise UsageError(f"a value is a number of up to 64 bits, true, false, null or a text, not {shown(data)}")


def values_from_json(given: JsonObject) -> dict[str, Value]:
    """Return the values that `values_to_json` wrote, or raise UsageError."""
    return {name: value_from_json(value) for name, value in _fields(given).items()}


def config_from_json(given: JsonObject) -> dict[str, Value]:
    """Return the values of a config, which are finite, or raise UsageError."""
    config = values_from_json(given)
    for name, value in config.items():
        if not is_choice(value):
            raise UsageError(f"a config has finite numbers, bools, texts or null, and {name} is {shown(value)}")
    return config


def argument_to_json(argument: Argument) -> Any:
    """Return an argument as JSON: a value as it is, others as an object with their kind."""
    match argument:
        case TensorArgument():
            return {"tensor": _tensor_json(argument)}
        case DescriptorArgument():
            return {
                "descriptor": {
                    "base": _tensor_json(argument.base),
                    "shape": list(argument.shape),
                    "strides": list(argument.strides),
                    "block_shape": list(argument.block_shape),
                    "padding": argument.padding,
                }
            }
        case DtypeArgument():
            return {"dtype": argument.dtype}
    return value_to_json(argument)


def arguments_from_json(given: JsonObject) -> dict[str, Argument]:
    """Return the arguments by name that `argument_to_json` wrote, or raise UsageError."""
    arguments = {name: _argument(name, data) for name, data in _fields(given).items()}
    before: dict[str, Argument] = {}
    for name, argument in arguments.items():
        tensor = argument.base if isinstance(argument, DescriptorArgument) else argument
        if isinstance(tensor, TensorArgument) and tensor.same_as:
            other = before.get(tensor.same_as)
            if not isinstance(other, TensorArgument | DescriptorArgument):
                raise UsageError(f"{name} is the same as a tensor before it, not as {shown(tensor.same_as)}")
        before[name] = argument
    return arguments


def _argument(name: str, data: object) -> Argument:
    if not isinstance(data, dict) or "float" in data:
        return value_from_json(data)
    given = JsonObject(data, name)
    match list(data):
        case ["tensor"]:
            return _tensor(given.object("tensor"))
        case ["descriptor"]:
            return _descriptor(given.object("descriptor"))
        case ["dtype"]:
            return DtypeArgument(_triton_dtype(given.text("dtype")))
    raise UsageError(f"an argument is a value, a tensor, a descriptor or a dtype, and {name} is {shown(data)}")


def _triton_dtype(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,31}", name):
        raise UsageError(f"a dtype has a name in triton.language, not {shown(name)}")
    return name


def _tensor_json(tensor: TensorArgument) -> dict[str, Any]:
    """Return the fields of a tensor. Unknown facts about its elements are left out."""
    given, unknown = tensor.contents, Contents()
    known = {each.name: getattr(given, each.name) for each in fields(Contents)}
    contents = {name: value for name, value in known.items() if value != getattr(unknown, name)}
    if given.values is not None:
        contents["values"] = list(map(int, given.values))
    for name in ("low", "high", "mean", "deviation"):
        if name in contents:
            contents[name] = value_to_json(contents[name])
    return {
        "shape": list(tensor.shape),
        "strides": list(tensor.strides),
        "dtype": tensor.dtype,
        "offset": tensor.offset,
        "same_as": tensor.same_as,
        "contents": contents,
    }


def _tensor(given: JsonObject) -> TensorArgument:
    shape, strides = _sizes(given, "shape"), _sizes(given, "strides")
    if len(shape) != len(strides):
        raise UsageError(f"a tensor has a stride for each size, not {len(strides)} for {len(shape)}")
    dtype, offset, same_as = given.text("dtype"), given.whole("offset"), given.text("same_as")
    if dtype_name(dtype) != dtype:
        raise UsageError(f"a dtype goes by its short name, {dtype_name(dtype)}, not {shown(dtype)}")
    if offset > 15:
        raise UsageError(f"a tensor's offset is 0 to 15 bytes, not {offset}")
    contents = _contents(given.object("contents"))
    if contents.values is not None and len(contents.values) != math.prod(shape):
        raise UsageError(f"a tensor of shape {list(shape)} has a value for each element, not {len(contents.values)}")
    return TensorArgument(shape, strides, dtype, offset, same_as and checked_name(same_as), contents)


def _sizes(given: JsonObject, name: str) -> tuple[int, ...]:
    sizes = tuple(whole_number(size, name) for size in given.items(name))
    if len(sizes) > _MOST_RANKS:
        raise UsageError(f"a tensor has up to {_MOST_RANKS} dimensions, not {len(sizes)}")
    return sizes


def _contents(given: JsonObject) -> Contents:
    known: dict[str, Any] = {name: _number(given, name) for name in ("low", "high", "mean", "deviation")}
    if "values" in given.data:
        values = given.data["values"]
        if not isinstance(values, list) or not all(type(each) is int and abs(each) < _WIDEST_INT for each in values):
            raise given.refusal("values", "a list of whole numbers of up to 64 bits")
        known["values"] = tuple(values)
    return Contents(**known, is_sorted=given.boolean("is_sorted") if "is_sorted" in given.data else False)


def _number(given: JsonObject, name: str) -> float | None:
    """Return a number, which need not be finite; None if it is missing."""
    if name not in given.data:
        return None
    value = value_from_json(given.data[name])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise given.refusal(name, "a number")
    return value


def _descriptor(given: JsonObject) -> DescriptorArgument:
    shape, strides, block_shape = (_sizes(given, name) for name in ("shape", "strides", "block_shape"))
    if not len(shape) == len(strides) == len(block_shape):
        raise UsageError(
            "a descriptor has as many strides and block sizes as sizes, "
            f"not {len(strides)} and {len(block_shape)} for {len(shape)}"
        )
    padding = given.text("padding")
    return DescriptorArgument(
        _tensor(given.object("base")), shape, strides, block_shape, padding and checked_name(padding)
    )
