"""Servers that do what none should: they hang, drip, lie, or never end."""

from __future__ import annotations

import socket
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import sleep

Behaviour = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def server(behave: Behaviour) -> Iterator[str]:
    """The URL of a server that treats every connection alike."""
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
    """Sends this, whatever was asked."""
    return lambda connection: connection.sendall(head + b"Connection: close\r\n\r\n" + body)


def hang(connection: socket.socket) -> None:
    """Takes the question and says nothing."""
    sleep(30)


def drip_headers(connection: socket.socket) -> None:
    """A byte now and then, in time for whoever waits for a byte."""
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
    """As much as the other side takes."""
    connection.sendall(HEAD + b"Connection: close\r\n\r\n")
    while True:
        connection.sendall(bytes(1 << 20))


def close(connection: socket.socket) -> None:
    """Hangs up."""


def bomb(mebibytes: int) -> bytes:
    """A few thousand bytes that unpack to as much."""
    deflater = zlib.compressobj(wbits=31)
    parts = [deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH) for _ in range(2)]
    return parts[0] + parts[1] * mebibytes  # a flushed part says the same wherever it stands
