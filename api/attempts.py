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

SESSION_S = 12 * 3600
"""Life of a session, in seconds from the sign-in."""


@dataclass(frozen=True)
class AttemptSettings:
    """Limits of wrong tokens."""

    wrong: int = 10
    """Number of wrong tokens of an address within `window_s`, after which it is refused."""
    wrong_if_trusted: int = 1000
    """The same, of an address that sent the right token within `trusted_s`."""
    window_s: int = 60
    """Length of the window in which wrong tokens are counted, in seconds."""
    trusted_s: int = SESSION_S
    """Time after a right token in which the address is trusted, in seconds."""
    addresses: int = 4096
    """Number of slots for addresses, of 24 bytes each. Addresses that share a slot replace each other."""


SETTINGS = AttemptSettings()


class TooManyAttempts(UsageError):
    """An address sent too many wrong tokens."""

    http_status = 429

    def __init__(self, wrong: int, window_s: int, wait_s: int) -> None:
        limit = f"limit {wrong:,} in {window_s} s"
        super().__init__(f"too many wrong tokens from this address ({limit}); try again in {wait_s} s")
        self.retry_after = {"retry-after": str(wait_s)}


@dataclass(frozen=True)
class _Known:
    """The attempts of one address. Times are in seconds since 1970."""

    since: int = 0
    wrong: int = 0
    trusted_at: int = 0


class WriteToken:
    """The token of a service. It refuses addresses that send many wrong ones.

    Tokens of a refused address are not compared, so that it learns nothing. Clients may share an address, as behind a
    proxy, and the guesses of one should not keep out the others: an address that had the right token may send more.

    Args:
        token: the token; None or empty: there is none, and none is right.
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
        self.text = token or None
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
        is_trusted = 0 <= now - known.trusted_at < self._settings.trusted_s
        most = self._settings.wrong_if_trusted if is_trusted else self._settings.wrong
        if known.wrong >= most:
            raise TooManyAttempts(most, self._settings.window_s, known.since + self._settings.window_s - now)
        is_right = self.text is not None and hmac.compare_digest(given.strip(), self._token)
        wrong, trusted_at = (known.wrong, now) if is_right else (known.wrong + 1, known.trusted_at)
        self._write(place, name, _Known(known.since, wrong, trusted_at))
        return is_right

    def _place(self, client: str) -> tuple[int, int]:
        """Return the offset of an address's slot in bytes, and the hash of the address."""
        name = int.from_bytes(blake2b(_network(client).encode(), key=self._key, digest_size=8).digest())
        return name % self._settings.addresses * _ENTRY.size, name

    def _read(self, place: int, name: int) -> _Known:
        found, *known = _ENTRY.unpack_from(self._table, place)
        return _Known(*known) if found == name else _Known()

    def _write(self, place: int, name: int, known: _Known) -> None:
        _ENTRY.pack_into(self._table, place, name, known.since, known.wrong, known.trusted_at)


_ENTRY = Struct("<QIII4x")
"""Hash of an address, start of its window, wrong tokens in it, and time of the last right one; hashes are aligned."""


def _table(shared: Path | None, size: int) -> mmap:
    """Return memory of zeros, or what a file holds."""
    if shared is None:
        return mmap(-1, size)
    with shared.open("ab") as file:
        file.truncate(size)
    with shared.open("r+b") as file:
        return mmap(file.fileno(), size)


def _network(client: str) -> str:
    """Return an address; of IPv6 the /64, which is given to one client, or the IPv4 address that it holds."""
    try:
        address = ip_address(client)
    except ValueError:
        return client
    if not isinstance(address, IPv6Address):
        return client
    return str(address.ipv4_mapped or int(address) >> 64)
