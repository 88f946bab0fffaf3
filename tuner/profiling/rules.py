"""The rules that name a bottleneck.

Each rule estimates the time that one resource takes alone. Its cost is this time less the roofline's. The rule with the
largest cost names the bottleneck, unless the config is near the roofline or launch-bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

from tuner.profiling.accesses import Access
from tuner.profiling.analysis import LaunchFacts
from tuner.profiling.knobs import Lever, Move, levers
from tuner.profiling.sectors import LINE, SECTOR
from tuner.profiling.subject import Subject


@dataclass(frozen=True)
class RuleSettings:
    """Thresholds of the rules, and rates of a card that the roofline limits do not have."""

    launch_bound_ratio: float = 2.0
    """A latency below this multiple of an empty kernel's is launch-bound, as for the mark of answers."""
    good_share: float = 0.85
    """Share of the roofline from which a config is at its limit. Source: chosen."""
    least_cost: float = 0.1
    """Share of the latency below which a cost is not named. Source: chosen."""
    excess: float = 1.5
    """Sectors or cycles over the fewest, above which accesses are named. Source: an unaligned row has 1.25."""
    reread: float = 2.0
    """Ratio of loaded bytes to those of the problem, above which rereads are named. Source: chosen."""
    memory_latency_ns: float = 700.0
    """Latency of device memory under load. Source: microbenchmarks of Hopper, 600 to 800."""
    l2_latency_ns: float = 300.0
    """Latency of L2. Source: as above."""
    clock_ghz: float = 1.7
    """Clock of the SMs. Source: a Hopper card under load."""
    l2_bytes_per_clock: float = 48.0
    """Bytes that an SM gets from L2 in one clock, while all do. Source: a gemm of 128 x 256 tiles gets 37 (H200)."""
    all_in_flight: float = 0.7
    """Share of the loads in flight at once, above which a problem is too small. Source: chosen."""
    spilled_bytes: int = 32
    """Bytes of a thread above which spills are named. Source: chosen."""
    spill_share: float = 0.2
    """Least share of the time that spills are taken to cost. Source: chosen."""


RULE_SETTINGS = RuleSettings()


@dataclass(frozen=True)
class Rule:
    """A possible bottleneck: how its cost is estimated, and what moves it."""

    name: str
    estimate: Callable[[Subject, LaunchFacts, RuleSettings], tuple[float, str] | None]
    """Returns its cost in us and the reason, or None if the rule does not apply."""
    moves: tuple[Move, ...]
    otherwise: str
    """Advice for a kernel that has no such knob."""


@dataclass(frozen=True)
class Finding:
    """A rule that applies to a launch."""

    rule: str
    text: str
    """The reason, with its numbers."""
    cost_us: float
    share: float
    """`cost_us` over the latency; over latency and cost if nothing was timed."""
    levers: tuple[Lever, ...]
    advice: str


@dataclass(frozen=True)
class Diagnosis:
    """The bottleneck of a config."""

    bottleneck: str
    """Name of a rule, `launch`, `host`, `memory` or `compute`."""
    text: str
    """One line: the bottleneck, its reason, and what moves it."""
    findings: tuple[Finding, ...]
    """Rules that apply, the most expensive first."""


def diagnose(subject: Subject, settings: RuleSettings = RULE_SETTINGS) -> Diagnosis:
    """Return what limits a config."""
    findings = tuple(sorted(_findings(subject, settings), key=lambda each: -each.cost_us))
    latency, empty = subject.latency_us, subject.empty_us
    if latency is not None and latency < settings.launch_bound_ratio * empty:
        text = f"launch: {latency:,.2f} us, and an empty kernel takes {empty:,.2f} us; no knob moves it: fuse it with "
        return Diagnosis("launch", f"{text}its neighbours", findings)
    if subject.is_on_host:
        moved = _advice([*levers(subject.knobs, subject.config, (Move("variant"),))], "keep the operand on the card")
        text = f"host: an operand is in the host's memory, and its link is slower than the card's memory; {moved}"
        return Diagnosis("host", text, findings)
    if subject.share is not None and subject.share >= settings.good_share:
        return Diagnosis(subject.bound, f"{_limit(subject)}: at its limit, no knob moves it", findings)
    if findings and findings[0].share >= settings.least_cost:
        first = findings[0]
        return Diagnosis(first.rule, f"{first.rule}: {first.text}; {first.advice}", findings)
    if subject.share is None:
        return Diagnosis(subject.bound, f"{subject.bound}: no rule finds another limit in the compiled code", findings)
    text = f"{_limit(subject)}, and no rule explains the rest; tuner search compares the other configs"
    return Diagnosis(subject.bound, text, findings)


def _limit(subject: Subject) -> str:
    assert subject.share is not None
    limit = "bandwidth of a copy" if subject.bound == "memory" else "rate of a large matmul"
    return f"{subject.bound}: {100 * subject.share:.0f} % of the {limit}"


def _findings(subject: Subject, settings: RuleSettings) -> list[Finding]:
    found = []
    for launch in (launch for launch in subject.launches if launch.programs):
        for rule in RULES:
            estimate = rule.estimate(subject, launch, settings)
            if estimate is None or estimate[0] <= 0:
                continue
            cost, text = estimate
            share = min(1.0, cost / (subject.base_us + (cost if subject.latency_us is None else 0.0)))
            moved = tuple(levers(subject.knobs, subject.config, rule.moves))
            named = f"{launch.name}: {text}" if len(subject.launches) > 1 else text
            found.append(Finding(rule.name, named, cost, share, moved, _advice(moved, rule.otherwise)))
    return found


def _advice(moved: Sequence[Lever], otherwise: str) -> str:
    if moved:
        return " or ".join(lever.text for lever in moved[:2])
    return f"no knob of this kernel moves it: {otherwise}"


def _worst(accesses: Sequence[Access]) -> Access:
    return max(accesses, key=lambda access: access.cost - access.fewest)


def _place(access: Access) -> str:
    return f"the {access.kind} at {access.line}" if access.line else f"a {access.kind}"


def _uncoalesced(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    if launch.accesses is None or launch.accesses.excess("global") < settings.excess:
        return None
    accesses = launch.accesses.of("global")
    worst = _worst(accesses)
    passes = sum(access.passes for access in accesses) * launch.programs
    fewest = sum(max(access.requests, access.fewest * SECTOR / LINE) for access in accesses) * launch.programs
    in_memory = launch.touched_bytes / subject.roofline.copy_gb_per_s / 1e3
    rate = _per_us(launch, 1, settings)
    cost = max(in_memory, passes / rate) - max(subject.floor_us, fewest / rate)
    text = f"{_place(worst)} touches {worst.cost / worst.requests:.1f} sectors of 32 bytes a request, and "
    return cost, f"{text}{worst.fewest / worst.requests:.1f} would do"


def _bank_conflicts(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    if launch.accesses is None:
        return None
    accesses = launch.accesses.of("shared")
    wasteful = [access for access in accesses if access.excess >= settings.excess]
    if not wasteful:
        return None
    worst = _worst(wasteful)
    cycles = sum(access.cost for access in accesses) * launch.programs
    fewest = sum(access.fewest for access in accesses) * launch.programs
    rate = _per_us(launch, 1, settings)
    cost = cycles / rate - max(subject.floor_us, fewest / rate)
    return cost, f"{_place(worst)} takes {worst.excess:.1f} times the fewest cycles of shared memory"


def _waves(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    """Estimate the cost of SMs that have less to do than the busiest one."""
    programs, sms = launch.programs, launch.sm_count
    most = ceil(programs / sms)
    used = programs / sms / most * launch.evenness
    if used >= 1:
        return None
    cost = subject.base_us * ((1 - used) if subject.latency_us else (1 / used - 1))
    if programs < sms:
        return cost, f"{programs} program{'s keep' if programs > 1 else ' keeps'} {launch.busy_sms} of {sms} SMs busy"
    if launch.evenness < programs / sms / most:
        return cost, f"the longest program has {1 / launch.evenness:.2f} times the work of the mean"
    return cost, f"{programs:,} programs on {sms} SMs are up to {most} each, and {programs / sms:.2f} in the mean"


def _latency(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    """Estimate by Little's law: bytes in flight over latency is the bandwidth that loads can reach."""
    flying, loaded = launch.bytes_in_flight, launch.fetched_bytes
    if not flying or not loaded or _is_all_in_flight(launch, settings):
        return None
    from_memory = min(loaded, subject.bytes)
    waiting = from_memory * settings.memory_latency_ns + (loaded - from_memory) * settings.l2_latency_ns
    takes = waiting / (flying * launch.sm_count) / 1e3
    needed = subject.roofline.copy_gb_per_s * settings.memory_latency_ns / launch.sm_count
    text = f"a busy SM has {flying / 1024:,.1f} KB of loads in flight, and full bandwidth takes {needed / 1024:,.0f} KB"
    return takes - subject.floor_us, text


def _too_small(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    if not _is_all_in_flight(launch, settings):
        return None
    fixed = subject.empty_us + settings.memory_latency_ns / 1e3
    launched = "the launch and one access to memory take" if subject.empty_us else "one access to memory takes"
    text = f"all loads are in flight at once; {launched} {fixed:,.2f} us"
    return fixed - subject.floor_us, text


def _is_all_in_flight(launch: LaunchFacts, settings: RuleSettings) -> bool:
    """Return whether the busy SMs request all that they load at once, so that no knob lets them request more."""
    flying = (launch.bytes_in_flight or 0.0) * launch.busy_sms
    return bool(flying) and flying >= settings.all_in_flight * launch.fetched_bytes


def _rereads(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    if launch.fetched_bytes < settings.reread * subject.bytes:
        return None
    takes = launch.fetched_bytes / _per_us(launch, settings.l2_bytes_per_clock, settings)
    times = launch.fetched_bytes / subject.bytes
    return takes - subject.floor_us, f"the programs together load {times:,.1f} times the bytes of the problem"


def _spills(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    spilled = launch.spilled_bytes or 0
    if spilled < settings.spilled_bytes:
        return None
    moved = 2 * spilled * 32 * launch.warps * launch.programs
    takes = moved / _per_us(launch, settings.l2_bytes_per_clock, settings)
    cost = max(takes, settings.spill_share * subject.base_us)
    return cost, f"{spilled:,} bytes of each thread do not fit its {launch.registers} registers"


def _no_tensor_cores(subject: Subject, launch: LaunchFacts, settings: RuleSettings) -> tuple[float, str] | None:
    if launch.accesses is None or launch.accesses.uses_tensor_cores or subject.bound != "compute":
        return None
    if subject.problem.dtype == "fp32" and subject.problem.values.get("precision") != "tf32":
        return None
    return subject.base_us, "the products are computed without tensor cores"


def _per_us(launch: LaunchFacts, per_clock: float, settings: RuleSettings) -> float:
    """Return the rate of the busy SMs in 1/us, if each has `per_clock` in one clock."""
    return per_clock * launch.busy_sms * settings.clock_ghz * 1e3


RULES = (
    Rule(
        "uncoalesced",
        _uncoalesced,
        (Move("vector"),),
        "let neighbouring lanes access neighbouring addresses there, through shared memory if need be",
    ),
    Rule(
        "bank conflicts",
        _bank_conflicts,
        (Move("pad", "raise"), Move("vector")),
        "pad or swizzle the layout in shared memory",
    ),
    Rule(
        "waves",
        _waves,
        (Move("split", "raise"), Move("tile", "lower"), Move("tile"), Move("variant")),
        "split the work into more programs of equal length",
    ),
    Rule(
        "latency",
        _latency,
        (Move("tile", "raise"), Move("stages", "raise"), Move("vector", "raise"), Move("warps", "raise")),
        "issue more loads before the first is needed",
    ),
    Rule("too small", _too_small, (), "fuse it with its neighbours"),
    Rule(
        "rereads",
        _rereads,
        (Move("tile", "raise"), Move("group", "raise")),
        "let a program compute more from what it loads",
    ),
    Rule("spills", _spills, (Move("tile", "lower"), Move("warps", "raise")), "keep fewer values at once"),
    Rule("no tensor cores", _no_tensor_cores, (Move("variant"),), "use tl.dot on 16-bit or tf32 operands"),
)
"""All rules but those of the roofline and the launch."""
