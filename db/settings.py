"""Limits of the store."""

from __future__ import annotations

from dataclasses import dataclass

LARGEST_ID = 2**31 - 1
"""Largest id of a row: an integer of PostgreSQL has 32 bits."""


@dataclass(frozen=True)
class ConnectionSettings:
    """Time limits of connections that write, and of those that only read, which must not delay a model."""

    writer_s: float = 10
    """Wait of a writer for a lock, in seconds."""
    turn_s: float = 30
    """Wait of a writer for its turn on PostgreSQL, in seconds, which is longer than one that has it can be idle."""
    idle_s: float = 10
    """Time after which PostgreSQL ends a transaction that writes and does nothing, in seconds."""
    reader_s: float = 1
    """Wait of a reader for a lock, in seconds."""
    writer_connects_s: int = 10
    """Wait of a writer for the server, in seconds."""
    reader_connects_s: int = 2
    """Wait of a reader for the server, in seconds; the client library takes no less."""
    silent_s: int = 30
    """Time after which a connection to a server is lost if nothing of it arrives, in seconds."""
    connections: int = 20
    """Largest number of connections of a process to a server, which are made when they are needed."""
    slice_s: float = 0.1
    """Longest wait of SQLite itself for the write lock, which Ctrl-C does not end, in seconds."""
    poll_s: float = 0.01
    """Polling interval of a lock that SQLite itself does not wait for, in seconds."""


@dataclass(frozen=True)
class StoreSettings:
    """Limits of tries, and sizes of batches."""

    config_tries: int = 2
    """Tries, over all runs, of a config that crashed, hung or ran out of memory."""
    job_tries: int = 3
    """Tries of a job that fails, or whose workers die."""
    counted_requests: int = 100_000
    """Distinct missed problems that are counted."""
    captured_calls: int = 2000
    """Largest number of captured calls, each of up to a megabyte."""
    engine_files: int = 20_000
    """Largest number of files of other systems; then the oldest are removed."""
    engine_file_characters: int = 1_000_000
    """Largest number of characters of such a file."""
    import_batch: int = 500
    """Imported answers in one write, which takes a fraction of a second."""
    counted_unreadable: int = 100_000
    """Rows of one table that are counted as unreadable."""
    warned_unreadable: int = 1000
    """Warnings of unreadable rows that are remembered, so that each is logged once."""
    resumed_h: float = 24
    """Age of a retune, in hours, from which it is not resumed."""
    silent_s: float = 30
    """Age of the state of a search, in seconds, from which it is taken for killed; it is written every 10 s."""
    abandoned_min: float = 15
    """Time without a finding, in minutes, after which a running retune of another host is taken for killed."""
    prune_batch: int = 500
    """Runs in one statement. SQLite takes 32,766 parameters, older versions 999."""


SETTINGS = StoreSettings()
