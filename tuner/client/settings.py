"""Limits of the client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ClientSettings:
    """Limits of what a client keeps. Ops and sizes may come from requests, so everything is bounded."""

    max_answers: int = 65_536
    """Number of queries whose answers are kept, about 1 kB each; then the oldest is looked up again when it recurs."""
    max_tables: int = 1024
    """Number of pairs of op and device whose tables are kept, and of ops whose kernels are."""
    max_warnings: int = 10_000
    """Number of different warnings that are logged."""


@dataclass(frozen=True)
class RemoteSettings:
    """Limits of a request to a service."""

    timeout_s: float = 10.0
    """Time limit of a whole request, in seconds."""
    connect_s: float = 2.0
    """Time limit of connecting, in seconds."""
    max_bytes: int = 64 << 20
    """Size limit of a reply, in bytes as sent, which may be compressed."""
    page: int = 1000
    """Number of devices or kernels requested at once; a service sends at most 1,000."""
    chunk_bytes: int = 1 << 16
    """Bytes read at a time."""
