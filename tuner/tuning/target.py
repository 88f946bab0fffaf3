"""Targets, which a search measures on: one problem on a GPU here, or on a recorded space."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError
from tuner.kernels.spec import Config, Kernel, Problem, Signature
from tuner.kernels.vendors import ALL, LIBRARIES, chosen_vendors, library_versions
from tuner.lookup.query import Query
from tuner.measure import device
from tuner.measure.deadline import ADAPTIVE_DEADLINE
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.measurer import Measurer
from tuner.records import POLICIES, VENDOR, VENDOR_NAME, Comparison, Device, Policy, Provenance, RooflineLimits
from tuner.records.answer import AGREEMENT, REFERENCE
from tuner.search.refusals import none_feasible, refusal
from tuner.search.space import FeasibleSpace, ListedSpace, Space, feasible_among
from tuner.suites.suite import Entry
from tuner.tuning.events import Events
from tuner.tuning.gpu import AUTO, HeldGpu, MeasureOptions
from tuner.tuning.roofline import limits_for
from tuner.tuning.stand_in import none_recorded, note_what_stands_in
from tuner.version import __version__


@dataclass(frozen=True)
class TargetSettings:
    """Thresholds by which a problem's timing policy and an answer's marks are chosen."""

    graph_below_us: float = 5.0
    """Roofline time, in us, below which launches are timed in a CUDA graph: events alone cost 2 us and vary by 0.3."""
    launch_bound_ratio: float = 2.0
    """Answers faster than this multiple of an empty kernel's latency are marked launch-bound."""


SETTINGS = TargetSettings()
WIDENED = "widened"
"""Setting of a run that searched more than the configs that a captured call lists."""


@dataclass(frozen=True)
class Target:
    """The feasible configs of one problem on one card or recorded space, with their measurer."""

    space: Sequence[Config]
    default: Config | None
    """The kernel's default; None if it is not feasible."""
    provenance: Provenance
    policy: Policy
    flops: int
    bytes: int
    measurer: Callable[[], Measurer]
    """Start the measurer; called once there is something to measure."""
    roofline_limits: RooflineLimits | None = None
    """Limits of the card that hold for the problem; None if they are not measured, or an operand is on the host."""
    refused: str = ""
    """The default with the constraint that refuses it; empty if it is feasible."""
    vendor_name: str = VENDOR_NAME
    """Name under which the vendor's speed is reported, unless its rounds state another."""
    is_own_vendor: bool = True
    """True if that is the name of the kernel's own vendor."""
    vendors: tuple[str, ...] = ()
    """Names of the vendors that `bench_measurer` times."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Installed libraries of these vendors, with versions."""
    bench_measurer: Callable[[], Measurer] | None = None
    """Start a measurer that times each of `vendors` in all rounds; None: `measurer` does what there is to do."""
    basis: str = REFERENCE
    """Basis of the answers, as in `Answer`."""
    is_exhausted: bool = False
    """True if all configs are measured, unless the effort states a number of trials."""
    is_widened: bool = False
    """True if there are more configs than a captured call lists."""
    estimate: Callable[[Config], float] | None = None
    """Return the estimated latency of a config, in us; None if the kernel states no estimate."""
    why_not: Callable[[Config], str] = lambda config: "not among the feasible configs"
    """Return why a config is not in the space."""
    signature: Signature | None = None
    """Signature of a recorded space, by which its configs are stored and read; None: the kernel's of today."""
    close: Callable[[], None] = lambda: None
    """Release the card of a target that holds one of its own, whether its measurer was started and closed or not."""

    @property
    def settings(self) -> Mapping[str, str | bool]:
        """Settings of a run besides the effort: the vendor's name, and the constraint that refuses the default."""
        vendor = {VENDOR: self.vendor_name} if self.vendor_name != VENDOR_NAME else {}
        widened = {WIDENED: True} if self.is_widened else {}
        return {**vendor, **({"default_refused": self.refused} if self.refused else {}), **widened}

    def signature_of(self, entry: Entry) -> Signature:
        """Return the signature by which the configs of a problem on this target are stored and read."""
        return entry.signature if self.signature is None else self.signature

    def query(self, problem: Problem) -> Query:
        """Return the query to which an answer of this target is exact, but for being recorded."""
        provenance = self.provenance
        return Query.for_environment(
            problem,
            provenance.environment,
            provenance.source,
            definition=provenance.definition or None,
            policy=provenance.policy,
        )

    def marks(self, latency_us: float, comparison: Comparison) -> tuple[str, ...]:
        """Return the marks of an answer: those of its comparison, and `launch_bound`."""
        limits = self.roofline_limits
        empty_us = 0.0 if limits is None else limits.launch_us.get(self.policy.text, 0.0)
        return (*comparison.marks, *["launch_bound"] * (latency_us < SETTINGS.launch_bound_ratio * empty_us))


def choose_target(entry: Entry, store: Store, options: MeasureOptions, events: Events) -> Target:
    """Return the recorded space that `options` name; else a GPU; else a recorded space of the problem, with a note.

    Raises:
        NoDevice: there is no GPU and no recorded space of the problem; the message names those of its op.
        UsageError: the recorded space is of another problem or timing policy.
    """
    problem = entry.problem
    if options.replay not in (None, AUTO):
        return recorded_target(recorded.load(options.replay, problem.op), problem, options.policy)
    index = None if options.replay == AUTO else device.choose(options.gpu)
    if index is not None:
        return gpu_target(entry, store, index, options=options, events=events)
    spaces = recorded.of_problem(problem)
    if not spaces:
        raise none_recorded([problem])
    note_what_stands_in([spaces], events)
    return recorded_target(spaces[0], problem, options.policy)


def recorded_target(space: recorded.RecordedSpace, problem: Problem, policy: str = AUTO) -> Target:
    """Return a recorded space as a target.

    Raises:
        UsageError: it records another problem or was timed by another policy.
    """
    if space.problem != problem:
        raise UsageError(f"{space.name} records {space.problem.text}, not {problem.text}")
    if policy != AUTO and POLICIES[policy] != space.policy:
        raise UsageError(f"{space.name} was timed by policy {space.policy.text}, not {POLICIES[policy].text}")
    return Target(
        space=ListedSpace([measurement.config for measurement in space.measurements]),
        default=space.default,
        provenance=Provenance(
            space.device, space.environment, space.source, space.policy.text, space.name, __version__
        ),
        policy=space.policy,
        flops=space.flops,
        bytes=space.bytes,
        measurer=lambda: recorded.RecordedMeasurer(space),
        why_not=lambda config: f"not among the configs that {space.name} recorded",
        signature=space.signature,
    )


def gpu_target(
    entry: Entry,
    store: Store,
    gpu: int | HeldGpu,
    *,
    options: MeasureOptions,
    events: Events,
    stop_beaten: bool = True,
    spare: bool = True,
    compile_as: str | None = None,
    among: Collection[Config] | None = None,
) -> Target:
    """Return a problem on a GPU of this machine as a target. Roofline limits are measured if none are stored.

    Args:
        gpu: a held GPU, which stays held when the measurer is closed; or the index of a GPU, held from the first
            measurement until then.
        stop_beaten: as for `GpuMeasurer`; without it a slow compile is waited for too.
        spare: as for `GpuMeasurer`.
        compile_as: as for `GpuMeasurer`.
        among: the feasible ones of these and of the default are the space, as all of a gemm's take half a second to
            enumerate; None: all.

    Raises:
        NothingFound: no config is feasible.
        NoDevice: other processes compute on the card, and it is not `shared`.
    """
    problem, held = (
        entry.problem,
        gpu if isinstance(gpu, HeldGpu) else _gpu_of(entry, gpu, options, events, stop_beaten),
    )
    with ExitStack() as undo:  # closes the GPU if anything below raises
        if held is not gpu:
            undo.callback(held.close)
        card = device.describe(held.index)
        kernel, space, default, refused, limits = _prepared(entry, store, held, card, events, among)
        policy = timing_policy(kernel, problem, limits, options.policy)
        undo.pop_all()

    names, of_bench = (chosen_vendors(kernel, options.vendors or usual) for usual in (LIBRARIES, ALL))
    vendor = names[0] if len(names) == 1 else kernel.vendor_name
    made: list[GpuMeasurer] = []

    def measurer(*, each_vendor: bool = False) -> Measurer:
        held.hold()
        chosen = made[-1].vendors if made else names  # a joint search times the same vendor in each of its visits
        new = GpuMeasurer(
            entry.reference,
            problem,
            card.limits,
            policy=policy,
            vendors=of_bench if each_vendor else chosen,
            each_vendor=each_vendor,
            stop_beaten=stop_beaten,
            compilers=held.compilers,
            workers=held.workers,
            spare=spare,
            compile_as=compile_as,
            on_close=None if held is gpu else held.close,
        )
        made[:] = [] if each_vendor else [new]
        return new

    environment = device.environment(held.index)
    return Target(
        space=space,
        default=default,
        refused=refused,
        vendor_name=vendor,
        is_own_vendor=vendor == kernel.vendor_name,
        vendors=of_bench,
        libraries=library_versions(kernel, of_bench),
        bench_measurer=partial(measurer, each_vendor=True),
        provenance=Provenance(
            card, environment, kernel.source, policy.text, None, __version__, definition=kernel.definition
        ),
        policy=policy,
        flops=kernel.flops(problem),
        bytes=kernel.bytes(problem),
        measurer=measurer,
        roofline_limits=limits_for(entry.reference, problem, limits),
        basis=REFERENCE if kernel.definition else AGREEMENT,
        estimate=kernel.estimator(problem, replace(card.limits, gb_per_s=limits.copy_gb_per_s)),
        why_not=lambda config: refusal(kernel, problem, config, card.limits),
        close=(lambda: None) if held is gpu else held.close,
    )


def timing_policy(kernel: Kernel, problem: Problem, limits: RooflineLimits, chosen: str = AUTO) -> Policy:
    """Return the timing policy of a name, or the usual one of a problem: short ones on a card are timed in a graph."""
    if chosen != AUTO:
        return POLICIES[chosen]
    floor_us = limits.roofline_us(problem, kernel.flops(problem), kernel.bytes(problem))
    return POLICIES["graph" if floor_us < SETTINGS.graph_below_us and not kernel.is_on_host(problem) else "cold"]


def _gpu_of(entry: Entry, index: int, options: MeasureOptions, events: Events, stop_beaten: bool) -> HeldGpu:
    """Return a GPU for one problem, which is held from the first measurement until its measurer is closed."""
    adaptive = ADAPTIVE_DEADLINE if stop_beaten else None
    return HeldGpu(index, entry.problem.text, options.shared, adaptive=adaptive, note=events.note)


def _prepared(
    entry: Entry, store: Store, held: HeldGpu, card: Device, events: Events, among: Collection[Config] | None
) -> tuple[Kernel, Space, Config | None, str, RooflineLimits]:
    """Return the kernel, its feasible configs, its default if that is feasible, why not, and the limits of the card."""
    problem = entry.problem
    if surveys := store.roofline_limits(card) is None:
        held.prepare()  # a worker starts while the feasible configs are enumerated
    kernel = catalog.resolve(entry.reference)
    if surveys:
        held.compilers.prepare(entry.reference, problem, card.limits)
    space: Space
    if among is not None:
        configs = dict.fromkeys([*among, kernel.default_config(problem, card.limits)])
        space = feasible_among(kernel, problem, card.limits, configs)
    else:
        space = FeasibleSpace.of(kernel, problem, card.limits)
        if not space:
            raise NothingFound(none_feasible(kernel, problem, card.name, card.limits))
    default = kernel.default_config(problem, card.limits)
    refused = "" if default in space else f"{default.text} is {refusal(kernel, problem, default, card.limits)}"
    if refused:
        events.note(f"The default is not feasible for {problem.text} on {card.name}, and is left out: {refused}")
    return kernel, space, None if refused else default, refused, held.roofline_limits(store)
