"""Signature of an op, and the problems and configs that it describes; standard library only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from tuner.errors import KernelFault, UsageError
from tuner.kernels.dtypes import dtype_name, shown
from tuner.kernels.fields import check_distinct, check_dtype, check_text, check_tuple
from tuner.kernels.parameters import Attribute, Dim, Knob
from tuner.kernels.problem import Config, Problem
from tuner.kernels.sizes import MAX_SIZE as MAX_SIZE
from tuner.kernels.sizes import SizeLimit
from tuner.kernels.values import UNSET, Unset, Value, as_choice, canonical_text, is_value


class MissingSize(UsageError):
    """A problem states no size for a dim without a default."""

    def __init__(self, op: str, dim: str) -> None:
        super().__init__(op, dim)
        self.op, self.dim = op, dim

    def __str__(self) -> str:
        return f"{self.op} needs {self.dim}; give {self.dim}=SIZE"


@dataclass(frozen=True)
class Signature:
    """The problems and configs of an op: plain data, stored with each search.

    It defines the command line's options, the service's parameters, the canonical texts and Optuna's distributions.
    The first dtype is the default. Knobs always include `num_warps` and `num_stages`, unless the signature was drawn
    from a file of another tool: its configs keep what the file states, and Triton's defaults apply to the rest.
    """

    op: str
    dims: tuple[Dim, ...]
    dtypes: tuple[str, ...]
    knobs: tuple[Knob, ...]
    attributes: tuple[Attribute, ...] = ()
    summary: str = ""
    size_limits: tuple[SizeLimit, ...] = ()
    captured: bool = False
    """True if it describes a captured call. Other calls of the function may have other dims, attributes and choices."""

    def __post_init__(self) -> None:
        if not isinstance(self.op, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", self.op):
            raise KernelFault(f"an op's name is lower-case letters, digits and _, up to 64, not {shown(self.op)}")
        check_tuple(self.op, "dims", self.dims, Dim, "Dim values")
        check_tuple(self.op, "attributes", self.attributes, Attribute, "Attribute values")
        check_tuple(self.op, "knobs", self.knobs, Knob, "Knob values")
        check_tuple(self.op, "size_limits", self.size_limits, SizeLimit, "SizeLimit values")
        missing = {"num_warps", "num_stages"} - {knob.name for knob in self.knobs}
        if missing and not self.is_imported:
            raise KernelFault(f"{self.op}: every config states {', '.join(sorted(missing))}; add the knob")

    def check(self) -> None:
        """Raise KernelFault if a kernel file cannot have it: a name is taken or there twice, a field is wrong.

        An imported or stored signature may lack choices or dtypes, so that it is not checked when it is made.
        """
        check_text(self.op, "summary", self.summary)
        check_tuple(self.op, "dtypes", self.dtypes, str, "names of dtypes")
        for dim in self.dims:
            dim.check()
        for attribute in self.attributes:
            attribute.check()
        for knob in self.knobs:
            knob.check()
        self._check_dtypes()
        check_distinct(self.op, "dims and attributes", self.parameters)
        check_distinct(self.op, "knobs", (knob.name for knob in self.knobs))
        self._check_dims()
        choices = {attribute.name: attribute.choices for attribute in self.attributes}
        for limit in self.size_limits:
            limit.check(self.op, tuple(dim.name for dim in self.dims), choices)

    @property
    def is_imported(self) -> bool:
        """True if it was drawn from imported configs: none of its knobs has choices, so no search can use it."""
        return bool(self.knobs) and not any(knob.choices for knob in self.knobs)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names that describe a problem, in the order in which they are shown."""
        return (*(dim.name for dim in self.dims), "dtype", *(attribute.name for attribute in self.attributes))

    def problem(self, values: Mapping[str, object]) -> Problem:
        """Return the problem that `values` describe, with numbers as ints or as decimal text.

        Raises:
            UsageError: a name is unknown, a dim is missing or out of range, or a choice does not exist.
        """
        unknown = [name for name in values if name not in self.parameters]
        if unknown:
            raise UsageError(f"{self.op} is described by {', '.join(self.parameters)}, not by {shown(unknown[0])}")
        sizes: dict[str, int] = {}
        for dim in self.dims:
            given = values.get(dim.name)
            sizes[dim.name] = self._default_size(dim, sizes) if given is None else self._size(dim.name, given)
        dtype = dtype_name(self.dtypes[0] if values.get("dtype") is None else values["dtype"])
        if dtype not in self.dtypes:
            raise UsageError(f"{self.op} knows dtype {', '.join(self.dtypes)}, not {dtype}")
        attributes: dict[str, Value] = {}
        for attribute in self.attributes:
            given = values.get(attribute.name)
            if attribute.dtypes and dtype not in attribute.dtypes:
                if given is not None:
                    raise UsageError(
                        f"{self.op}: {attribute.name} applies to dtype {', '.join(attribute.dtypes)}, not to {dtype}"
                    )
            else:
                attributes[attribute.name] = attribute.default if given is None else attribute.value(self.op, given)
        for limit in self.size_limits:
            limit.refuse_larger(self.op, sizes, attributes)
        return self._problem(sizes, dtype, attributes)

    def config(self, values: Mapping[str, Value]) -> Config:
        """Return the config that `values` describe; missing knobs take their default.

        A value outside today's choices is kept, so that narrowing the choices keeps what was measured.

        Raises:
            UsageError: a knob is unknown or missing.
        """
        names = [knob.name for knob in self.knobs]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise UsageError(f"a {self.op} config has the knobs {', '.join(names)}, not {shown(unknown[0])}")
        full = {knob.name: self._knob_value(knob, values) for knob in self.knobs}
        missing = [name for name, value in full.items() if value is UNSET]
        if missing:
            raise UsageError(f"a {self.op} config states every knob; {', '.join(missing)} is missing")
        chosen = {name: value for name, value in full.items() if value is not UNSET}
        for name, value in chosen.items():
            if not is_value(value):
                raise UsageError(
                    f"a {self.op} config has finite numbers, bools, strings or None; {name} is {shown(value)}"
                )
        defaults = {knob.name: knob.default for knob in self.knobs}
        return Config(
            chosen, canonical_text({name: value for name, value in chosen.items() if value != defaults[name]})
        )

    def as_json(self) -> dict[str, Any]:
        """Return plain lists and dicts, from which `from_json` makes the signature again."""
        dims = [_dim_as_json(dim) for dim in self.dims]
        known = {**asdict(self), "dims": dims, "knobs": [_knob_as_json(knob) for knob in self.knobs]}
        if not self.size_limits:
            del known["size_limits"]  # as it was written before there were any
        if not self.captured:
            del known["captured"]
        return known

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Signature:
        """Return the signature that `as_json` wrote. Unknown fields, of a newer version, are ignored."""

        def each(kind: Any, items: list[dict[str, Any]]) -> tuple[Any, ...]:
            known = kind.__dataclass_fields__
            return tuple(
                kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in item.items() if k in known})
                for item in items
            )

        return Signature(
            op=data["op"],
            dims=each(Dim, data["dims"]),
            dtypes=tuple(data["dtypes"]),
            knobs=each(Knob, data["knobs"]),
            attributes=each(Attribute, data["attributes"]),
            summary=data["summary"],
            size_limits=each(SizeLimit, data.get("size_limits", [])),
            captured=data.get("captured", False),
        )

    def _check_dtypes(self) -> None:
        if not self.dtypes:
            raise KernelFault(f"{self.op}: dtypes has at least one name, not (); add one, such as 'fp16'")
        for dtype in self.dtypes:
            check_dtype(self.op, dtype)
        check_distinct(self.op, "dtypes", self.dtypes)
        for attribute in self.attributes:
            for dtype in attribute.dtypes:
                if dtype not in self.dtypes:
                    known = ", ".join(self.dtypes)
                    raise KernelFault(
                        f"{self.op}: dtypes of Attribute {attribute.name} are among {known}, not {dtype!r}; add it"
                    )

    def _check_dims(self) -> None:
        if not self.dims:
            raise KernelFault(f"{self.op}: dims has at least one Dim, not (); add one")
        earlier: list[str] = []
        for dim in self.dims:
            if isinstance(dim.default, str) and dim.default not in earlier:
                known = ", ".join(earlier) or "none before it"
                raise KernelFault(
                    f"{self.op}: the default of Dim {dim.name} is a number or an earlier dim ({known}), "
                    f"not {shown(dim.default)}; reorder the dims"
                )
            earlier.append(dim.name)

    def _problem(self, sizes: dict[str, int], dtype: str, attributes: dict[str, Value]) -> Problem:
        defaults = {attribute.name: attribute.default for attribute in self.attributes}
        others = {name: value for name, value in attributes.items() if value != defaults[name]}
        text = f"{self.op} {canonical_text(sizes, ordered=True)} dtype={dtype} {canonical_text(others)}".rstrip()
        return Problem(self.op, tuple(sizes.items()), dtype, tuple(attributes.items()), text)

    def _default_size(self, dim: Dim, sizes: dict[str, int]) -> int:
        if dim.default is None:
            raise MissingSize(self.op, dim.name)
        return sizes[dim.default] if isinstance(dim.default, str) else dim.default

    def _size(self, name: str, given: object) -> int:
        text = str(given)
        if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= MAX_SIZE:
            raise UsageError(f"{self.op}: {name} is a whole number from 1 to {MAX_SIZE}, not {shown(given)}")
        return int(text)

    def _knob_value(self, knob: Knob, values: Mapping[str, Value]) -> Value | Unset:
        value = values.get(knob.name, knob.default)
        if value is UNSET or (value is None and knob.choices and None not in knob.choices):
            return knob.default
        return as_choice(knob.choices, value) if knob.has_floats or type(value) is float else value


def _dim_as_json(dim: Dim) -> dict[str, Any]:
    """Return the fields of a dim; `ranges` only if there are any."""
    known = asdict(dim)
    if not dim.ranges:
        del known["ranges"]
    return known


def _knob_as_json(knob: Knob) -> dict[str, Any]:
    """Return the fields of a knob. Without a default, `default` is null, or left out if null may be a value."""
    known = asdict(knob)
    if knob.default is UNSET:
        known.pop("default") if None in knob.choices else known.update(default=None)
    return known
