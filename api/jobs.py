"""Jobs as requests describe them, in JSON or in a form."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tuner.api.listing import SETTINGS
from tuner.api.query import parse_problem, parse_signatures
from tuner.api.view import View
from tuner.errors import UsageError
from tuner.kernels.spec import Problem
from tuner.lookup.query import COMPARED
from tuner.records.signatures import lacks_choices


@dataclass(frozen=True)
class WantedJob:
    """A job that is requested."""

    problem: Problem
    device: str
    """Device id."""
    priority: int


def wanted_job(values: Mapping[str, object], view: View) -> WantedJob:
    """Return the job that a request describes by its names and values.

    Raises:
        UsageError: a value is missing or not understood; the message names the field.
        UnknownName: no op has the name.
    """
    given = dict(values)
    for name in (*COMPARED, "strict"):
        if name in given:
            raise UsageError(f"a job is a problem, a device and a priority, not {name!r}")
    priority, highest = given.pop("priority", 0), SETTINGS.highest_priority
    if type(priority) is not int or abs(priority) > highest:
        raise UsageError(f"priority is a whole number from -{highest} to {highest}")
    device = given.pop("device", None)
    if device is None:
        device = view.lookup.resolve_device()
    elif not isinstance(device, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,99}", device):
        raise UsageError("device is the id of a card, like nvidia-h200")  # a card without answers, too
    signature, problem = parse_problem(given, parse_signatures(given, view))
    if lacks_choices(signature):
        raise UsageError(
            f"{signature.op} has imported answers and no kernel here, so it cannot be tuned; /best-config has them"
        )
    return WantedJob(problem, device, priority)
