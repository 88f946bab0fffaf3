"""Agreement of two searches of the same problem, and of an answer with its verification.

Twenty small problems, each searched twice with different seeds and only Triton's cache in common. Then the first answer
is measured again in a process of its own (`tuner verify`). The table shows if the winners are the same or each is among
the other's ties, if the stored and the new interval of the speed-up over the default overlap, and if the answer is
not slower than the default. A later run continues from the results in `--out`.

    python benchmarks/trust.py --out trust.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Any

from tuner.measure import device

PROBLEMS: list[tuple[str, dict[str, object]]] = [
    ("gemm", {"M": 1, "N": 4096, "K": 4096}),
    ("gemm", {"M": 2, "N": 8192, "K": 1024}),
    ("gemm", {"M": 4, "N": 2048, "K": 2048}),
    ("gemm", {"M": 8, "N": 4096, "K": 1024}),
    ("gemm", {"M": 16, "N": 1024, "K": 1024}),
    ("gemm", {"M": 16, "N": 1024, "K": 4096, "dtype": "fp16"}),
    ("gemm", {"M": 16, "N": 4096, "K": 4096, "layout": "nt"}),
    ("softmax", {"M": 1024}),
    ("softmax", {"M": 128, "N": 4096}),
    ("softmax", {"M": 4096, "N": 256}),
    ("softmax", {"M": 1823, "N": 781}),
    ("softmax", {"M": 64, "N": 32768}),
    ("softmax", {"M": 16, "N": 200000}),
    ("softmax", {"M": 4096}),
    ("softmax", {"M": 2048, "N": 1024, "dtype": "fp16"}),
    ("softmax", {"M": 512, "N": 8192, "dtype": "bf16"}),
    ("transpose", {"M": 64}),
    ("transpose", {"M": 100, "N": 30}),
    ("transpose", {"M": 16, "N": 4096}),
    ("transpose", {"M": 4096, "N": 16, "dtype": "bf16"}),
]
SEEDS = (1, 2)
AT_ONCE = 2
"""Number of concurrent commands on a card: one measures while the other starts and waits."""
WITHIN = 0.995
"""Lowest speed-up over the default that counts as not slower."""


def tuner(command: str, op: str, given: dict[str, object], db: Path, gpu: int, *options: str) -> dict[str, Any]:
    """Run a command. Return the document it prints, with its duration in s as `seconds`."""
    described = [f"--{name}={value}" for name, value in given.items()]
    line = [sys.executable, "-P", "-m", "tuner", command, op, *described, "--json", f"--db={db}", f"--gpu={gpu}"]
    started = monotonic()
    done = subprocess.run([*line, *options], capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1, 4) or not done.stdout:
        raise RuntimeError(f"{' '.join(line)} ended with {done.returncode}: {done.stderr[-500:]}")
    return {**json.loads(done.stdout), "seconds": monotonic() - started}


def judged(op: str, given: dict[str, object], folder: Path, gpu: int, trials: int) -> dict[str, Any]:
    """Search one problem twice and verify the first answer."""
    answers = []
    for seed in SEEDS:
        options = (f"--trials={trials}", f"--seed={seed}", "--sampler=random")
        answers.append(tuner("search", op, given, folder / f"{seed}.db", gpu, *options))
    verified = tuner("verify", op, given, folder / f"{SEEDS[0]}.db", gpu)
    return {"op": op, "given": given, "gpu": gpu, "answers": answers, "verified": verified}


def agree(a: dict[str, Any], b: dict[str, Any]) -> str:
    """Return `same`, `ties` if each is among the other's ties, or "" if they differ."""
    if a["config"] == b["config"]:
        return "same"
    mutual = a["config"] in [tie["config"] for tie in b["ties"]] and b["config"] in [tie["config"] for tie in a["ties"]]
    return "ties" if mutual else ""


def overlap(a: tuple[float, float], b: tuple[float, float]) -> bool:
    """Return whether two intervals have a value in common."""
    return a[0] <= b[1] and b[0] <= a[1]


def row(result: dict[str, Any]) -> dict[str, Any]:
    """Return the table's row of one problem."""
    first, second = result["answers"]
    check = result["verified"]["verified"]
    speedups = first["speedup_interval"], check["speedup_interval"]
    return {
        "problem": f"{result['op']} {' '.join(f'{name}={value}' for name, value in result['given'].items())}",
        "policy": first["tuned_with"]["policy"],
        "agree": agree(first, second),
        "kinds": f"{first['kind']}/{second['kind']}",
        "ties": f"{len(first['ties'])}/{len(second['ties'])}",
        "stored": speedups[0],
        "again": speedups[1],
        "overlap": None not in speedups and overlap(*speedups),
        "not_slower": check["speedup"] is not None and check["speedup"] >= WITHIN,
        "outcome": check["outcome"],
        "seconds": sum(document["seconds"] for document in (first, second, result["verified"])),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=1500, help="the default exceeds each of these spaces")
    arguments = parser.parse_args()
    results: list[dict[str, Any]] = json.loads(arguments.out.read_text()) if arguments.out.exists() else []
    done = [(result["op"], result["given"]) for result in results]
    writing = Lock()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = f"{folder}/cache"
        cards = range(device.count())
        pools = [ThreadPoolExecutor(AT_ONCE) for _ in cards]

        def one(op: str, given: dict[str, object], gpu: int) -> None:
            result = judged(op, given, Path(folder), gpu, arguments.trials)
            with writing:
                results.append(result)
                arguments.out.write_text(json.dumps(results, indent=1))
                print(json.dumps(row(result)), flush=True)

        left = [problem for problem in PROBLEMS if problem not in done]
        jobs = [pools[n % len(cards)].submit(one, op, given, n % len(cards)) for n, (op, given) in enumerate(left)]
        failures = [str(job.exception()) for job in jobs if job.exception() is not None]
    rows = [row(result) for result in results]
    print(f"{device.describe(0).name}, {device.environment()}")
    for each in sorted(rows, key=lambda each: each["problem"]):
        stored, again = (f"{low:.3f}-{high:.3f}" for low, high in (each["stored"], each["again"]))
        flags = " ".join(name for name in ("overlap", "not_slower") if each[name])
        print(
            f"{each['problem']:38} {each['policy']:14} {each['agree'] or 'DIFFER':6} {each['kinds']:15} "
            f"{each['ties']:6} {stored} {again} {each['outcome']:7} {flags}"
        )
    for name, held in {
        "agree": [bool(each["agree"]) for each in rows],
        "overlap": [each["overlap"] for each in rows],
        "not slower than the default": [each["not_slower"] for each in rows],
    }.items():
        print(f"{name}: {sum(held)} of {len(rows)}")
    for failure in failures:
        print(failure)


if __name__ == "__main__":
    main()
