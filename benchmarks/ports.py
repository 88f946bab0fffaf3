"""Free ports, for servers that are told theirs."""

from __future__ import annotations

import random
import socket

_PORTS = range(12_000, 32_000)
"""Ports below those that the system gives to connections, one of which might take a port just before a server does."""


def free_ports(count: int) -> list[int]:
    """Return ports on which nothing listens.

    They are drawn anew each time: servers that two processes start at once are not given the same.
    """
    found = list[int]()
    for port in random.SystemRandom().sample(_PORTS, len(_PORTS)):
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"fewer than {count} ports are free from {_PORTS.start} to {_PORTS.stop}")
