"""Stores whose pages are looked at. Each is made by a function that takes the path of its database.

`recorded_store` is small and has something of everything, `large_store(20_000)` has many answers, and `hostile_store`
has names that a page must not take for HTML.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import islice, product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from helpers import H200
from nights import after, only_slower, written
from retuned import CAUSES, TODAY, stored_retune
from stored import HERE, SECONDS, change

import tuner
from tuner import catalog, recorded
from tuner.db.import_rules import ImportedAnswer
from tuner.db.queue import Job, JobFilter
from tuner.db.store import Store, database_at
from tuner.kernels.spec import Attribute, Dim, Kernel, Knob, Problem, Signature
from tuner.recorded import RecordedSpace
from tuner.records import (
    VENDOR,
    Answer,
    Comparison,
    Device,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Policy,
    Provenance,
    RooflineLimits,
    Tie,
)

H100 = Device("NVIDIA H100 80GB HBM3", (9, 0), 132, 85_029_158_912, 52_428_800, 232_448, "10de:2330")
LIMITS = {
    H200: RooflineLimits(4100.0, {"bf16": 800.0, "fp16": 800.0, "tf32": 350.0, "fp32": 50.0}, {"cold-events-1": 5.1}),
    H100: RooflineLimits(2700.0, {"bf16": 650.0, "fp16": 650.0, "tf32": 330.0, "fp32": 48.0}, {"cold-events-1": 5.3}),
}
SEARCHED = {
    "gemm-4096x4096x4096-bf16-nvidia-h200": 150,
    "gemm-16x14336x4096-fp16-nvidia-h200": 80,
    "gemm-1x4096x4096-bf16-nt-nvidia-h200": 40,
    "gemm-2048x2048x2048-fp32-tf32-nvidia-h200": 40,
    "softmax-8192x8192-fp32-nvidia-h200": 60,
    "softmax-4096x65536-fp32-nvidia-h200": 60,
    "softmax-8192x8192-fp32-nvidia-h100-80gb-hbm3": 60,
    "transpose-8192x8192-fp32-nvidia-h200": 60,
    "transpose-8192x8192-bf16-nvidia-h200": 60,
    "transpose-8192x8192-fp32-nvidia-h100-80gb-hbm3": 60,
}
"""Recorded spaces that the recorded store has searched, each with the number of trials."""
NEWER = {"triton": "3.7.1", "torch": "2.12.0", "driver": "590.44"}
"""Environment of the second generation of some answers."""


def recorded_store(path: Path) -> None:
    """Make a store of two cards, with searches of recorded spaces.

    - Ten answers, each with its trials, rounds and vendor, all but two of them as if they were measured on their cards.
    - `softmax M=8192` on the H200: three generations, by a search under a newer Triton and a real retune of both.
    - `gemm M=4096`: pinned. `gemm M=16`: rolled back.
    - Runs: an interrupted one, one that failed, and the last one, which runs.
    - Jobs: pending, tried once, running (two workers), done, failed. Misses, of which some have near answers.
    - Retunes: one with a finding of each cause (op `scale`), a real one, an interrupted one, and one that runs.
    """
    store = Store.open(path)
    with TemporaryDirectory() as spaces:
        _search(store, path, Path(spaces))
    for card in store.cards():  # as their recorded spaces describe them
        store.keep_roofline_limits(card, next(limits for each, limits in LIMITS.items() if each.id == card.id))
    _pin_and_roll_back(store)
    _add_retunes(store)
    _add_runs(store)
    _add_jobs_and_misses(store)
    store.close()


def _search(store: Store, path: Path, spaces: Path) -> None:
    def tune(space: RecordedSpace, replay: str, trials: int, **options: Any) -> None:
        given = {"store": store, "sampler": "random", "trials": trials, "on_event": tuner.Events(), **options}
        tuner.tune(space.problem.op, space.problem, replay=replay, **given)

    for name, trials in SEARCHED.items():
        tune(recorded.load(name), name, trials)
    change(database_at(path), "UPDATE runs SET recorded = NULL WHERE id > 2")  # as if measured
    for name in ("softmax-8192x8192-fp32-nvidia-h200", "gemm-16x14336x4096-fp16-nvidia-h200"):
        space = recorded.load(name)
        newer = after(space, lambda config: 0.9 if config["num_warps"] == 8 else 1.05, changed=NEWER)
        tune(space, written(newer, spaces), 60, force=True, seed=1)
        slower = only_slower(newer, store.answers()[-1].answer.config, 1.2, NEWER)
        tuner.retune(
            store=store,
            replay=written(slower, spaces),
            kernel=space.problem.op,
            problem=dict(space.problem.values),
            on_event=tuner.Events(),
        )
    change(database_at(path), "UPDATE runs SET recorded = NULL WHERE id > 2")


def _pin_and_roll_back(store: Store) -> None:
    stored = {each.answer.problem.text: each.id for each in store.answers()}
    pinned = next(id for text, id in stored.items() if text.startswith("gemm M=4096"))
    store.pins.add(pinned, "until the driver of node-3 is fixed")
    by_retune = max(id for text, id in stored.items() if text.startswith("gemm M=16 N=14336"))
    store.roll_back(by_retune - 1)  # of the search before


def _add_retunes(store: Store) -> None:
    stored_retune(store)
    planned = [each.id for each in store.answers()][:6]
    for status in ("interrupted", None):
        number = store.retunes.start(H200.id, {"threshold": 0.02}, planned, {**TODAY.as_json(), "host": "node-7"})
        store.retunes.add(number, replace(CAUSES[0], answer_id=planned[0], new_answer_id=None))
        if status is not None:
            store.retunes.end(number, status)


def _add_runs(store: Store) -> None:
    """Add a run that was interrupted, one that failed, and one that runs, with failures of each kind."""
    name = "gemm-256x4096x14336-bf16-nt-nvidia-h200"
    space = recorded.load(name)
    provenance = Provenance(
        space.device, space.environment, space.source, space.policy.text, None, tuner.__version__,
        catalog.load(space.problem.op).definition,
    )  # fmt: skip
    settings = {"sampler": "gp", "trials": 400, "budget_s": 600, "space": len(space.measurements), "known": 0}
    for status, stopped, trials in (("interrupted", "interrupted", 30), ("failed", "error", 3), ("", "", 60)):
        run = store.start_run(space.signature, space.problem, provenance, settings)
        for measurement in _with_failures(space, trials):
            store.add_trial(run, measurement)
        if status:
            store.end_run(run, status, stopped, SECONDS)


def _with_failures(space: RecordedSpace, count: int) -> Iterator[Measurement]:
    """Yield measurements of a space, every fifth of them a failure of another kind."""
    kinds = [outcome for outcome in Outcome if outcome is not Outcome.OK]
    for place, measurement in enumerate(space.measurements[:: len(space.measurements) // count][:count]):
        if place % 5 != 4:
            yield measurement
            continue
        outcome = kinds[place // 5 % len(kinds)]
        error = f"RuntimeError: {outcome.replace('_', ' ')} at {measurement.config.text}"
        yield Measurement(measurement.config, outcome, stage="compile", error=error)


def _add_jobs_and_misses(store: Store) -> None:
    gemm, softmax = (catalog.load(op).signature for op in ("gemm", "softmax"))
    queue, device = store.queue, H200.id

    def claimed(problem: Problem, worker: str, tries: int = 1) -> Job:
        queue.add(problem, device, priority=9)
        only = JobFilter(device, frozenset({problem.op}), frozenset({problem.text}))
        for _ in range(tries - 1):
            job = queue.claim(worker, [only], 600.0)
            assert job is not None
            queue.failed(job, "RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered")
        job = queue.claim(worker, [only], 600.0)
        assert job is not None
        return job

    answered = store.answers()[0]
    queue.done(claimed(answered.answer.problem, "node-1.gpu0"), answered.run_id)
    queue.failed(claimed(gemm.problem({"M": 777}), "node-2.gpu0", 1), "the card is busy: contended")
    last = claimed(gemm.problem({"M": 3, "N": 5, "K": 7}), "node-2.gpu1", 3)
    queue.failed(
        last, "KernelFault: gemm: launch failed\n  File kernel.py, line 3\nIndexError: list index out of range"
    )
    claimed(gemm.problem({"M": 256, "N": 4096, "K": 14336}), "node-1.gpu0")
    claimed(softmax.problem({"M": 4096, "N": 50257}), "node-3.gpu5")
    for place, size in enumerate((128, 512, 5120)):
        queue.add(gemm.problem({"M": size, "N": 4096, "K": 4096}), device, priority=place)
    missed = {("gemm", gemm.problem({"M": 128, "N": 4096, "K": 4096}).text, device): 1234}
    missed |= {("gemm", gemm.problem({"M": 4000, "N": 4096, "K": 4096}).text, H100.id): 77}
    missed |= {("softmax", softmax.problem({"M": 8192, "N": 8000}).text, device): 41}
    missed |= {("transpose", catalog.load("transpose").signature.problem({"M": 100, "N": 100}).text, device): 1}
    store.count_requests(missed)


@cache
def large_store(answers: int) -> Callable[[Path], None]:
    """Return a factory of a store with that many answers, of two cards and four ops in equal shares.

    One in five is stale by its source. The ratios to default and vendor vary.
    """

    def make(path: Path) -> None:
        store = Store.open(path)
        store.import_answers([*islice(_answers(answers), answers)])
        # As searches leave them: an imported answer has another standing.
        imported = 'stopped = \'trials\', settings = \'{"trials": 100, "space": 5000, "known": 0, "sampler": "gp"}\''
        change(database_at(path), f"UPDATE runs SET {imported}")
        for card, limits in LIMITS.items():
            store.keep_roofline_limits(card, limits)
        missed = islice(_sizes("gemm", offset=24), 500)
        store.count_requests({("gemm", each.text, H200.id): place for place, each in enumerate(missed, 1)})
        store.close()

    return make


def _sizes(op: str, offset: int = 0) -> Iterator[Problem]:
    """Yield problems of an op whose first two dims lie on a grid."""
    signature = catalog.load(op).signature
    sizes = [(64 << octave) + step * (16 << octave) + offset for octave in range(10) for step in range(4)]
    first, second = (dim.name for dim in signature.dims[:2])
    for dtype, *values in product(signature.dtypes[:2], sizes, sizes, (1024, 2048, 4096)):
        given = {first: values[0], second: values[1], "dtype": dtype}
        if len(signature.dims) > 2:
            given[signature.dims[2].name] = values[2]
        elif values[2] != 1024:
            given[first] = values[0] + values[2] // 1024
        yield signature.problem(given)


def _answers(count: int) -> Iterator[ImportedAnswer]:
    ops = ("gemm", "softmax", "transpose", "rms_norm")
    each = -(-count // (2 * len(ops)))
    for op, card in product(ops, (H200, H100)):
        kernel = catalog.load(op)
        for place, problem in enumerate(islice(_sizes(op), each)):
            yield _varied(kernel, problem, card, place)


def _varied(kernel: Kernel, problem: Problem, card: Device, place: int) -> ImportedAnswer:
    config = kernel.default_config(problem, card.limits)
    latency_us = 5.0 + sum(size for _, size in problem.dims) / 100
    gain = 1 + (place * 7 % 50) / 100
    vendor_us = None if place % 9 == 0 else latency_us * (0.8 + place * 13 % 60 / 100)
    found = Answer(
        problem,
        "default" if gain == 1 else "tuned",
        config,
        latency_us,
        (latency_us * 0.99, latency_us * 1.01),
        gain,
        (gain * 0.99, gain * 1.01),
        latency_us * gain,
        vendor_us,
        (Tie(config, 1.002, (1.0, 1.01)),) if place % 4 == 0 else (),
        evidence=Evidence(1e-4, 1e-2, ("normal", "special"), 4),
        flops=10**9,
        bytes=10**8,
    )
    source = "0123456789abcdef" if place % 5 == 0 else kernel.source
    triton = "3.6.0" if place % 3 else "3.7.1"
    provenance = Provenance(
        card, Environment(triton, "12.8", "2.11.0", "580.1"), source, Policy().text, None, tuner.__version__,
        kernel.definition,
    )  # fmt: skip
    day = f"2026-{1 + place % 11:02d}-{1 + place % 28:02d}T0{place % 10}:00:00.000+00:00"
    return ImportedAnswer(kernel.signature, found, provenance, "large", day)


MARKUP = "<img src=x onerror=alert(1)><script>alert('x')</script>\"><b title='"
BACKWARDS = "\u202eesrever\u202c \u200f\u2067right to left\u2069 \u05d0\u05d1\u05d2"
LINES = "first\nsecond\r\n\tthird\u2028fourth"
BRACES = "{{ 7 * 7 }} {% raw %} ${7*7} %7B &lt;i&gt; &amp; ' \" ` \\"
LONG = "x" * 9_990 + "<i>the end"
HOSTILE = {"markup": MARKUP, "backwards": BACKWARDS, "lines": LINES, "braces": BRACES, "long": LONG}
"""Texts that a page shows as they are: none of them becomes an element, and none moves the text around it."""
_LONGEST_DEVICE = 180
"""Length of the name of a card that pins can still be read with."""


def hostile_store(path: Path) -> None:
    """Make a store with the hostile texts in each field that holds a text of somebody else.

    Names of ops and open attributes that our own code refuses are written by SQL, as another program may.
    """
    store = Store.open(path)
    for name, text in HOSTILE.items():
        _add_hostile(store, path, name, text)
    store.close()


def _add_hostile(store: Store, path: Path, name: str, text: str) -> None:
    signature = _hostile_signature(name, text)
    printable = "".join(letter for letter in text if letter.isprintable())[:200]
    problem = signature.problem({signature.dims[0].name: 64, "act": printable})
    card = replace(H200, name=f"NVIDIA {text[:_LONGEST_DEVICE]}")
    environment = Environment(f"3.6.0 {text}", text, text, text)
    provenance = replace(HERE, device=card, environment=environment, tuner=text)
    config = signature.config({"mode": text, "num_warps": 4, "num_stages": 3})
    settings = {"sampler": text, "trials": 10, "known": 0, "space": 20, VENDOR: text, "imported": text}
    run = store.start_run(signature, problem, provenance, settings)
    store.add_trial(run, Measurement(config, Outcome.OK, (10.0,) * 5, stage="time"))
    worse = signature.config({"mode": "plain", "num_warps": 8, "num_stages": 3})
    store.add_trial(run, Measurement(worse, Outcome.COMPILE_ERROR, stage="compile", error=f"RuntimeError: {text}"))
    given = Answer(
        problem, "tuned", config, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, 11.0, (Tie(worse, 1.0, (0.9, 1.1)),),
        marks=(text,),
    )  # fmt: skip
    rounds = Comparison((config.text, VENDOR), ((10.0, 11.0), (10.1, 11.1)), vendor=text)
    answer = store.add_answer(run, given, provenance, "trials", {"compile": 1.0}, rounds)
    store.pins.add(answer, text)
    store.count_requests({(f"{signature.op}", f"{problem.text} {text}", card.id): 5, (text, text, text): 6})
    _add_hostile_work(store, problem, card.id, text)
    retune = store.retunes.start(card.id, {"threshold": 0.02, "note": text}, [answer], {"host": text, "triton": text})
    cause = replace(CAUSES[1], answer_id=answer, problem=problem, config=config, text=text, reasons=(text, text))
    store.retunes.add(retune, cause)
    store.retunes.end(retune, "done")
    with store._write() as connection:  # as another program writes it
        for table in ("jobs", "requests"):
            statement = (
                f"UPDATE {table} SET op = ?, problem = problem || ' ' || ? WHERE id = (SELECT max(id) FROM {table})"
            )
            connection.exec_driver_sql(statement, (text, text))
    failing = store.start_run(signature, problem, provenance, settings)
    store.end_run(failing, "failed", text, {})


def _hostile_signature(name: str, text: str) -> Signature:
    return Signature(
        op=f"hostile_{name}",
        summary=text,
        dims=(Dim("M", help=text), Dim("N", default="M", help=text)),
        dtypes=("bf16", "fp16"),
        knobs=(Knob("mode", (text, "plain")), Knob("num_warps", (4, 8)), Knob("num_stages", (3,))),
        attributes=(Attribute("act", None, "none", help=text),),
    )


def _add_hostile_work(store: Store, problem: Problem, device: str, text: str) -> None:
    queue, only = store.queue, JobFilter(device, frozenset({problem.op}))
    queue.add(problem, device)
    for _ in range(3):
        job = queue.claim(text, [only], 600.0)
        assert job is not None
        queue.failed(job, text)
    queue.add(problem, device)
    assert queue.claim(text, [only], 600.0) is not None
