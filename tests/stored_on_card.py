"""Stored answers of GPU 0, for tests on a card."""

from __future__ import annotations

from pathlib import Path

from tuner import catalog
from tuner.db.store import Store
from tuner.kernels.spec import Config, Value
from tuner.measure import device
from tuner.records import Answer, Comparison, Provenance


def keep(path: Path, op: str, sizes: dict[str, object], **knobs: Value) -> Config:
    """Store an answer of this card and its software: the default with some knobs changed; return its config."""
    kernel, card = catalog.load(op), device.describe(0)
    problem = kernel.signature.problem(sizes)
    config = kernel.signature.config({**kernel.default(problem, card.limits), **knobs})
    here = Provenance(card, device.environment(0), kernel.source, "cold-events-1")
    answer = Answer(problem, "tuned", config, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(path)
    run = store.start_run(kernel.signature, problem, here, {"known": 0})
    store.add_answer(run, answer, here, "trials", {}, Comparison((config.text,), ((10.0,),)))
    store.close()
    return config
