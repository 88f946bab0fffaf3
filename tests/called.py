"""Captured calls of one function whose signatures differ, and answers to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from helpers import H200
from stored import HERE, SECONDS, SETTINGS

from tuner.captured.call import CapturedCall, Function, TensorArgument
from tuner.captured.problem import problem_of_call, signature_of_call
from tuner.db.store import Store
from tuner.kernels.spec import Problem, Signature, Value
from tuner.records import Answer, Comparison, Provenance
from tuner.records.answer import AGREEMENT, REFERENCE

X, Y = TensorArgument((64, 3), (3, 1), "fp32"), TensorArgument((3,), (1,), "bf16")
SMALL = {"BLOCK": 64, "num_warps": 4, "num_stages": 3}
LARGE = {"BLOCK": 1024, "SPLIT": 2, "num_warps": 8, "num_stages": 3}


def call(key: Mapping[str, Value], *configs: Mapping[str, Value], op: str = "main_kernel") -> CapturedCall:
    return CapturedCall(
        Function("__main__", "/scripts/a.py", "kernel"), op, key, {"x": X, "y": Y, **key}, configs or (SMALL,)
    )


SIZED = call({"n": 64, "k": 3}, SMALL, {**SMALL, "BLOCK": 128})
"""A call whose argument `k` is a size, and so a dim."""
UNSIZED = call({"n": 64, "k": None, "act": "a [b] \u00fc"}, LARGE)
"""A call whose argument `k` is None, and so an attribute. Its configs were pruned to others."""


def described(given: CapturedCall) -> tuple[Signature, Problem]:
    return signature_of_call(given), problem_of_call(given)


def answered(
    store: Store,
    given: CapturedCall,
    provenance: Provenance = HERE,
    *,
    basis: str = AGREEMENT,
    latency_us: float = 10.0,
) -> int:
    """Store an answer to a call, whose config is its first one, and return its id."""
    signature, problem = described(given)
    definition = "" if basis == AGREEMENT else "4d2c0a1b2c3d4e5f"
    provenance = replace(provenance, definition=definition, device=H200)
    run = store.start_run(signature, problem, provenance, SETTINGS)
    config = signature.config(given.configs[0])
    comparison = Comparison((config.text, "default"), ((latency_us, latency_us * 1.25),) * 3)
    answer = Answer(
        problem,
        "tuned",
        config,
        latency_us,
        (latency_us - 0.1, latency_us + 0.1),
        1.25,
        (1.2, 1.3),
        default_latency_us=latency_us * 1.25,
        basis=basis,
    )
    return store.add_answer(run, answer, provenance, "trials", SECONDS, comparison)


__all__ = ["AGREEMENT", "LARGE", "REFERENCE", "SIZED", "SMALL", "UNSIZED", "answered", "call", "described"]
