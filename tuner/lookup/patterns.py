"""The signature by which a problem is read, of several that the captured calls of one op have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.errors import UsageError
from tuner.kernels.spec import Problem, Signature


def described(signatures: Sequence[Signature], values: Mapping[str, object]) -> tuple[Signature, Problem]:
    """Return the signature that accepts the values of a problem, and the problem.

    An argument in the key is a dim if it is a size, and an open attribute otherwise. So of several signatures that
    accept the values, the one with the most of them as dims is meant, and of these the first.

    Args:
        signatures: At least one, the newest first.

    Raises:
        UsageError: None accepts the values. The reason is that of the first one that knows all names, if there is one.
    """
    if len(signatures) == 1:
        return signatures[0], signatures[0].problem(values)
    accepted, refused = list[tuple[Signature, Problem]](), list[tuple[bool, UsageError]]()
    for signature in signatures:
        try:
            accepted.append((signature, signature.problem(values)))
        except UsageError as error:
            refused.append((values.keys() <= {*signature.parameters}, error))
    if not accepted:
        raise max(refused, key=lambda one: one[0])[1]
    return max(accepted, key=lambda one: sum(dim.name in values for dim in one[0].dims))
