"""A job of three ranks with a real gloo process group. `python ranked.py FOLDER` writes what each rank saw there.

A process that has imported torch forks them. The folder has a database for each rank, and a bundle. Ranks have the
cards of `helpers`, as machines have them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import torch.distributed as distributed
from helpers import A100, H200, toy
from served import answer, problem

import tuner
from tuner.client import Client, default_client
from tuner.client.ranks import is_tuning_rank, sync_ranks
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.measure import device
from tuner.records import Environment

SIZE = 3
SIZES = (64, 512, 4096)


class Lines(logging.Handler):
    """Lines that the tuner logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def run(rank: int, folder: Path) -> dict[str, Any]:
    """Return what a rank saw, step by step."""
    own = Lines()
    logging.getLogger("tuner").addHandler(own)
    seen: dict[str, Any] = {}
    card, triton, client = H200, "3.7.1", default_client()

    def note(step: str) -> None:
        matches = [client.best_config("gemm", M=M, device=card.id).match for M in SIZES]
        seen[step] = {"matches": matches, "lines": [line for line in own.lines if "tuner search" not in line]}
        own.lines.clear()

    def sync(step: str, group: Any = None) -> None:
        outcome = sync_ranks(group, client=client)
        note(step)
        seen[step] |= {"outcome": [outcome.rank, outcome.size, outcome.answers, outcome.snapshot, *outcome.differing]}

    device.count = lambda: 1
    device.describe = lambda index: card  # type: ignore[assignment]
    device.environment = lambda index=0: Environment(triton, "12.8", "2.13.0", "580.1")  # type: ignore[assignment]
    os.environ["TUNER_DB"] = str(folder / f"{rank}.db")
    os.environ["RANK"] = str(rank)
    seen["may tune by environment"] = is_tuning_rank()
    try:
        sync_ranks()
    except UsageError as error:
        seen["without a group"] = str(error)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=SIZE)
    os.environ["RANK"] = "7"
    seen["may tune by the group"] = is_tuning_rank()
    note("before")
    sync("synced")

    if rank == 0:
        store = Store.open(folder / "0.db")
        answer(store, problem(M=512))
        store.close()
    tuner.refresh()
    note("newer")
    sync("synced again")

    if rank == 1:
        os.environ["TUNER_SNAPSHOT"] = str(folder / "other.json")
        triton = "3.6.0"
    if rank == 2:
        card = A100
    client = Client()
    client.best_config(_kernel(folder, rank), N=64)
    sync("differing")

    if rank == 0:
        os.environ["TUNER_DB"] = str(folder)
    card, triton = H200, "3.7.1"
    os.environ.pop("TUNER_SNAPSHOT", None)
    client = Client()
    sync("unreadable")

    pair = distributed.new_group([1, 2])
    if rank == 0:
        try:
            sync_ranks(pair)
        except UsageError as error:
            seen["outside"] = str(error)
    else:
        client = Client()
        sync("pair", pair)
    distributed.destroy_process_group()
    return seen


def _kernel(folder: Path, rank: int) -> Path:
    """Return a kernel file whose code differs on rank 2, as after an update of one host."""
    file = folder / f"rank{rank}" / "halve.py"
    file.parent.mkdir()
    text = Path(toy("halve")).read_text()
    changed = text.replace("(-(-N // block),)", "(1 + (N - 1) // block,)")
    assert changed != text
    file.write_text(changed if rank == 2 else text)
    return file


def main(folder: Path) -> None:
    """Fork the ranks and wait for them."""
    children = []
    for rank in range(SIZE):
        child = os.fork()
        if not child:
            (folder / f"{rank}.json").write_text(json.dumps(run(rank, folder)))
            os._exit(0)
        children.append(child)
    sys.exit(max(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
