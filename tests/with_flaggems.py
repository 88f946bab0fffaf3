"""FlagGems's `libtuner` with a store and a card that is not there. `python with_flaggems.py FOLDER` prints what it did.

A process of its own, since FlagGems cannot be imported under Triton's interpreter.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from autotuned import CONFIGS, HERE, Card, Recorded, grid, scale_

from tuner import refresh
from tuner.captured.kernel import kernel_of
from tuner.db.store import Store
from tuner.engines import flaggems
from tuner.records import Answer, Comparison, Provenance


def call(tuner: Any, n: int) -> int:
    """Call the kernel; return the block that it was launched with."""
    tuner.run(torch.ones(n), torch.empty(n), n, grid=grid, warmup=False)
    return int(tuner.fn.blocks[-1])


def keep(card: Card, tuner: Any, n: int, **config: int) -> None:
    """Store an answer for the captured call of a size."""
    (stored,) = [each for each in card.captured() if each.call.key == {"n": n}]
    kernel = kernel_of(stored.call, function=tuner)
    here = Provenance(card.devices[0], HERE, kernel.source, "cold-events-1")
    problem, known = kernel.signature.problem({"n": n, "dtype": "fp32"}), kernel.signature.config(config)
    answer = Answer(problem, "tuned", known, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(card.path)
    run = store.start_run(kernel.signature, problem, here, {"known": 0})
    store.add_answer(run, answer, here, "trials", {}, Comparison((known.text,), ((10.0,),)))
    store.close()


def main(folder: Path) -> dict[str, Any]:
    """Return the blocks of the launches, step by step."""
    card = Card(folder / "tuner.db", pytest.MonkeyPatch())
    os.environ |= {"GEMS_VENDOR": "nvidia", "FLAGGEMS_DB_URL": f"sqlite:///{folder}/gems.db"}
    flaggems.install()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from flag_gems.utils.libentry import libcache, libtuner
    measured: list[int] = []

    def measure(*args: Any, config: Any, **kwargs: Any) -> list[float]:
        measured.append(config.kwargs["BLOCK"])
        return [1 / measured[-1]] * 3

    tuner: Any = libtuner(configs=list(CONFIGS), key=["n"], strategy="align32")(Recorded(scale_))
    tuner._bench, globals()["scale"] = measure, tuner
    theirs, seen = libcache[tuner.config_table_name], dict[str, Any]()

    def key(n: int) -> Any:
        return tuner.get_key({"n": n, "x": torch.ones(1), "out": torch.ones(1)})

    def mode(name: str) -> None:
        os.environ["TUNER_AUTOTUNE"] = name

    seen["first config"] = [call(tuner, n) for n in (100, 992)]
    seen["best_config"] = tuner.best_config.kwargs
    theirs[key(500)] = tuner.configs[1]
    seen["measured before"] = [call(tuner, n) for n in (500, 512, 5000)]
    mode("capture")
    seen["captured"] = [call(tuner, n) for n in (1000, 1001)], [each.call.key for each in card.captured()]
    seen["counts"] = [each.count for each in card.captured()]
    keep(card, tuner, 1024, BLOCK=256, num_warps=8, num_stages=3)
    mode("serve")
    seen["before refresh"] = call(tuner, 1000)
    refresh()
    seen["served"] = [call(tuner, n) for n in (1000, 993, 1024, 992)]
    seen["kept by FlagGems"] = [n for n in (100, 992, 500, 1000, 5000) if theirs.get(key(n)) is not None]
    seen["measured"] = list(measured)
    mode("off")
    seen["off"] = call(tuner, 3000), list(measured), theirs.get(key(3000)).kwargs
    mode("serve")
    measured.clear()
    flaggems.uninstall()
    seen["uninstalled"] = call(tuner, 7000), list(measured)
    return seen


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
