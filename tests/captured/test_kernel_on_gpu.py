"""Captured calls on a card: what needs one to be loaded or launched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from calls import SHAPES, blocks, call_of, configs, copied, tensor
from helpers import TOYS

from tuner.captured.call import CapturedCall, Contents, DescriptorArgument
from tuner.db.store import Store
from tuner.tuning.captured import tune_call
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions

pytestmark = pytest.mark.gpu
M, N = 1024, 2048
ASKS_TORCH = """
import torch
import triton
import triton.language as tl

BLOCKS = (1024, 2048) if torch.cuda.get_device_capability()[0] >= 9 else (512,)


@triton.autotune(configs=[triton.Config({"BLOCK": block}) for block in BLOCKS], key=["n"])
@triton.jit
def gathered(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + tl.load(index + at, mask=at < n), mask=at < n), mask=at < n)


gathered[(1 // 0,)]()
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    opened = Store.open(tmp_path / "tuner.db")
    yield opened
    opened.close()


def copies(file: str, argument: Any, **knobs: Any) -> CapturedCall:
    return call_of(
        "copied",
        {"x": argument, "out": argument, "M": M, "N": N},
        configs(**knobs),
        lambda meta: (-(-M // meta["ROWS"]), -(-N // meta["COLUMNS"])),
        key=("M", "N"),
        knobs=("ROWS", "COLUMNS"),
        file=file,
    )


@pytest.mark.parametrize("kind", ["on the device", "on the host", "asks torch"])
def test_it_is_examined_compiled_and_measured(kind: str, store: Store, tmp_path: Path) -> None:
    x = tensor(M, N, dtype="bf16")
    if kind == "on the device":  # Triton needs memory for the descriptors
        call = copies(str(TOYS / "autotuned_asks.py"), x, ROWS=(16, 32), COLUMNS=(64, 128))
    elif kind == "on the host":
        described = DescriptorArgument(x, (M, N), (N, 1), (1, 1))
        call = copies(SHAPES, described, ROWS=(8, 16), COLUMNS=(32,))
    else:
        index = tensor(N, dtype="int32", contents=Contents(low=0, high=N - 1))
        call = call_of(
            "gathered",
            {"x": tensor(N, offset=4), "index": index, "out": tensor(N), "n": N},
            configs(BLOCK=(1024, 2048)),
            blocks(N),
            file=copied(ASKS_TORCH, tmp_path, "asks.py"),
        )
    found = tune_call(
        call,
        store,
        effort=Effort.named("quick"),
        options=MeasureOptions(),
        events=Events(),
        stop=StopToken(),
        widen=True,
    )
    assert found.answer is not None, found
    assert not found.error
