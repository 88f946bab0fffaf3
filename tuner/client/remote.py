"""One GET that ends in time and brings no more than it may, whatever the other side does.

The work is done by a thread of its own, and whoever asked waits for it no longer than agreed: looking up a host's name
cannot be ended, nor can a server be stopped that sends a byte a second. Standard library only; redirects are not
followed and proxies not asked.
"""

from __future__ import annotations

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

from tuner.errors import StoreError, UsageError

T = TypeVar("T")

_CONNECT_S = 2.0
"""A server that is not there is known by then."""
_CHUNK = 1 << 16


@dataclass(frozen=True)
class Got:
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    """By name in lower case."""
    body: bytes


def address(url: str) -> SplitResult:
    """The parts of a URL that a service is at.

    Raises:
        UsageError: it is none.
    """
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # of the port, or of brackets
        fits = False
    if not fits or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"a service is at http://HOST:PORT or https://HOST, not at {url.rpartition('@')[2][:80]!r}")
    return parts


def get(
    at: SplitResult,
    target: str,
    headers: Mapping[str, str],
    read: Callable[[Got], T],
    *,
    seconds: float,
    most_bytes: int,
) -> T:
    """What `read` makes of the answer; connecting, receiving and reading take so many seconds at most.

    Raises:
        StoreError: it cannot be reached, or took too long, or sent more than it may.
        as `read`.
    """
    request = _Request(at, target, headers, monotonic() + seconds, most_bytes)
    done: Future[T] = Future()

    def work() -> None:
        try:
            done.set_result(read(request.answer()))
        except BaseException as error:  # noqa: BLE001  it is raised again where it is waited for
            done.set_exception(error)

    Thread(target=work, name="tuner-get", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        request.end()
        raise StoreError(f"{request.origin} did not answer in time, which is {seconds:g} s at most") from None
    except (OSError, HTTPException, ValueError) as error:  # a header that is none is a ValueError
        why = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise StoreError(f"{request.origin} cannot be reached: {why[:200]}") from error


class _Request:
    def __init__(
        self, at: SplitResult, target: str, headers: Mapping[str, str], deadline: float, most_bytes: int
    ) -> None:
        assert at.hostname is not None
        kind = HTTPSConnection if at.scheme == "https" else HTTPConnection
        self.origin = f"{at.scheme}://{at.netloc}{at.path.rstrip('/')}"
        self._target, self._headers = at.path.rstrip("/") + target, dict(headers)
        self._deadline, self._most = deadline, most_bytes
        self._connection = kind(at.hostname, at.port, timeout=min(_CONNECT_S, self._left()))
        self._socket: socket | None = None

    def answer(self) -> Got:
        try:
            self._connection.connect()
            self._socket = self._connection.sock  # which the connection forgets where the server wants it closed
            self._wait_no_longer()
            self._connection.request("GET", self._target, headers=self._headers)
            with self._connection.getresponse() as response:
                headers = {name.lower(): value for name, value in response.getheaders()}
                return Got(response.status, headers, self._body(response))
        finally:
            self._connection.close()

    def end(self) -> None:
        """Wakes whoever waits for the server, so that the thread ends too."""
        with suppress(OSError):  # it may be closed by now
            if self._socket is not None:
                self._socket.shutdown(SHUT_RDWR)

    def _body(self, response: HTTPResponse) -> bytes:
        received = bytearray()
        while part := response.read1(_CHUNK):
            received += part
            if len(received) > self._most:
                raise OSError(f"it sends more than {self._most:,} bytes")
            self._wait_no_longer()
        return bytes(received)

    def _wait_no_longer(self) -> None:
        assert self._socket is not None
        with suppress(OSError):  # closed, since all was received
            self._socket.settimeout(self._left())

    def _left(self) -> float:
        return max(0.001, self._deadline - monotonic())
