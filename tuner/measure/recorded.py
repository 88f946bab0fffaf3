"""Recorded search spaces: every config of a problem, measured once on a real card, to be searched again anywhere.

A file is gzipped JSON in the auto-tuning community's T4 results schema (times in milliseconds, as T4 has them), with
what T4 has no word for under the key `tuner`. The feasible set of a replay is the file's.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from tuner.errors import UnknownName, UsageError, reason
from tuner.kernels.spec import Config, Problem, Signature
from tuner.records import CardState, Comparison, Device, Environment, Evidence, Measurement, Outcome, Policy, median

_SUFFIX = ".json.gz"
_FORMAT = 1
_RESULTS = b',"results":'
"""Ends the head of a file that `dumps` wrote: inside of a JSON text the quotes would be escaped."""
_ALIKE = 0.9
"""A name that is so like another, as `difflib` sees it, may have been mistyped."""
_LONGEST = 120
"""Of a name that is unknown, what is looked at and shown."""
T4_HEAD: Mapping[str, Any] = {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}
"""What a T4 file of ours begins with."""
_INVALIDITY = {  # T4's words for our outcomes
    Outcome.OK: "correct",
    Outcome.INFEASIBLE: "constraints",
    Outcome.COMPILE_ERROR: "compile",
    Outcome.TIMEOUT: "timeout",
    Outcome.WRONG_RESULT: "correctness",
}


@dataclass(frozen=True)
class RecordedSpace:
    """One recorded space."""

    signature: Signature
    problem: Problem
    device: Device
    environment: Environment
    source: str
    policy: Policy
    default: Config | None
    """The kernel's default on that card."""
    flops: int
    bytes: int
    recorded_at: str
    """UTC, ISO 8601."""
    measurements: tuple[Measurement, ...]
    comparison: Comparison
    """Rounds between the best configs, the default and the vendor's kernel."""

    @property
    def name(self) -> str:
        """`OP-DIMS-DTYPE[-ATTRS]-DEVICE`: `gemm-16x4096x4096-bf16-nvidia-h200`."""
        return f"{stem(self.problem)}-{self.device.id}"

    @property
    def best(self) -> Config:
        """The config with the lowest median in the recorded duel."""
        meet = [m.config for m in self.measurements if m.config.text in self.comparison.contenders]
        return min(meet, key=lambda config: median(self.comparison.of(config.text)))


def stem(problem: Problem) -> str:
    """`OP-DIMS-DTYPE[-ATTRS]`: a problem in the name of a file."""
    told = [word.partition("=")[2] for word in problem.text.split()[1:]]  # the text leaves defaults out
    sizes = "x".join(map(str, problem.sizes))
    return "-".join([problem.op, sizes, *told[len(problem.sizes) :]])


def names(op: str | None = None) -> list[str]:
    """The spaces that ship with this package; of one op, if it is named."""
    start = "" if op is None else f"{op}-"
    shipped = (file.name for file in (files("tuner") / "recorded").iterdir() if file.name.endswith(_SUFFIX))
    return sorted(name.removesuffix(_SUFFIX) for name in shipped if name.startswith(start))


def load(name: str, op: str | None = None) -> RecordedSpace:
    """The shipped space called `name`, or the one in the file `name`.

    Args:
        op: of the problem that is asked about, where there is one: an error names its spaces and no others.

    Raises:
        UnknownName: there is no such space.
        UsageError: the file is none of ours.
    """
    if name in names():
        return loads(_shipped(name).read_bytes(), name)
    if name.endswith((_SUFFIX, ".json")) and Path(name).is_file():
        return loads(Path(name).read_bytes(), name)
    raise UnknownName(f"no recorded space is called {name[:_LONGEST]!r}; {meant(name, op)}")


def meant(name: str, op: str | None = None) -> str:
    """What a name that is no space's may have meant: what it begins, or is much like; else those of its op.

    Args:
        op: as for `load`.
    """
    known = names(name.partition("-")[0] if op is None else op)
    begun = [other for other in known if name and other.startswith(name)]
    if likely := begun or get_close_matches(name[:_LONGEST], known, cutoff=_ALIKE):
        return f"did you mean {' or '.join(likely)}?"
    if known:
        return f"there are {', '.join(known)}"
    return "tuner spaces lists what there is" if op is None else f"there are none of {op}"


def of_problem(problem: Problem) -> list[RecordedSpace]:
    """The shipped spaces of a problem, by their cards: first that which most shipped spaces come from, then by name.

    The first of each of several problems are thus of one card, as far as that card has them.
    """
    start = f"{stem(problem)}-"
    spaces = [space for name in names() if name.startswith(start) and (space := load(name)).problem == problem]
    return sorted(spaces, key=lambda space: _cards().index(space.device.id))


def of_one_card(found: Sequence[Sequence[RecordedSpace]]) -> list[RecordedSpace]:
    """Of what `of_problem` found for each of several problems a space, all of the first card that has all; else []."""
    by_card = [{space.device.id: space for space in spaces} for spaces in found]
    everywhere = [card for card in by_card[0] if all(card in spaces for spaces in by_card)]
    return [spaces[everywhere[0]] for spaces in by_card] if everywhere else []


@cache
def _cards() -> Sequence[str]:
    """Ids of the cards that shipped spaces come from: first that with the most; of those with as many, by name."""
    counts = Counter(_device(head).id for head in _heads())
    return sorted(counts, key=lambda card: (-counts[card], card))


def signatures() -> dict[str, Signature]:
    """Signatures of the ops that were recorded, for where their code cannot be loaded."""
    return {head["signature"]["op"]: Signature.from_json(head["signature"]) for head in _heads()}


def devices() -> dict[str, Device]:
    """The cards on which spaces were recorded, by id, as the newest space of each describes it."""
    cards = [_device(head) for head in _heads()]
    return {card.id: card for card in cards}


def _heads() -> list[dict[str, Any]]:
    """The oldest space first."""
    return sorted(map(_head, names()), key=lambda head: str(head["recorded_at"]))


def _device(head: Mapping[str, Any]) -> Device:
    return Device(**head["device"] | {"capability": tuple(head["device"]["capability"])})


def _head(name: str) -> dict[str, Any]:
    """What a shipped file says under `tuner`, which stands before results that take a hundred times as long to read."""
    head = b""
    with _shipped(name).open("rb") as zipped, gzip.GzipFile(fileobj=zipped) as file:
        while _RESULTS not in head and (block := file.read(1 << 16)):
            head += block
    ours: dict[str, Any] = json.loads(head.partition(_RESULTS)[0] + b"}")["tuner"]
    return ours


def _shipped(name: str) -> Traversable:
    return files("tuner") / "recorded" / f"{name}{_SUFFIX}"


def dumps(space: RecordedSpace) -> bytes:
    """The file of a space. The same space gives the same bytes."""
    document = {
        **T4_HEAD,
        "tuner": {
            "format": _FORMAT,
            "name": space.name,
            "signature": space.signature.as_json(),
            "problem": space.problem.values,
            "device": asdict(space.device),
            "environment": asdict(space.environment),
            "source": space.source,
            "policy": asdict(space.policy),
            "default": None if space.default is None else dict(space.default),
            "flops": space.flops,
            "bytes": space.bytes,
            "recorded_at": space.recorded_at,
            "duel": asdict(space.comparison),
        },
        "results": [t4_result(measurement) for measurement in space.measurements],
    }
    return gzip.compress(json.dumps(document, separators=(",", ":")).encode(), mtime=0)


def loads(data: bytes, name: str) -> RecordedSpace:
    """The space of a file's bytes; `name` is for messages.

    Raises:
        UsageError: not a space of this version.
    """
    try:
        document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
        ours = document["tuner"]
        if ours["format"] != _FORMAT:
            raise UsageError(f"{name} has format {ours['format']}, and this version reads {_FORMAT}; update the tuner")
        signature = Signature.from_json(ours["signature"])
        return RecordedSpace(
            signature=signature,
            problem=signature.problem(ours["problem"]),
            device=_device(ours),
            environment=Environment(**ours["environment"]),
            source=ours["source"],
            policy=Policy(**ours["policy"]),
            default=None if ours["default"] is None else signature.config(ours["default"]),
            flops=ours["flops"],
            bytes=ours["bytes"],
            recorded_at=ours["recorded_at"],
            measurements=tuple(_measurement(signature, result) for result in document["results"]),
            comparison=Comparison(
                tuple(ours["duel"]["contenders"]),
                tuple(map(tuple, ours["duel"]["rounds"])),
                tuple(CardState.from_json(state) for state in ours["duel"].get("states", ())),
            ),
        )
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{name} is not a recorded search space: {reason(error)}") from error


def t4_result(measurement: Measurement) -> dict[str, Any]:
    """One measurement in T4's words, with ours for what those leave out."""
    facts = {
        "registers": measurement.registers,
        "spills": measurement.spills,
        "shared_bytes": measurement.shared_bytes,
        "max_error": measurement.max_error,
        "tolerance": measurement.tolerance,
    }
    units = {"spills": "bytes", "shared_bytes": "bytes"}
    time = [{"name": "time", "value": measurement.latency_us / 1000, "unit": "ms"}] if measurement.ok else []
    return {
        "configuration": dict(measurement.config),
        "objectives": ["time"],
        "times": {
            "compilation_time": 1000 * (measurement.compile_s or 0.0),
            "runtimes": [round(sample / 1000, 7) for sample in measurement.samples],
        },
        "invalidity": _INVALIDITY.get(measurement.outcome, "runtime"),
        "correctness": int(measurement.outcome is not Outcome.WRONG_RESULT),
        "measurements": time
        + [
            {"name": name, "value": value, "unit": units.get(name, "")}
            for name, value in facts.items()
            if value is not None
        ],
        "tuner": {
            "outcome": str(measurement.outcome),
            "stage": measurement.stage,
            "error": measurement.error,
            "compile_s": measurement.compile_s,
            "compiled_by": measurement.compiled_by,
        },
    }


def _measurement(signature: Signature, result: dict[str, Any]) -> Measurement:
    facts = {item["name"]: item["value"] for item in result["measurements"] if item["name"] != "time"}
    ours = result["tuner"]
    return Measurement(
        config=signature.config(result["configuration"]),
        samples=tuple(round(runtime * 1000, 4) for runtime in result["times"]["runtimes"]),
        **ours | {"outcome": Outcome(ours["outcome"])},
        **facts,
    )


class RecordedMeasurer:
    """Answers from a recorded space, at once and always the same."""

    def __init__(self, space: RecordedSpace) -> None:
        self._known = {measurement.config: measurement for measurement in space.measurements}
        self._duel = space.comparison
        self._rounds_given: dict[Config, int] = {}
        self._waiting: deque[Measurement] = deque()

    @property
    def capacity(self) -> int:
        """A batch, as a sampler on a real card would meet it."""
        return 8

    @property
    def waits_for_device(self) -> bool:
        return False

    def submit(self, config: Config) -> None:
        self._waiting.append(self._known[config])

    def next(self, timeout_s: float) -> Measurement | None:
        return self._waiting.popleft() if self._waiting else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        self._waiting.clear()
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence]:
        """The errors that were recorded."""
        recorded = [self._known[config] for config in configs]
        return [Evidence(known.max_error, known.tolerance, ("normal",), 1) for known in recorded]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison:
        """The recorded rounds, in order; fewer than asked for, or none, when all of these had them all.

        A config that was too slow for the recorded duel brings the samples of its own visit.
        """
        vendor = [name for name in self._duel.contenders if name not in {config.text for config in self._known}]
        columns = {config.text: self._latencies(config) for config in configs}
        columns |= {name: self._duel.of(name) for name in vendor}
        available = min(map(len, columns.values()))
        start = min(self._rounds_given.get(config, 0) for config in configs)
        end = max(start, min(start + rounds, available))
        self._rounds_given |= dict.fromkeys(configs, end)
        return Comparison(tuple(columns), tuple(zip(*(column[start:end] for column in columns.values()), strict=True)))

    def close(self) -> None:
        """Nothing to let go of."""

    def _latencies(self, config: Config) -> tuple[float, ...]:
        return self._duel.of(config.text) if config.text in self._duel.contenders else self._known[config].samples
