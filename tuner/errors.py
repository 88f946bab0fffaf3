"""One error tree. A message states the rule, then the value, then the way out.

                            exit  HTTP
    TunerError                 1   500
    |-- UsageError             2   422  the request is not valid
    |   |-- UnknownName        2   404  there is no op, kernel, device, space or run of that name
    |   |-- KernelFault        2   422  a kernel file is wrong
    |   `-- BadBundle          2   422  imported answers are damaged, altered, too many, or of a newer format
    |-- NoDevice               3   500  there is no GPU, and no recorded space of the problem
    |-- NothingFound           1   404  the request is valid, and there is no answer
    |-- Interrupted          130   500  a search was stopped; its trials are kept
    |-- MeasureError           1   500  a worker process or the compile pool failed, not a config
    |-- FleetError             1   500  the scheduler of a fleet cannot be reached
    `-- StoreError             5   503  the database cannot be used
        `-- ReadOnly           5   503  the database can be read, and not written

The command line exits with `exit_code`; the service responds with `http_status`.
"""

from copy import copy
from json import JSONDecodeError
from typing import TypeVar

_Error = TypeVar("_Error", bound="TunerError")
CHANGED = 4
"""Exit code of a command that found an answer that no longer holds. It is no error."""


class TunerError(Exception):
    """Base of all errors of the package."""

    exit_code = 1
    """Exit code of a command that fails with this error."""
    http_status = 500
    """Status of a response to a request that fails with this error."""


class UsageError(TunerError):
    """The request is not valid."""

    exit_code = 2
    http_status = 422


class UnknownName(UsageError):
    """The request names an op, kernel, device, space or run that does not exist."""

    http_status = 404


class KernelFault(UsageError):
    """A kernel file is wrong: one of its fields, or one of its functions, which raises or returns a wrong value.

    Args:
        text: the rule, the value and the way out.
        place: file and line, if known.
    """

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.place = place


class BadBundle(UsageError):
    """Imported answers are damaged, altered, too many, or of a format that this version cannot read."""


class NoDevice(TunerError):
    """There is no GPU to measure on and no recorded space to replay."""

    exit_code = 3


class NothingFound(TunerError):
    """The request is valid, and there is no answer."""

    http_status = 404


class Interrupted(TunerError):
    """A search was stopped before it had an answer. Its measurements are kept for the next search."""

    exit_code = 130


class MeasureError(TunerError):
    """A worker process or the compile pool failed. A config that fails is a measurement, not an error."""


class FleetError(TunerError):
    """The scheduler of a fleet cannot be reached. A task that fails is an outcome, not an error."""


class StoreError(TunerError):
    """The database cannot be read or written: it is locked, full, unreachable, or of another version."""

    exit_code = 5
    http_status = 503


class ReadOnly(StoreError):
    """The database can be read, and this user or this version may not write it."""


def unraised(error: _Error) -> _Error:
    """Return a copy of an error that was not raised, to keep or to raise from what is kept.

    The traceback of one that was raised keeps alive the local variables of all functions on the stack: of a model, its
    tensors.
    """
    return copy(error)


def reason(error: Exception) -> str:
    """Return why a file cannot be read, as a clause of an error message."""
    match error:
        case OSError(strerror=str(why)):
            return why
        case UnicodeDecodeError():
            return "it is not text"
        case JSONDecodeError():
            return f"{error.msg} in line {error.lineno}"
        case KeyError(args=(name, *_)):
            return f"it has no {str(name)[:80]!r}"
    return f"{type(error).__name__}: {str(error)[:100]}"
