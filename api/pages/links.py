"""Addresses of pages and assets, relative to the page that they stand on.

A service may be mounted below a path that it does not know, and a report may lie in any folder, so no address begins
with a slash.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import ClassVar
from urllib.parse import urlencode

from tuner.api.pages import files


@dataclass(frozen=True)
class Address:
    """A page and the query that it is asked with. The page of an empty name is the home page."""

    page: str
    query: tuple[tuple[str, str], ...] = ()

    @staticmethod
    def of(page: str, query: Mapping[str, object]) -> Address:
        """Return the address of a page. Values that are None are left out."""
        return Address(page, tuple((name, str(value)) for name, value in query.items() if value is not None))

    @property
    def path(self) -> str:
        """Path of the page below the service's root: empty, or `pages/coverage`."""
        return f"pages/{self.page}" if self.page else ""

    @property
    def file(self) -> str:
        """Name of the file that has the page in a report: `index.html`, `fleet.html`, `problem-3f2a9c01b7d4.html`."""
        if not self.query:
            return f"{self.page or 'index'}.html"
        named = sorted(self.query)
        return f"{re.sub('[^a-z]', '-', self.page) or 'index'}-{sha256(repr(named).encode()).hexdigest()[:12]}.html"


class Links:
    """Addresses as a page of the running service writes them.

    Args:
        depth: number of folders between the service's root and the page: 0 for `/`, 1 for `/pages/coverage`.
    """

    is_live: ClassVar[bool] = True

    def __init__(self, depth: int = 0) -> None:
        self._root = "../" * depth or "./"

    def to(self, page: str = "", /, **query: object) -> str:
        """Return the address of a page, the home page if none is named. Values that are None are left out."""
        address = Address.of(page, query)
        return f"{self._root}{address.path}{f'?{urlencode(address.query)}' if address.query else ''}"

    def asset(self, name: str) -> str:
        """Return the address of a file of `assets/`, such as `page.css` or `vendor/htmx.min.js`."""
        return f"{self._root}assets/{name}?{files.tag(files.OURS, name)}"

    def api(self, path: str, /, **query: object) -> str:
        """Return the address of a request of the API, such as `best-config`."""
        return f"{self._root}{path}{f'?{urlencode(query)}' if query else ''}"


@dataclass(frozen=True)
class FileLinks(Links):
    """Addresses as a page of a report writes them: all pages are files of one folder.

    Args:
        follow: called with the address of each page that is linked to; returns whether the report has it.
        about: origin of the report, as its pages state it.
    """

    follow: Callable[[Address], bool]
    about: str = ""
    is_live: ClassVar[bool] = False

    def to(self, page: str = "", /, **query: object) -> str:
        """Return the file of a page, or an empty text if the report does not have it."""
        address = Address.of(page, query)
        return address.file if self.follow(address) else ""

    def asset(self, name: str) -> str:
        """Return the file of an asset."""
        return f"assets/{name}"

    def api(self, path: str, /, **query: object) -> str:
        """Return an empty text: a report has no service."""
        return ""
