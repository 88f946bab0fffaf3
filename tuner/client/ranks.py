"""The ranks of a distributed job: all of them get rank 0's answers, and only rank 0 tunes.

Ranks that read a pinned snapshot (`TUNER_SNAPSHOT`) agree without communication. Others may read different databases,
or the same one at different times; `sync_ranks` sends rank 0's answers to all. A lookup itself never waits for another
rank. torch is used only if the process has imported it.
"""

from __future__ import annotations

import logging
import os
import socket
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tuner import catalog
from tuner.client.client import Client, default_client
from tuner.client.environment import is_disabled
from tuner.client.kernels import GuardedKernels
from tuner.client.sources import AnswerSource, BundleSource, HeldSource
from tuner.client.warn import WarnOnce
from tuner.errors import NoDevice, TunerError, UsageError
from tuner.kernels.spec import Kernel
from tuner.lookup import bundle
from tuner.lookup.bundle import Bundle
from tuner.measure import device as cards
from tuner.version import __version__

_log = logging.getLogger("tuner")

_VARIABLES = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK")
"""Variables that state a process's rank, the first one that is set: torchrun, SLURM, MPI."""
_SHOWN = 16
"""Hex digits of a bundle's hash that are shown."""
_MOST = 1000
"""Number of kernels whose sources are compared, and of warnings about them."""


@dataclass(frozen=True)
class Ranks:
    """The outcome of `sync_ranks`, on each rank."""

    rank: int
    """Rank of this process in the group."""
    size: int
    """Number of ranks."""
    answers: int
    """Number of answers that all ranks have from now on."""
    snapshot: str
    """Hash of these answers."""
    differing: tuple[str, ...]
    """A line for each rank that differs from rank 0, with what differs. They are the same on all ranks."""


@dataclass(frozen=True)
class _Rank:
    """Facts of a rank that are compared. A field is empty if it is not known."""

    host: str = ""
    snapshot: str = ""
    """Hash of the pinned snapshot."""
    card: str = ""
    triton: str = ""
    tuner: str = ""
    disabled: str = ""
    """`on` if `TUNER_DISABLE` turns lookups off."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """Source hashes by op, as far as they are known; those of autotuned functions after their first lookup."""
    failed: str = ""
    """Reason why the rank cannot read rank 0's answers."""


def is_tuning_rank() -> bool:
    """Return whether this process may tune: it is rank 0, or no job has ranks.

    The rank is that of `torch.distributed` if it is initialised, else that of RANK, SLURM_PROCID, OMPI_COMM_WORLD_RANK
    or LOCAL_RANK.
    """
    distributed = _distributed()
    if distributed is not None:
        return int(distributed.get_rank()) == 0
    given = next((os.environ[name] for name in _VARIABLES if os.environ.get(name)), "0")
    return not given.isdecimal() or int(given) == 0


def sync_ranks(group: Any = None, *, client: Client | None = None) -> Ranks:
    """Give all ranks of a process group the answers of its rank 0, once, before the first step.

    Collective: every rank of the group calls it after `torch.distributed.init_process_group`. From then on no rank
    reads another source; call it again to distribute newer answers. Rank 0 logs one line for each rank that differs
    from it by snapshot, card, Triton, the tuner, `TUNER_DISABLE`, or the source of a kernel. Kernels without a name in
    the catalog are compared once they were looked up on both ranks, as after a first step.

    Args:
        group: process group; None is that of all ranks.
        client: None is the one of `tuner.best_config`.

    Raises:
        UsageError: `torch.distributed` is not initialised, or this rank is not in the group.
    """
    distributed = _distributed()
    if distributed is None:
        raise UsageError(
            "sync_ranks is called by all ranks of a process group, and this process is in none; "
            "call torch.distributed.init_process_group first"
        )
    rank, size = int(distributed.get_rank(group)), int(distributed.get_world_size(group))
    if rank < 0:
        raise UsageError("sync_ranks is called by the ranks of its group, and this rank is not in it")
    client = client or default_client()

    def gathered(given: _Rank) -> list[_Rank]:
        received: list[Any] = [None] * size
        distributed.all_gather_object(received, asdict(given), group=group)
        known = asdict(given)  # another version of the tuner may have other fields
        return [_Rank(**{name: value for name, value in each.items() if name in known}) for each in received]

    own = _own_source(client)
    here = _described(own)
    devices = sorted({other.card for other in gathered(here)} - {""})
    sent = [_packed_or_nothing(own, devices) if rank == 0 else b""]
    first = 0 if group is None else distributed.get_global_rank(group, 0)
    distributed.broadcast_object_list(sent, src=first, group=group)
    held, failed = _accepted(client, sent[0], own)
    ranks = gathered(replace(here, sources=_sources(client, held.signatures), failed=failed))
    differing = tuple(
        f"rank {number} on {other.host} differs from rank 0: {'; '.join(found)}"
        for number, other in enumerate(ranks)
        if (found := _differences(ranks[0], other))
    )
    if rank == 0:
        for line in differing:
            _log.warning("%s", line)
    return Ranks(rank, size, len(held.answers), held.sha256[:_SHOWN], differing)


class _SharedSource(HeldSource):
    """The answers that rank 0 sent, and the source that this rank read before."""

    def __init__(self, held: Bundle, own: AnswerSource) -> None:
        super().__init__(held, "rank 0's answers")
        self.own = own


def _distributed() -> Any:
    """Return `torch.distributed` if it is initialised, else None."""
    module = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return module


def _described(own: AnswerSource) -> _Rank:
    index = _card_index()
    try:
        card = cards.describe(index).id
    except NoDevice:
        card = ""
    disabled = "on" if is_disabled(WarnOnce(1)) else ""
    return _Rank(socket.gethostname(), _pinned(own), card, cards.environment(index).triton, __version__, disabled)


def _card_index() -> int:
    """Return the index of the card that this rank computes on."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    if cuda is not None and cuda.is_initialized():
        return int(cuda.current_device())
    given = os.environ.get("LOCAL_RANK", "")
    index = int(given) if given.isdecimal() else 0
    return index if index < cards.count() else 0


def _own_source(client: Client) -> AnswerSource:
    """Return the source that a client reads from, or read before `sync_ranks`, without its cache in memory."""
    source = client.current().source
    return (source.own if isinstance(source, _SharedSource) else source).reopened()


def _pinned(source: AnswerSource) -> str:
    """Return the hash of a bundle, or why it cannot be read; empty for other sources."""
    if not isinstance(source, BundleSource):
        return ""
    try:
        return source.held.sha256[:_SHOWN]
    except TunerError as error:
        return str(error)


def _packed_or_nothing(source: AnswerSource, devices: Sequence[str]) -> bytes:
    """Return a source's answers for some devices as a bundle; for all of its devices if none is named.

    The bundle of a source that cannot be read is empty, so that all ranks use the defaults, as rank 0 does.
    """
    try:
        return _packed(source, devices or sorted(source.devices()))
    except TunerError as error:
        _log.warning("all ranks use the kernels' defaults, since rank 0 cannot read its answers: %s", error)
        return bundle.packed("", (), ())


def _packed(source: AnswerSource, devices: Sequence[str]) -> bytes:
    loaded = [source.load(op, device) for op in sorted(source.ops()) for device in devices]
    signatures = {each.signature.op: each.signature for each in loaded if each.signature is not None}
    answers = {stored.id: stored for each in loaded for stored in each.table if stored.answer.problem.op in signatures}
    transfers = {lost.id: lost for each in loaded for lost in each.table.transfers}
    return bundle.packed(
        source.origin, signatures.values(), [answers[number] for number in sorted(answers)], transfers.values()
    )


def _accepted(client: Client, data: bytes, own: AnswerSource) -> tuple[Bundle, str]:
    """Let a client read from a bundle. Return the bundle, and the reason if that fails, else an empty text.

    Never raises, since the other ranks would wait.
    """
    try:
        held = bundle.unpacked(data, "rank 0's bundle")
    except TunerError as error:
        return bundle.unpacked(bundle.packed("", (), ()), "an empty bundle"), str(error)
    try:
        client.read_from(_SharedSource(held, own))
    except TunerError as error:
        return held, str(error)
    return held, ""


def _sources(client: Client, ops: Iterable[str]) -> dict[str, str]:
    """Return the source hashes of the kernels that were looked up, and of these ops if the catalog has them.

    A hash is empty if the kernel cannot be loaded here.
    """
    kernels = GuardedKernels(WarnOnce(_MOST), _MOST)
    named = {op: kernels.load(op) for op in sorted({*ops} & {*catalog.names()})}
    found = {op: "" if kernel is None else _source(kernel) for op, kernel in named.items()}
    return {**found, **client.current().sources}


def _source(kernel: Kernel) -> str:
    try:
        return kernel.source
    except Exception as error:  # noqa: BLE001  the other ranks would wait
        return f"{type(error).__name__}: {error}"


def _differences(first: _Rank, other: _Rank) -> list[str]:
    """Return what differs between rank 0 and another rank, a clause for each."""
    found = [
        f"{name} {theirs or 'none'}, not {ours or 'none'}"
        for name, ours, theirs in (
            ("snapshot", first.snapshot, other.snapshot or first.snapshot),
            ("card", first.card, other.card),
            ("Triton", first.triton, other.triton),
            ("tuner", first.tuner, other.tuner),
            ("TUNER_DISABLE", first.disabled, other.disabled),
        )
        if ours != theirs
    ]
    changed = [op for op, source in first.sources.items() if other.sources.get(op, source) != source]
    if changed:
        found.append(f"source of {', '.join(changed)}")
    if other.failed:
        found.append(f"its own answers stay, since {other.failed}")
    return found
