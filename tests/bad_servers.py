"""Servers that misbehave: they hang, drip, lie or never end; and documents that they might send."""

from __future__ import annotations

import json
import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from time import sleep
from typing import Any

Behaviour = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def server(behave: Behaviour) -> Iterator[str]:
    """Run a server that treats each connection alike; yield its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_accept, args=(listening, behave), daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, behave: Behaviour) -> None:
    with suppress(OSError):
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_treat, args=(connection, behave), daemon=True).start()


def _treat(connection: socket.socket, behave: Behaviour) -> None:
    with connection, suppress(OSError):
        connection.recv(65536)
        behave(connection)


def answering(body: bytes, head: bytes = HEAD) -> Behaviour:
    """Return a behaviour that sends this reply to any request."""
    return lambda connection: connection.sendall(head + b"Connection: close\r\n\r\n" + body)


def hang(connection: socket.socket) -> None:
    """Receive a request and send nothing."""
    sleep(30)


def drip_headers(connection: socket.socket) -> None:
    """Send a byte at a time, each before a limit on one read is over."""
    connection.sendall(HEAD + b"X-Mood: ")
    for _ in range(300):
        connection.sendall(b"o")
        sleep(0.1)


def drip_body(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
    for _ in range(300):
        connection.sendall(b"[")
        sleep(0.1)


def never_end(connection: socket.socket) -> None:
    """Send as much as the other side receives."""
    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


def close(connection: socket.socket) -> None:
    """Close the connection."""


def bomb(mebibytes: int) -> bytes:
    """Return a few thousand bytes that uncompress to this size."""
    deflater = zlib.compressobj(wbits=31)
    parts = [deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    return parts[0] + parts[1] * mebibytes  # a flushed part says the same wherever it stands


def signed(document: dict[str, Any]) -> bytes:
    """Return a document as a bundle with a correct hash."""
    text = json.dumps({name: value for name, value in document.items() if name != "sha256"}).encode()[1:]
    return b'{"sha256":"%b",' % sha256(text).hexdigest().encode() + text
