"""Time of ten decode shapes in one command, and whether compiling the next problem changes answers. Needs a GPU.

    python benchmarks/several.py

Each part begins with empty caches and an empty database: first the GEMMs of Llama 3 8B for 16 and 64 tokens in one
command, then the first, the fifth and the last of them in a process each, with no compilation during the comparison.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import monotonic
from typing import Any

LLAMA_3_8B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}
_LIMIT_S, _TENTH = 90.0, 0.5
"""Time limit of all problems, in seconds, and of the last problem, relative to the first."""


def search(folder: Path, options: Sequence[str]) -> tuple[dict[str, Any], float]:
    """Return the document of `tuner search gemm`, and the seconds that the command took."""
    environment = os.environ | {"TUNER_DB": str(folder / "tuner.db"), "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-P", "-m", "tuner", "search", "gemm", *options, "--json"]
    started = monotonic()
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    document: dict[str, Any] = json.loads(done.stdout)
    return document, monotonic() - started


def uncertainty(answer: dict[str, Any]) -> float:
    """Return half of the interval's width, in per cent."""
    low, high = answer["interval_us"]
    return 50.0 * float(high - low) / float(answer["latency_us"])


def main() -> int:
    """Print a line for each problem; return 1 if a time limit is exceeded."""
    options = argparse.ArgumentParser(description=__doc__).parse_known_args()[1]  # of tuner search
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(LLAMA_3_8B))
        document, seconds = search(Path(folder), ["--model", str(config), "--M", "16,64", *options])
    rows = document["rows"]
    print("   M      N      K       us   ± %  x torch  x default  configs       s")
    for row in rows:
        sizes = "  ".join(f"{row['problem'][name]:5}" for name in ("M", "N", "K"))
        ratios = f"{row['vendor_latency_us'] / row['latency_us']:7.3f}  {row['speedup'] or 1.0:9.3f}"
        shown = f"{row['latency_us']:7.2f}  {uncertainty(row):4.2f}  {ratios}"
        print(f"{sizes}  {shown}  {row['tried']:>7}  {row['seconds']:6.1f}")
    tenth = rows[-1]["seconds"]
    first = seconds - sum(row["seconds"] for row in rows[1:])  # with the start of the command
    good = seconds < _LIMIT_S and tenth <= _TENTH * first
    print(f"{len(rows)} in {seconds:.1f} s (limit {_LIMIT_S:g} s); the last {tenth:.1f} s, the first {first:.1f} s")
    for row in (rows[0], rows[4], rows[-1]):
        problem = [word for name in ("M", "N", "K", "layout") for word in (f"--{name}", str(row["problem"][name]))]
        with tempfile.TemporaryDirectory() as folder:
            alone, taken = search(Path(folder), [*problem, *options])
        apart = 100.0 * (row["latency_us"] / alone["latency_us"] - 1)
        text = f"alone {alone['latency_us']:.2f} us ± {uncertainty(alone):.2f} % in {taken:.1f} s"
        print(f"{' '.join(problem)}: {text}; with the others {row['latency_us']:.2f} us, {apart:+.2f} %")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
