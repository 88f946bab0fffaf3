"""Choice of the signature that reads a problem, since captured calls of one op may have several."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from tuner.errors import UsageError
from tuner.kernels.spec import Signature

T = TypeVar("T")
V = TypeVar("V")


def described(
    signatures: Sequence[Signature], values: Mapping[str, V], read: Callable[[Signature, Mapping[str, V]], T]
) -> tuple[Signature, T]:
    """Return the signature that accepts the values of a problem, and the result of `read`, such as the problem.

    An argument in the key is a dim if it is a size, and an open attribute otherwise. So if several signatures accept
    the values, the one with the most dims among them is chosen, or the first of several such.

    Args:
        signatures: At least one, the newest first.
        read: Raises UsageError if the signature does not accept the values.

    Raises:
        UsageError: None accepts the values. The reason is that of the first one that knows all names, if there is one.
    """
    if len(signatures) == 1:
        return signatures[0], read(signatures[0], values)
    accepted, refused = list[tuple[Signature, T]](), list[tuple[bool, UsageError]]()
    for signature in signatures:
        try:
            accepted.append((signature, read(signature, values)))
        except UsageError as error:
            refused.append((values.keys() <= {*signature.parameters}, error))
    if not accepted:
        raise max(refused, key=lambda one: one[0])[1]
    return max(accepted, key=lambda one: sum(dim.name in values for dim in one[0].dims))
