"""One GET request with a limit on its whole duration and on the size of the reply, whatever the server does.

A thread of its own does the work, since the lookup of a host name cannot be interrupted, and a server may send a byte a
second. Standard library only; redirects are not followed and proxies not used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from socket import SHUT_RDWR, socket
from threading import Thread
from time import monotonic
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

from tuner.client.settings import RemoteSettings
from tuner.errors import StoreError, UsageError

T = TypeVar("T")

_NO_URL = re.compile(r"[\s\x00-\x1f\x7f\ud800-\udfff]")
"""Characters that no URL has."""


@dataclass(frozen=True)
class Received:
    """The reply of a server."""

    status: int
    headers: Mapping[str, str]
    """Headers by name in lower case."""
    body: bytes


def parse_url(url: str, name: str = "the URL of a service") -> SplitResult:
    """Return the parts of the URL of a service.

    Args:
        name: name of the URL in an error.

    Raises:
        UsageError: it is not the URL of a service.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and _NO_URL.search(url) is None
    except ValueError:  # an invalid port, or unbalanced brackets
        fits = False
    if not fits or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"{name} is http://HOST:PORT or https://HOST, not {url.rpartition('@')[2][:80]!r}")
    return parts


def get(
    address: SplitResult,
    target: str,
    headers: Mapping[str, str],
    read: Callable[[Received], T],
    settings: RemoteSettings,
) -> T:
    """Return the value of `read` for the reply; the time limit covers connecting, receiving and `read`.

    Raises:
        StoreError: the server cannot be reached, takes too long or sends too much.
        as `read`.
    """
    try:
        request = _Request(address, target, headers, settings)
    except (HTTPException, ValueError) as error:
        raise StoreError(f"{address.geturl()[:80]} cannot be reached: {str(error)[:200]}") from error
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(read(request.send()))
        except BaseException as error:  # noqa: BLE001  raised again by the caller's thread
            done.set_exception(error)

    Thread(target=work, name="tuner-get", daemon=True).start()
    try:
        return done.result(settings.timeout_s)
    except TimeoutError:
        request.abort()
        raise StoreError(f"{request.origin} did not answer within {settings.timeout_s:g} s") from None
    except (OSError, HTTPException, ValueError) as error:  # a malformed header is a ValueError
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StoreError(f"{request.origin} cannot be reached: {why[:200]}") from error


class _Request:
    def __init__(self, address: SplitResult, target: str, headers: Mapping[str, str], settings: RemoteSettings) -> None:
        assert address.hostname is not None
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        self.origin = f"{address.scheme}://{address.netloc}{address.path.rstrip('/')}"
        self._target, self._headers = address.path.rstrip("/") + target, dict(headers)
        self._deadline, self._settings = monotonic() + settings.timeout_s, settings
        timeout_s = min(settings.connect_s, self._remaining_s())
        self._connection = kind(address.hostname, address.port, timeout=timeout_s)
        self._socket: socket | None = None

    def send(self) -> Received:
        """Send the request and return the reply."""
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # the connection drops it if the server closes
            self._limit_wait()
            self._connection.request("GET", self._target, headers=self._headers)
            with self._connection.getresponse() as response:
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Received(response.status, headers, self._body(response))
        finally:
            self._connection.close()

    def abort(self) -> None:
        """Shut the socket down, so that the thread that waits for the server ends."""
        with suppress(OSError):  # it may be closed by now
            if self._socket is not None:
                self._socket.shutdown(SHUT_RDWR)

    def _body(self, response: HTTPResponse) -> bytes:
        received = bytearray()
        while part := response.read1(self._settings.chunk_bytes):
            received += part
            if len(received) > self._settings.max_bytes:
                raise OSError(f"it sends more than {self._settings.max_bytes:,} bytes")
            self._limit_wait()
        return bytes(received)

    def _limit_wait(self) -> None:
        """Limit the next wait for the server to the time that remains."""
        assert self._socket is not None
        with suppress(OSError):  # the socket is closed once everything is received
            self._socket.settimeout(self._remaining_s())

    def _remaining_s(self) -> float:
        return max(0.001, self._deadline - monotonic())
