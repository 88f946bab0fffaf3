"""The choice of answers that are measured again: those that a lookup on this card would return today."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

from tuner import catalog
from tuner.captured.problem import problem_of_call
from tuner.db.captured import StoredCall
from tuner.db.pins import scope_of
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.db.store import Store
from tuner.errors import TunerError
from tuner.kernels.spec import Config, Problem, Signature, Value
from tuner.lookup.neighbours import with_current_knobs
from tuner.lookup.offered import not_offered, not_offered_by
from tuner.lookup.query import Query
from tuner.lookup.ranking import differences
from tuner.lookup.table import Table
from tuner.recorded import RecordedSpace
from tuner.records import IMPORTED, POLICIES, VERSION_NAMES, Device, Environment, StoredAnswer, policy_name
from tuner.report.text import first_line
from tuner.retuning.choices import added_choices
from tuner.retuning.priority import Priority
from tuner.suites.suite import Entry
from tuner.tuning.captured import entry_of, is_known
from tuner.tuning.gpu import AUTO


@dataclass(frozen=True)
class Wanted:
    """Filters of the answers."""

    reference: str | None = None
    """Name or file of a kernel; None: all ops."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Name or file of the kernel of an op; an op that is not among them is named by itself."""
    op: str | None = None
    """Op of the reference."""
    problems: frozenset[str] | None = None
    """Texts of problems; None: all."""
    stale: bool = False
    """Only answers that are stale."""
    demand: bool = False
    """Only problems whose lookups missed."""
    policy: str = AUTO
    """Timing policy; `auto` is that of each answer."""


@dataclass(frozen=True)
class Chosen:
    """An answer to be measured again."""

    stored: StoredAnswer
    """The answer; a knob that its config lacks has its default."""
    entry: Entry
    policy: str
    """Name of the timing policy."""
    reasons: tuple[str, ...] = ()
    """Changes since it was stored."""
    is_stale: bool = False
    """True if a lookup would call it stale, but for being recorded; if the policy is another one; or if it was
    imported, since its rounds are not stored."""
    is_exact: bool = True
    """True if source, definition, Triton and ptxas are as they were."""
    added: Mapping[str, tuple[Value, ...]] = field(default_factory=dict)
    """Choices of each knob that the kernel has now and had not when the answer was searched."""
    misses: int = 0
    """Number of lookups that missed the problem."""
    is_pinned: bool = False
    newest: int = 0
    """Largest id of an answer to its problem when it was chosen. A larger one was stored since."""
    call: StoredCall | None = None
    """The captured call, of an op without own code."""
    space: RecordedSpace | None = None
    """The recorded space that is replayed."""

    @property
    def problem(self) -> Problem:
        """The answer's problem."""
        return self.stored.answer.problem

    def is_new(self, config: Config) -> bool:
        """Return whether a config has a choice that was added."""
        return any(config[name] in choices for name, choices in self.added.items())


@dataclass(frozen=True)
class Selection:
    """The answers to be measured again, most valuable first."""

    chosen: tuple[Chosen, ...]
    left_out: Mapping[str, str] = field(default_factory=dict)
    """Sentence on the answers of an op that cannot be measured, by op."""
    total: int = 0
    """Number of answers in service before the filters on their state."""


@dataclass(frozen=True)
class _Code:
    """A kernel, or a recorded space in its place, as answers are compared with it."""

    entry: Callable[[Problem], Entry]
    signature: Signature
    source: str
    definition: str
    environment: Environment
    device: Device
    refused: Callable[[StoredAnswer], str]
    policy: str | None = None
    """Text of the policy of a recorded space."""
    call: StoredCall | None = None
    space: RecordedSpace | None = None

    def query(self, problem: Problem) -> Query:
        """Return the query of a lookup with this code."""
        return Query.for_environment(problem, self.environment, self.source, definition=self.definition)


def select_live(store: Store, wanted: Wanted, card: Device, environment: Environment) -> Selection:
    """Return the answers of a card that were measured or imported."""
    stored = [each for each in store.answers(op=wanted.op, device=card.id) if each.provenance.recorded is None]
    calls = {call.problem: call for call in store.captured.all(wanted.op, card.id)}
    left_out: dict[str, str] = {}

    @cache
    def kernel_code(reference: str) -> _Code:
        kernel = catalog.resolve(reference)
        return _Code(
            entry=lambda problem: Entry(reference, kernel.signature, problem),
            signature=kernel.signature,
            source=kernel.source,
            definition=kernel.definition,
            environment=environment,
            device=card,
            refused=lambda stored: not_offered_by(kernel, stored),
        )

    def code_of(stored: StoredAnswer) -> _Code | None:
        """Return the code of an answer; None, with a sentence in `left_out`, if there is none here."""
        problem = stored.answer.problem
        reference = wanted.reference or wanted.references.get(problem.op, problem.op)
        call = None if is_known(reference) else calls.get(problem.text)
        try:
            if call is None:
                return kernel_code(reference)
            entry = entry_of(call.call)
            made = kernel_code(entry.reference)
            return replace(made, entry=lambda _: replace(entry, problem=problem_of_call(call.call)), call=call)
        except TunerError as error:
            way_out = _way_out(problem) if call is None else f"tuner forget {problem.op} removes them"
            left_out.setdefault(
                problem.op, f"answers of {problem.op} are left out: {first_line(str(error), 200)}; {way_out}"
            )
            return None

    return _selected(store, wanted, stored, code_of, card.id, left_out)


def select_recorded(store: Store, wanted: Wanted, spaces: Sequence[RecordedSpace]) -> Selection:
    """Return the answers that were replayed from recorded spaces of these names."""
    codes: dict[tuple[str | None, str], _Code] = {
        (space.name, space.problem.text): _recorded_code(space) for space in spaces
    }
    found = [each for each in store.answers(op=wanted.op) if _place_of(each) in codes]
    device = ",".join(sorted({space.device.id for space in spaces}))
    return _selected(store, wanted, found, lambda stored: codes[_place_of(stored)], device, {})


def _recorded_code(space: RecordedSpace) -> _Code:
    return _Code(
        entry=lambda problem: Entry(problem.op, space.signature, problem),
        signature=space.signature,
        source=space.source,
        definition="",
        environment=space.environment,
        device=space.device,
        refused=lambda stored: not_offered(space.signature, stored),
        policy=space.policy.text,
        space=space,
    )


def _place_of(stored: StoredAnswer) -> tuple[str | None, str]:
    """Return the recorded space of an answer, None if it was measured on a card, and its problem."""
    return stored.provenance.recorded, stored.answer.problem.text


def _way_out(problem: Problem) -> str:
    return f"name the kernel's file: tuner retune FILE.py, or tuner forget {problem.op}"


def _selected(
    store: Store,
    wanted: Wanted,
    answers: Sequence[StoredAnswer],
    code_of: Callable[[StoredAnswer], _Code | None],
    device: str,
    left_out: dict[str, str],
) -> Selection:
    by_place: dict[tuple[str | None, str], list[StoredAnswer]] = {}
    for stored in answers:
        if wanted.problems is None or stored.answer.problem.text in wanted.problems:
            by_place.setdefault(_place_of(stored), []).append(stored)
    misses = _misses(store, {stored.provenance.device.id for stored in answers})
    pinned = {pin.scope for name in device.split(",") for pin in store.pins.of(name)}
    found = list[Chosen]()
    for (_, text), several in by_place.items():
        code = code_of(several[0])
        if code is None:
            continue
        if (served := _served(several, code)) is None:
            op = several[0].answer.problem.op
            left_out.setdefault(op, f"some answers of {op} are left out: the kernel has none of their configs now")
            continue
        is_pinned = scope_of(served.answer.problem, served.provenance) in pinned
        newest = max(stored.id for stored in several)
        found.append(replace(_chosen(served, code, wanted, misses.get(text, 0)), is_pinned=is_pinned, newest=newest))
    kept = [each for each in found if _is_wanted(each, wanted)]
    priority = Priority.of(store.retunes.newest(Priority.REMEMBERED, device))
    kept.sort(
        key=lambda each: (-priority.value(each.stored, each.reasons, each.misses, bool(each.added)), each.stored.id)
    )
    return Selection(tuple(kept), left_out, len(found))


def _served(several: Sequence[StoredAnswer], code: _Code) -> StoredAnswer | None:
    """Return the answer that a lookup returns today; None if the kernel has none of the configs any more."""
    query = code.query(several[0].answer.problem)
    fitting = [
        replace(stored, answer=replace(stored.answer, config=config))
        for stored in several
        if not code.refused(stored) and (config := with_current_knobs(code.signature, stored.answer.config)) is not None
    ]
    return Table(code.device.id, fitting).find(query).stored if fitting else None


def _chosen(stored: StoredAnswer, code: _Code, wanted: Wanted, misses: int) -> Chosen:
    policy = wanted.policy if wanted.policy != AUTO else policy_name(stored.provenance.policy) or AUTO
    text = code.policy or (POLICIES[policy].text if policy != AUTO else "another")
    added = added_choices(stored.signature, code.signature) if stored.answer.kind != IMPORTED else {}
    reasons = tuple(_reasons(stored, code, text, added))
    query = code.query(stored.answer.problem)
    return Chosen(
        stored,
        code.entry(stored.answer.problem),
        policy,
        reasons,
        is_stale=bool(differences(stored, replace(query, policy=text))) or stored.imported_from is not None,
        is_exact=not differences(stored, replace(query, driver=None)),
        added=added,
        misses=misses,
        call=code.call,
        space=code.space,
    )


def _reasons(stored: StoredAnswer, code: _Code, policy: str, added: Mapping[str, tuple[Value, ...]]) -> Iterator[str]:
    """Yield what changed since an answer was stored."""
    has, now = stored.provenance, code.environment
    for field_name, name in VERSION_NAMES.items():
        before, after = getattr(has.environment, field_name), getattr(now, field_name)
        if before != after and after:
            yield f"{name} {before or 'not known'}, now {after}"
    if has.source != code.source:
        yield "the kernel's source"
    if code.definition and has.definition not in ("", code.definition):
        yield "the kernel's definition"
    if has.policy != policy:
        yield f"policy {has.policy or 'not known'}, now {policy}"
    for name, choices in added.items():
        yield f"choices of {name}: {', '.join(map(str, choices))}"
    if stored.imported_from is not None:
        yield f"imported from {stored.imported_from}, not measured here"


def _misses(store: Store, devices: Collection[str]) -> dict[str, int]:
    """Return the number of missed lookups of each problem on these devices."""
    counts: dict[str, int] = {}
    for row in store.requests(STORE_SETTINGS.counted_requests):
        if row["device"] in devices:
            counts[row["problem"]] = counts.get(row["problem"], 0) + row["count"]
    return counts


def _is_wanted(chosen: Chosen, wanted: Wanted) -> bool:
    return (chosen.is_stale or bool(chosen.added) or not wanted.stale) and (chosen.misses > 0 or not wanted.demand)
