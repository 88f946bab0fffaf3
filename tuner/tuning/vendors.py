"""The choice of vendors that a user makes, checked before anything is measured."""

from __future__ import annotations

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.vendors import ALL, EAGER, LIBRARIES, asked_names, vendor_names
from tuner.suites.suite import Suite


def check_vendors(suite: Suite, asked: str | None, replay: str | None) -> None:
    """Raise UsageError if a name is that of no vendor of the suite's kernels, or a recorded space has its own.

    Args:
        asked: groups of vendors and names, separated by commas; None: the usual ones.
        replay: name of a recorded space that is replayed.
    """
    if asked is None:
        return
    if replay is not None:
        raise UsageError("a recorded space has the vendor that it was recorded with; leave out --vendors or --replay")
    if not (names := asked_names(asked)):
        return
    kernels = [catalog.resolve(reference) for reference in dict.fromkeys(entry.reference for entry in suite.entries)]
    known = list(dict.fromkeys(name for kernel in kernels for name in vendor_names(kernel)))
    if unknown := [name for name in names if name not in known]:
        of_them = " and ".join(dict.fromkeys(kernel.op for kernel in kernels))
        groups = ", ".join((ALL, LIBRARIES, EAGER))
        raise UsageError(
            f"vendors of {of_them} are {', '.join(known) or 'none'}, and groups of them {groups}, not "
            f"{unknown[0][:40]!r}; correct it"
        )
