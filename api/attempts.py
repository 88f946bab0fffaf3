"""The token that a write needs, and the limit of wrong tokens by client."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b, sha256
from ipaddress import IPv6Address, ip_address
from mmap import mmap
from pathlib import Path
from struct import Struct
from time import time

from tuner.errors import UsageError


@dataclass(frozen=True)
class AttemptSettings:
    """Limits of wrong tokens."""

    wrong: int = 10
    """Number of wrong tokens of one address within `window_s`, after which it is refused."""
    window_s: int = 60
    """Time from the first of them until the address is no longer refused, in seconds."""
    trusted_s: int = 12 * 3600
    """Time after a right token in which the address is never refused with it, in seconds: that of a session."""
    addresses: int = 4096
    """Number of addresses of which something is known, 24 bytes each."""


SETTINGS = AttemptSettings()


class TooManyAttempts(UsageError):
    """An address sent too many wrong tokens."""

    http_status = 429

    def __init__(self, wrong: int, wait_s: int) -> None:
        super().__init__(f"at most {wrong} wrong tokens are checked at a time; try again in {wait_s} s")
        self.retry_after = {"retry-after": str(wait_s)}


@dataclass(frozen=True)
class _Known:
    """The attempts of one address. Times are in seconds since 1970."""

    since: int = 0
    wrong: int = 0
    trusted_at: int = 0


class WriteToken:
    """The token of a service. It refuses addresses that send wrong ones.

    Tokens of a refused address are not compared, so that it learns nothing. Clients may share an address, as behind a
    proxy, and the guesses of one must not keep out the others: an address that had the right token may always use it.

    Args:
        token: the token; None: there is none.
        shared: file in which the worker processes of a service count together; None: this process counts alone. Counts
            that two processes write at the same moment may be lost.
        clock: returns seconds since 1970.
    """

    def __init__(
        self,
        token: str | None,
        shared: Path | None = None,
        settings: AttemptSettings = SETTINGS,
        clock: Callable[[], float] = time,
    ) -> None:
        self.text = token
        self._token = (token or "").encode()
        self._settings, self._clock = settings, clock
        self._key = sha256(self._token).digest()
        self._table = _table(shared, settings.addresses * _ENTRY.size)

    def accepts(self, given: bytes, client: str) -> bool:
        """Return whether a token is the right one.

        Args:
            client: address of the client; empty if it has none.

        Raises:
            TooManyAttempts: the address sent too many wrong tokens.
        """
        place, name = self._place(client)
        now, known = int(self._clock()), self._read(place, name)
        if not 0 <= now - known.since < self._settings.window_s:
            known = _Known(now, 0, known.trusted_at)
        is_refused = known.wrong >= self._settings.wrong
        is_trusted = 0 <= now - known.trusted_at < self._settings.trusted_s
        is_right = (is_trusted or not is_refused) and hmac.compare_digest(given.strip(), self._token)
        if is_right:
            self._write(place, name, _Known(known.since, known.wrong, now))
        elif is_refused:
            raise TooManyAttempts(self._settings.wrong, known.since + self._settings.window_s - now)
        else:
            self._write(place, name, _Known(known.since, known.wrong + 1, known.trusted_at))
        return is_right

    def _place(self, client: str) -> tuple[int, int]:
        """Return the place of an address in the table, and its hash. Another one of the same place replaces it."""
        name = int.from_bytes(blake2b(_network(client).encode(), key=self._key, digest_size=8).digest())
        return name % self._settings.addresses * _ENTRY.size, name

    def _read(self, place: int, name: int) -> _Known:
        found, *known = _ENTRY.unpack_from(self._table, place)
        return _Known(*known) if found == name else _Known()

    def _write(self, place: int, name: int, known: _Known) -> None:
        _ENTRY.pack_into(self._table, place, name, known.since, known.wrong, known.trusted_at)


_ENTRY = Struct("<QIII4x")
"""Hash of an address, start of its window, wrong tokens in it, and time of the last right one."""


def _table(shared: Path | None, size: int) -> mmap:
    """Return memory of zeros, or what a file holds."""
    if shared is None:
        return mmap(-1, size)
    with shared.open("ab") as file:
        file.truncate(size)
    with shared.open("r+b") as file:
        return mmap(file.fileno(), size)


def _network(client: str) -> str:
    """Return an address, or the /64 of one of IPv6, which is given to one client."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    return str(int(address) >> 64) if isinstance(address, IPv6Address) else client
