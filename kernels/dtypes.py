"""Names and widths of dtypes; standard library only."""

from __future__ import annotations

from tuner.errors import UsageError

_TORCH_NAMES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8", "bool": "bool",
}  # fmt: skip
_ITEMSIZES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "bool": 1,
}  # fmt: skip
ALL_DTYPES = tuple(_TORCH_NAMES)
"""Short names of all dtypes."""
_DTYPES = {alias: name for name, torch in _TORCH_NAMES.items() for alias in (name, torch)} | {
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
}

_SHOWN_LENGTH = 80
"""Most characters of a value in an error message."""


def dtype_name(dtype: object) -> str:
    """Return the short name (`bf16`) of a dtype, given by its short name or torch's (`bfloat16`, `torch.bfloat16`).

    Raises:
        UsageError: no dtype has that name.
    """
    text = str(dtype).removeprefix("torch.")
    if text not in _DTYPES:
        raise UsageError(f"a dtype is one of {', '.join(_TORCH_NAMES)} or torch's name for it, not {shown(dtype)}")
    return _DTYPES[text]


def itemsize(dtype: str) -> int:
    """Return the bytes of one element."""
    return _ITEMSIZES[dtype]


def torch_dtype(dtype: str) -> str:
    """Return the name of a dtype in `torch`: `bf16` -> `bfloat16`."""
    return _TORCH_NAMES[dtype]


def shown(value: object) -> str:
    """Return a value from outside, quoted and cut, as an error message shows it."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an int with more digits than Python writes
        text = f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN_LENGTH else f"{text[: _SHOWN_LENGTH - 3]}..."
