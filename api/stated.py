"""Models whose fields a record states: names and types come from its annotations, help from its metadata."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from inspect import getdoc
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, Field, create_model

from tuner.records.codec import types_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

M = TypeVar("M", bound=BaseModel)


def stated_by(
    record: type[DataclassInstance], names: Collection[str], types: Mapping[Any, Any]
) -> Callable[[type[M]], type[M]]:
    """Return a decorator that adds fields of a record to a model, all of them required.

    Args:
        names: Fields and properties of the record, in order.
        types: The model's types for those of the record that JSON writes in another way.
    """
    helps = {each.name: each.metadata["help"] for each in fields(record)}
    found = types_of(record)

    def definition(name: str) -> tuple[Any, Any]:
        is_property = name not in helps
        kind = types_of(getattr(record, name).fget)["return"] if is_property else found[name]
        help = getdoc(getattr(record, name)) if is_property else helps[name]
        return types.get(kind, kind), Field(description=help or None)

    def add(model: type[M]) -> type[M]:
        definitions: dict[str, Any] = {name: definition(name) for name in names}
        return create_model(
            model.__name__, __base__=model, __module__=model.__module__, __doc__=model.__doc__, **definitions
        )

    return add
