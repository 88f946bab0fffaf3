"""Ctrl-C that Python cannot raise where it arrives."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread


@contextmanager
def kept_interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end if one came in code that cannot raise.

    Such code runs while Python frees an object: finalizers and callbacks of weak references, of which SQLAlchemy and
    the import system have many. Python prints their exceptions and goes on, so that Ctrl-C would be lost.
    """
    if current_thread() is not main_thread():  # no other thread gets Ctrl-C
        yield
        return
    lost, before = list[BaseException](), sys.unraisablehook

    def keep(unraisable: sys.UnraisableHookArgs) -> None:
        if isinstance(unraisable.exc_value, KeyboardInterrupt) and current_thread() is main_thread():
            lost.append(unraisable.exc_value)
        else:
            before(unraisable)

    sys.unraisablehook = keep
    try:
        yield
    finally:
        sys.unraisablehook = before
        if lost:
            raise KeyboardInterrupt from lost[0]
