"""The profile of one config: it is compiled and run in a process of its own, and judged by the rules."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import Any

from tuner import catalog
from tuner.db.store import Store
from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.measure import device
from tuner.measure.processes import BUS_ID_VARIABLE, Child
from tuner.measure.worker_pool import visible_device
from tuner.profiling.analysis import analyse
from tuner.profiling.choice import choose_config
from tuner.profiling.messages import Failed, ProfileTask, Ran, RunProton, Stalls, Times, Trace
from tuner.profiling.ncu import Counters, NsightRun
from tuner.profiling.rules import Diagnosis, diagnose
from tuner.profiling.subject import Subject
from tuner.records import Device, RooflineLimits, median
from tuner.suites.suite import Entry
from tuner.tuning.gpu import AUTO, HeldGpu
from tuner.tuning.target import timing_policy

WORKER = "tuner.profiling.worker"
"""Module that the process runs."""


@dataclass(frozen=True)
class ProfileSettings:
    """Time limits of a profile, and the limits of a card whose own are not measured."""

    run_s: float = 300.0
    """Time to start the process, compile and time the config, in s. Source: a large kernel compiles in a minute."""
    proton_s: float = 120.0
    """Time of a run under Proton, in s."""
    gb_per_s: float = 30.0
    """Assumed bandwidth of a copy for each SM. Source: an H200 reaches 4.1 TB/s on 132."""
    tflops: tuple[tuple[str, float], ...] = (
        ("bf16", 5.0), ("fp16", 5.0), ("fp8e4m3", 10.0), ("tf32", 2.5), ("fp32", 0.4),
    )  # fmt: skip
    """Assumed rate of a matmul for each SM, by dtype. Source: as above."""


SETTINGS = ProfileSettings()


@dataclass(frozen=True)
class Profile:
    """Times, facts and diagnosis of one config."""

    subject: Subject
    device: Device
    config: Config
    chosen: str
    """Source of the config: `given`, `answer` or `default`."""
    diagnosis: Diagnosis
    policy: str = ""
    """Text of the timing policy; empty if nothing was timed."""
    is_assumed: bool = False
    """True if the roofline limits are assumed, not measured."""
    proton: Times | None = None
    stalls: Stalls | None = None
    counters: tuple[Counters, ...] = ()
    trace: Trace | None = None
    missing: tuple[str, ...] = field(default=())
    """Sentences on what could not be measured, with the reasons."""


def profile_here(
    entry: Entry,
    store: Store,
    index: int,
    *,
    stored: Config | None,
    given: str | None = None,
    policy: str = AUTO,
    shared: bool = False,
    traces: bool = False,
    note: Callable[[str], None] = lambda message: None,
    settings: ProfileSettings = SETTINGS,
) -> Profile:
    """Run one config on a GPU of this machine, and return its profile.

    Args:
        index: number of the GPU.
        stored: config of the stored answer, if there is one.
        given: text of a config, as for `choose_config`.
        shared: run even while other processes use the card.
        traces: whether to record a trace.
        note: receives a sentence if the GPU is waited for or surveyed.

    Raises:
        UsageError: the given text is not a config, or not feasible.
        NoDevice: other processes compute on the card, and it is not `shared`.
        MeasureError: the config fails.
    """
    card, kernel = device.describe(index), catalog.resolve(entry.reference)
    config, chosen = choose_config(kernel, entry.problem, card.limits, stored, given)
    visible = {"CUDA_VISIBLE_DEVICES": visible_device(index), BUS_ID_VARIABLE: device.bus_id(index)}
    with closing(HeldGpu(index, entry.problem.text, shared, note=note)) as held:
        held.hold()
        roofline = held.roofline_limits(store)
        subject = _subject(kernel, entry.problem, config, roofline)
        timed_by = timing_policy(kernel, entry.problem, roofline, policy)
        task = ProfileTask(entry.reference, entry.problem, config, card.limits, timed_by)
        with closing(NsightRun(visible)) as nsight:
            ran, found = _run(task, visible, settings, traces)
            if ran.launches:
                nsight.begin(task)
            empty_us = 0.0 if subject.is_on_host else roofline.launch_us.get(timed_by.text, 0.0)
            timed = replace(subject, latency_us=median(ran.samples), empty_us=empty_us)
            subject = _analysed(timed, ran, card, found.get("times"))
            counted = nsight.counters() if ran.launches else ()
    missing = _calls(ran) + [each.why for each in (*found.values(), counted) if isinstance(each, Failed)]
    return Profile(
        subject,
        card,
        config,
        chosen,
        diagnose(subject),
        timed_by.text,
        proton=_only(found.get("times"), Times),
        stalls=_only(found.get("stalls"), Stalls),
        counters=() if isinstance(counted, Failed) else counted,
        trace=_only(found.get("trace"), Trace),
        missing=tuple(dict.fromkeys(missing)),
    )


def _run(
    task: ProfileTask, environment: dict[str, str], settings: ProfileSettings, traces: bool
) -> tuple[Ran, dict[str, Any]]:
    """Run a config in a process of its own: return its samples, and the answers of the runs under Proton, by kind.

    Without a launch there is nothing for Proton but a trace. A run that samples program counters is the last, since it
    may end the process if it is not permitted.
    """
    child = Child(WORKER, environment)
    try:
        ran = ask(child, task, settings.run_s)
        if isinstance(ran, Failed):
            raise MeasureError(f"the config {task.config.text} could not be run: {ran.why}")
        found = {"times": ask(child, RunProton("times"), settings.proton_s)} if ran.launches else {}
        if traces:
            found["trace"] = ask(child, RunProton("trace"), settings.proton_s)
        if isinstance(found.get("times"), Times):
            found["stalls"] = ask(child, RunProton("stalls"), settings.proton_s)
        return ran, found
    finally:
        child.kill()


def profile_elsewhere(
    entry: Entry,
    store: Store,
    card: Device,
    *,
    stored: Config | None,
    given: str | None = None,
    settings: ProfileSettings = SETTINGS,
) -> Profile:
    """Compile one config for a card that need not be here, and return its profile without times.

    Raises:
        as `profile_here`.
    """
    kernel = catalog.resolve(entry.reference)
    config, chosen = choose_config(kernel, entry.problem, card.limits, stored, given)
    measured = store.roofline_limits(card)
    roofline = measured or assumed_limits(card, settings)
    subject = _subject(kernel, entry.problem, config, roofline)
    task = ProfileTask(entry.reference, entry.problem, config, card.limits, launches=False)
    child = Child(WORKER)
    try:
        ran = ask(child, task, settings.run_s)
    finally:
        child.kill()
    if isinstance(ran, Failed):
        raise MeasureError(f"the config {config.text} could not be compiled: {ran.why}")
    subject = _analysed(subject, ran, card, None)
    missing = ["nothing was run: times, Proton and counters need the card", *_calls(ran)]
    if measured is None and not subject.is_on_host:
        missing.append("the card's roofline limits are not measured; those of a card like it are assumed")
    return Profile(
        subject, card, config, chosen, diagnose(subject), is_assumed=measured is None, missing=tuple(missing)
    )


def assumed_limits(card: Device, settings: ProfileSettings = SETTINGS) -> RooflineLimits:
    """Return roofline limits in proportion to the card's SMs."""
    count = card.sm_count
    return RooflineLimits(settings.gb_per_s * count, {dtype: rate * count for dtype, rate in settings.tflops}, {})


def _subject(kernel: Kernel, problem: Problem, config: Config, roofline: RooflineLimits) -> Subject:
    return Subject(
        problem,
        kernel.signature.knobs,
        config,
        kernel.bytes(problem),
        kernel.flops(problem),
        roofline,
        (),
        is_on_host=kernel.is_on_host(problem),
    )


def _calls(ran: Ran) -> list[str]:
    """Return what is missing of a config that does not only launch kernels."""
    if not ran.launches and not ran.calls:
        return ["the config launches no kernel"]
    return [f"calls on the host, such as copies by the driver, are not analysed: {ran.calls}"] if ran.calls else []


def _analysed(subject: Subject, ran: Ran, card: Device, times: Any) -> Subject:
    """Return the subject with the facts of its launches."""
    known = times.kernels if isinstance(times, Times) else {}
    launches = [replace(analyse(launch, card.limits), time_us=known.get(launch.name)) for launch in ran.launches]
    return replace(subject, launches=tuple(launches))


def ask(child: Child, request: ProfileTask | RunProton, limit_s: float) -> Any:
    """Return the answer to a request; `Failed` if the process dies or takes too long, which ends it."""
    if not child.runs:
        return Failed("the profiled process has ended")
    child.send(request)
    what = f"Proton's {request.kind}" if isinstance(request, RunProton) else "the config"
    try:
        if not child.pipe.poll(limit_s):
            child.end()
            return Failed(f"{what} took longer than {limit_s:g} s")
        answer = child.receive()
    except EOFError:
        return Failed(f"{what} ended its process: {_in_a_line(child.exit_text())}")
    return Failed(_in_a_line(answer.why)) if isinstance(answer, Failed) else answer


def _in_a_line(text: str, longest: int = 400) -> str:
    """Return the first and the last line of a text, which name an error and its cause."""
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["no message"]
    return lines[0][:longest] if len(lines) == 1 else f"{lines[0].removesuffix(':')[:longest]}: {lines[-1][:longest]}"


def _only(found: Any, kind: type[Any]) -> Any:
    return found if isinstance(found, kind) else None
