"""Values that all pages read from and return."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar, cast

from tuner.api.pages.links import Links
from tuner.api.view import View
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.lookup.newest import Newest

T = TypeVar("T")


@dataclass(frozen=True)
class PageSettings:
    """Limits of the pages."""

    kept: int = 32
    """Number of results that are kept for the next request of a page."""
    rows: int = 100
    """Rows of a table, at most; the next ones are on the next page."""
    longest_find: int = 200
    """Characters of a text that rows are searched for, at most."""


SETTINGS = PageSettings()


@dataclass(frozen=True)
class Content:
    """The content of a page: a template and the values that it shows."""

    template: str
    """File in `templates/`."""
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    """HTTP status."""


@dataclass(frozen=True)
class Data:
    """A reply that is not a page: values for a plot, or a table to download."""

    body: bytes
    media_type: str
    file: str = ""
    """Name under which a browser saves it; empty if it is not saved."""


@dataclass(frozen=True)
class Flash:
    """The outcome of an action, which the next page shows once."""

    text: str
    kind: str = "good"
    """`good` or `bad`."""


@dataclass(frozen=True)
class Visitor:
    """The person at the browser."""

    form_token: Callable[[str], str] | None = None
    """Return the token of the form of an action, against requests from other sites; None if this person may not
    write."""
    may_sign_in: bool = False
    """True if the service has a token, with which a person can sign in to write."""
    here: str = ""
    """Address of the page that is shown, below the service's root: `pages/problem?op=gemm`."""
    flash: Flash | None = None
    """The outcome of an action of this person just now."""

    @property
    def may_write(self) -> bool:
        """True if pages show the buttons that change the store."""
        return self.form_token is not None


class Kept:
    """Results of the newest state of the store that are slow to make, the least recently used of them dropped first."""

    def __init__(self, limit: int = SETTINGS.kept) -> None:
        self._limit, self._lock = limit, Lock()
        self._results: OrderedDict[tuple[object, ...], object] = OrderedDict()

    def get(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return the result that is kept for a key, or make it."""
        with self._lock:
            if key in self._results:
                self._results.move_to_end(key)
                return cast(T, self._results[key])
        made = make()
        with self._lock:
            self._results[key] = made
            while len(self._results) > self._limit:
                self._results.popitem(last=False)
        return made


@dataclass(frozen=True)
class Site:
    """Sources of a page: the store, and the answers in memory as of one moment."""

    store: Store
    view: View
    kept: Kept
    op: str | None = None
    """The only op that the view has answers of, as in a report about it; None: all."""
    device: str | None = None
    """Id of the only device that the view has answers of; None: all."""
    newest: Newest | None = None
    """The newest kernels and software in the store; None: those of the view's answers."""

    def is_about(self, op: str, device: str) -> bool:
        """Return whether the view would have the answers of an op on a device, which may be an alias."""
        return self.op in (None, op) and self.device in (None, self.view.lookup.stored_as(device))

    def of_view(self, key: tuple[object, ...], make: Callable[[], T]) -> T:
        """Return a result that depends on the view alone; it is made once for each view, as long as it is kept."""
        tip = self.view.tip
        return self.kept.get((tip.snapshot, tip.kernel, tip.transfer, *key), make)


@dataclass(frozen=True)
class Query:
    """The query of a page, by name. Each page names what it takes."""

    given: Mapping[str, str]

    def only(self, *names: str) -> Query:
        """Return the query itself.

        Raises:
            UsageError: it has another name than these.
        """
        for name in self.given:
            if name not in names:
                raise UsageError(f"this page takes {', '.join(names) or 'no query'}, not {name[:40]!r}")
        return self

    def text(self, name: str) -> str | None:
        """Return the value of a name; None if it is missing or empty, as in a form that was not filled in."""
        return self.given.get(name) or None

    def needed(self, name: str) -> str:
        """Return the value of a name.

        Raises:
            UsageError: it is missing.
        """
        value = self.text(name)
        if value is None:
            raise UsageError(f"{name} is missing")
        return value

    def choice(self, name: str, choices: tuple[str, ...]) -> str:
        """Return the value of a name, the first choice if it is missing.

        Raises:
            UsageError: it is none of the choices.
        """
        value = self.text(name) or choices[0]
        if value not in choices:
            raise UsageError(f"{name} is one of {', '.join(choices)}, not {value[:40]!r}")
        return value

    def whole(self, name: str, default: int = 0) -> int:
        """Return the whole number of a name.

        Raises:
            UsageError: it is not written in the digits 0 to 9, or has more than ten.
        """
        value = self.text(name)
        if value is None:
            return default
        if not (value.isascii() and value.isdigit() and len(value) <= 10):
            raise UsageError(f"{name} is a whole number, in the digits 0 to 9, not {value[:40]!r}")
        return int(value)

    def words(self, name: str) -> tuple[str, ...]:
        """Return the words of a name in lower case, each of which a text is searched for.

        Raises:
            UsageError: they are longer than `SETTINGS.longest_find`, since each row is searched for each word.
        """
        value = self.text(name) or ""
        if len(value) > SETTINGS.longest_find:
            raise UsageError(f"{name} has up to {SETTINGS.longest_find} characters, not {len(value):,}; shorten it")
        return tuple(dict.fromkeys(value.lower().split()))

    def needed_whole(self, name: str) -> int:
        """Return the whole number of a name.

        Raises:
            UsageError: it is missing, or no number.
        """
        self.needed(name)
        return self.whole(name)


Reader = Callable[[Site, Query, Links], Content]
"""A page: returns its content. It runs in a thread, so it may read the database.

Raises TunerError if the page cannot be shown; the error is then shown in its place, with its HTTP status.
"""
DataReader = Callable[[Site, Query], Data]
"""Data of a page. It runs in a thread; TunerError becomes an error as the API's."""
