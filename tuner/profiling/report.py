"""A profile as a document, and as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from tuner.profiling.accesses import Access
from tuner.profiling.agreement import COMPARED, Comparison, compared
from tuner.profiling.analysis import LaunchFacts
from tuner.profiling.profile import Profile
from tuner.records import RooflineLimits
from tuner.report.text import bytes_text, config_text, count_text, problem_text, us_text

_MOST_LINES = 12
"""Number of source lines whose accesses are shown."""
_MOST_SHARES = 5
"""Number of stall reasons, and of places, that are shown."""
_CHOSEN = {"given": "given", "answer": "the stored answer", "default": "the kernel's default"}


def document(profile: Profile) -> dict[str, Any]:
    """Return the document of `tuner profile --json`. What is not known is null."""
    subject = profile.subject
    return {
        "op": subject.problem.op,
        "problem": subject.problem.text,
        "device": profile.device.id,
        "config": dict(profile.config),
        "chosen": profile.chosen,
        "policy": profile.policy or None,
        "latency_us": subject.latency_us,
        "proton_us": dict(profile.proton.kernels) if profile.proton else None,
        "gb_per_s": _rate(subject.bytes, subject.latency_us, 1e3),
        "tflops": _rate(subject.flops, subject.latency_us, 1e6),
        "roofline": None if subject.is_on_host else _roofline_json(profile),
        "launches": [_launch(launch) for launch in subject.launches],
        "stalls": asdict(profile.stalls) if profile.stalls else None,
        "counters": [*map(_counters, compared(profile.counters, subject.launches))] or None,
        "bottleneck": {
            "name": profile.diagnosis.bottleneck,
            "text": profile.diagnosis.text,
            "findings": [asdict(finding) for finding in profile.diagnosis.findings],
        },
        "trace": profile.trace.source if profile.trace else None,
        "missing": list(profile.missing),
    }


def _roofline_json(profile: Profile) -> dict[str, Any]:
    subject = profile.subject
    return {
        "floor_us": subject.floor_us,
        "bound": subject.bound,
        "share": subject.share,
        "copy_gb_per_s": subject.roofline.copy_gb_per_s,
        "tflops": subject.roofline.tflops.get(RooflineLimits.arithmetic(subject.problem)),
        "empty_us": subject.empty_us or None,
        "assumed": profile.is_assumed,
    }


def _rate(count: int, latency_us: float | None, unit: float) -> float | None:
    return count / latency_us / unit if count and latency_us else None


def _launch(launch: LaunchFacts) -> dict[str, Any]:
    held, accesses = launch.occupancy, launch.accesses
    return {
        "kernel": launch.name,
        "grid": list(launch.grid),
        "warps": launch.warps,
        "registers": launch.registers,
        "spilled_bytes": launch.spilled_bytes,
        "shared_bytes": launch.shared_bytes,
        "occupancy": None if held is None else asdict(held) | {"share": held.share},
        "waves": launch.waves,
        "evenness": launch.evenness,
        "time_us": launch.time_us,
        "bytes_in_flight": launch.bytes_in_flight,
        "fetched_bytes": launch.fetched_bytes,
        "uses_tensor_cores": None if accesses is None else accesses.uses_tensor_cores,
        "complete": None if accesses is None else accesses.complete,
        "unknown_branches": None if accesses is None else accesses.unknown_branches,
        "accesses": [] if accesses is None else [asdict(each) | {"excess": each.excess} for each in accesses.lines],
    }


def _counters(found: Comparison) -> dict[str, Any]:
    expected = {} if found.launch is None else dict(found.launch.expected)
    return {**asdict(found.counters), "expected": expected, "differing": list(found.differing)}


def lines(profile: Profile) -> Iterator[str]:
    """Yield the lines of `tuner profile`."""
    subject = profile.subject
    yield f"{problem_text(subject.problem)}  on {profile.device.name}"
    yield f"  {config_text(profile.config)}  ({_CHOSEN[profile.chosen]})"
    if measured := [*_times(profile), *_roofline(profile)]:
        yield ""
        yield from measured
    for launch in subject.launches:
        yield ""
        yield from _launch_lines(launch)
    if profile.stalls is not None:
        yield ""
        yield f"  warps wait for  {_shares(profile.stalls.reasons)}"
        if set(profile.stalls.lines) != {launch.name for launch in subject.launches[:1]}:
            yield f"  sampled at      {_shares(profile.stalls.lines)}"
    for each in compared(profile.counters, subject.launches):
        yield from _counter_lines(each, subject.bytes)
    yield ""
    for reason in profile.missing:
        yield f"  missing: {reason}"
    yield f"  bottleneck: {profile.diagnosis.text}"


def _shares(shares: Mapping[str, float]) -> str:
    """Return the largest shares."""
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in [*shares.items()][:_MOST_SHARES])


def _times(profile: Profile) -> Iterator[str]:
    latency = profile.subject.latency_us
    if latency is None:
        return
    empty = f"; an empty kernel takes {us_text(profile.subject.empty_us)}" if profile.subject.empty_us else ""
    yield f"  time         {us_text(latency)} by {profile.policy}{empty}"
    if profile.proton is not None:
        each = ", ".join(f"{name} {us_text(time)}" for name, time in profile.proton.kernels.items())
        yield f"  by Proton    {us_text(sum(profile.proton.kernels.values()))}  ({each})"


def _roofline(profile: Profile) -> Iterator[str]:
    subject, is_assumed = profile.subject, " (assumed)" if profile.is_assumed else ""
    limit = subject.roofline.copy_gb_per_s
    reached = _rate(subject.bytes, subject.latency_us, 1e3)
    if subject.is_on_host:  # its link is not among the roofline limits
        if reached is not None:
            yield f"  bandwidth    {reached:,.0f} GB/s"
        return
    share = "" if reached is None else f"{reached:,.0f} GB/s, {100 * reached / limit:.1f} % of "
    yield f"  bandwidth    {share}{limit:,.0f} GB/s of a copy{is_assumed}"
    rate = subject.roofline.tflops.get(RooflineLimits.arithmetic(subject.problem))
    if subject.flops and rate:
        done = _rate(subject.flops, subject.latency_us, 1e6)
        share = "" if done is None else f"{done:,.1f} TFLOP/s, {100 * done / rate:.1f} % of "
        yield f"  throughput   {share}{rate:,.0f} TFLOP/s of a large matmul{is_assumed}"
    yield f"  roofline     at least {us_text(subject.floor_us)}, bound by {subject.bound}"


def _launch_lines(launch: LaunchFacts) -> Iterator[str]:
    grid = " x ".join(map(str, launch.grid))
    time = "" if launch.time_us is None else f", {us_text(launch.time_us)}"
    programs, warps = count_text(launch.programs, "program"), count_text(launch.warps, "warp")
    yield f"  {launch.name}: {programs} ({grid}) of {warps}{time}"
    spills = "unknown" if launch.spilled_bytes is None else f"{launch.spilled_bytes:,} B a thread"
    registers = "unknown" if launch.registers is None else str(launch.registers)
    shared = bytes_text(launch.shared_bytes)
    yield f"    registers {registers}, spills {spills}, shared memory {shared}"
    held = launch.occupancy
    if held is not None:
        waves = f"; {launch.waves:,.2f} waves" if launch.waves is not None else ""
        yield (
            f"    occupancy {100 * held.share:.3g} % of warps, {count_text(held.blocks, 'program')} an SM, "
            f"limited by {', '.join(held.limited_by)}{waves}"
        )
    if launch.bytes_in_flight:
        yield f"    loads in flight {launch.bytes_in_flight / 1024:,.1f} KB a busy SM"
    if launch.accesses is None:
        yield "    its code could not be evaluated"
        return
    if not launch.accesses.complete:
        yield "    the first part of a program was evaluated: it is longer"
    if unknown := launch.accesses.unknown_branches:
        yield f"    branches that depend on data: {unknown} (loops are counted once, others both ways)"
    yield from _access_lines(launch.accesses.lines)


def _access_lines(accesses: tuple[Access, ...]) -> Iterator[str]:
    """Yield a table of accesses by source line, the most expensive first."""
    shown = sorted((each for each in accesses if each.requests), key=lambda each: -each.cost)
    places = [f"{each.space} {each.kind} at {each.line or 'unknown line'}" for each in shown[:_MOST_LINES]]
    wide = max([34, *map(len, places)])
    if shown:
        title = "memory access, by source line"
        yield f"    {title:{wide}} {'B/lane':>6} {'requests':>9} {'a request':>18} {'best':>6}"
    for each, where in zip(shown, places, strict=False):
        unit = "sectors" if each.space == "global" else "cycles"
        cost, best = each.cost / each.requests, each.fewest / each.requests
        mark = "  <" if each.excess >= 1.5 else ""
        yield f"    {where:{wide}} {each.width:6.3g} {each.requests:9,.0f} {cost:10.3g} {unit:7} {best:6.3g}{mark}"
    if len(shown) > _MOST_LINES:
        yield f"    and {count_text(len(shown) - _MOST_LINES, 'line')} with fewer"
    unknown = sum(each.unknown for each in accesses)
    if unknown:
        yield f"    {unknown:,.0f} requests have addresses that depend on data, and are left out"


def _counter_lines(found: Comparison, problem_bytes: int) -> Iterator[str]:
    """Yield the counters of a kernel, each beside what the analysis expects."""
    values, launch = found.counters.values, found.launch
    expected = {} if launch is None else launch.expected
    yield ""
    yield f"  counters of {found.counters.kernel}:"
    for name in ("load", "store"):
        sectors, requests = values.get(f"{name}_sectors"), values.get(f"{name}_requests")
        if sectors is not None and requests:
            beside = _beside(expected.get(f"{name}_sectors"))
            yield f"    global {name}s: {sectors:,.0f} sectors{beside}, {sectors / requests:.3g} a request"
    if (conflicts := values.get("shared_conflicts")) is not None:
        beside = _beside(expected.get("shared_conflicts"))
        yield f"    shared memory: {conflicts:,.0f} cycles of bank conflicts{beside}"
    moved = [values[name] for name in ("memory_read_bytes", "memory_written_bytes") if name in values]
    if moved:
        yield f"    device memory: {sum(moved) / 1e6:,.1f} MB moved; the problem has {problem_bytes / 1e6:,.1f} MB"
    if (share := values.get("occupancy_percent")) is not None:
        most = (
            "" if launch is None or launch.occupancy is None else f", of {100 * launch.occupancy.share:.3g} % at most"
        )
        yield f"    occupancy: {share:.3g} % of warps{most}"
    for name in found.differing:
        counted = f"{values[name]:,.0f} {COMPARED[name]}"
        yield f"    the card counts {counted}, and the analysis expects {expected[name]:,.0f}; trust the counters"


def _beside(number: float | None) -> str:
    return "" if number is None else f" (analysis {number:,.0f})"
