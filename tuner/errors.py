"""One error tree. A message states the rule, then the value, then the way out.

    TunerError
    |-- UsageError          what was asked for cannot be understood
    |   |-- UnknownName     an op, kernel, device, space or run that nobody has heard of
    |   `-- BadBundle       answers from elsewhere that are damaged, altered, too many or of a newer format
    |-- NoDevice            no GPU, and nothing recorded that could stand in for one
    |-- NothingFound        asked in full, and there is no answer
    |-- Interrupted         a search was stopped; its measurements are kept
    |-- MeasureError        the machinery around the configs broke, not a config
    `-- StoreError          the database cannot be read or written
        `-- ReadOnly        it can be read, and not written

The command line exits with `exit_code`; the service answers with `http_status`.
"""

from json import JSONDecodeError


class TunerError(Exception):
    """Base of every error a caller may want to catch."""

    exit_code = 1
    http_status = 500


class UsageError(TunerError):
    """The request names something that does not fit the rules."""

    exit_code = 2
    http_status = 422


class UnknownName(UsageError):
    """The request names an op, kernel, device, space or run that does not exist."""

    http_status = 404


class BadBundle(UsageError):
    """Answers that come from elsewhere are not what they say, or not what can be read here."""


class NoDevice(TunerError):
    """There is no GPU to measure on and no recorded space to replay."""

    exit_code = 3


class NothingFound(TunerError):
    """The request was understood and has no answer."""

    http_status = 404


class Interrupted(TunerError):
    """A search was stopped before it had an answer; its measurements are kept, and the next search goes on from them."""

    exit_code = 130


class MeasureError(TunerError):
    """A worker or the compile pool cannot be started or kept alive."""


class StoreError(TunerError):
    """The database is unreadable, locked, full, or of another version."""

    exit_code = 5
    http_status = 503


class ReadOnly(StoreError):
    """The database can be read, but this user or this version may not write it."""


def reason(error: Exception) -> str:
    """Why a file from elsewhere cannot be understood, in words of whoever wrote it as far as there are any."""
    match error:
        case OSError(strerror=str(why)):
            return why
        case UnicodeDecodeError():
            return "it is no text"
        case JSONDecodeError():
            return f"{error.msg} in line {error.lineno}"
        case KeyError(args=(name, *_)):
            return f"it has no {str(name)[:80]!r}"
    return f"{type(error).__name__}: {str(error)[:100]}"
