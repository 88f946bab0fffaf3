"""The query of a lookup: a problem, and the fields that an answer is compared in."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.kernels.spec import Problem
from tuner.records import Environment

COMPARED = ("triton", "source", "definition", "driver", "ptxas", "policy")
"""Fields of a query that are compared with an answer's if the query has them."""


@dataclass(frozen=True)
class Query:
    """A query for a stored answer. A field that is None is not compared."""

    problem: Problem
    triton: str | None = None
    source: str | None = None
    driver: str | None = None
    ptxas: str | None = None
    policy: str | None = None
    definition: str | None = None
    """Compared with answers that were stored with one."""
    strict: bool = False
    """Take neither a stale answer nor a neighbour's."""

    @staticmethod
    def for_environment(
        problem: Problem,
        environment: Environment,
        source: str | None,
        *,
        definition: str | None = None,
        policy: str | None = None,
        strict: bool = False,
    ) -> Query:
        """Return the query for an answer that was tuned with this software. Software that is missing is not compared.

        Args:
            source: source hash of the kernel; None is not compared.
            definition: definition hash of the kernel; None is not compared, nor is the empty one of a kernel that has
                no reference.
            policy: measuring policy; None takes an answer of any policy, as a launch does.
        """
        return Query(
            problem,
            triton=environment.triton or None,
            source=source,
            definition=definition or None,
            driver=environment.driver or None,
            ptxas=environment.ptxas or None,
            policy=policy,
            strict=strict,
        )
