"""Answers as one document, a bundle: `tuner export` writes it, `TUNER_SNAPSHOT` names it, `GET /table` sends it.

    {"sha256": "...", "format": 1, "snapshot": "...", "signatures": [...], "devices": [...], "answers": [...]}

It has the signatures of its answers, so that it serves kernels whose code is not installed. The hash is of the bytes
that follow it: a document that was cut off, edited or formatted anew is refused. The hash protects against accidents,
not against an author, so the content is read strictly (see `records.codec`). A file is compressed if its name ends in
.gz, and takes its name only when it is whole and was read back.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from tuner.errors import BadBundle, UsageError
from tuner.kernels.spec import Signature
from tuner.records import Device, StoredAnswer, Transfer, files
from tuner.records.codec import (
    answer_from_json,
    answer_to_json,
    device_from_json,
    device_to_json,
    transfer_from_json,
)
from tuner.records.signatures import signature_from_json

T = TypeVar("T")

FORMAT = 1
MOST_BYTES = 256 << 20
"""Size limit of a document, compressed or not: some 200,000 answers."""
BEGINS = b'{"sha256":'
"""First bytes of a document, which no other format has."""
_HEAD = BEGINS + b'"%b",'
_COMPRESSION = 6
"""Level of gzip."""
_HEAD_BYTES = len(_HEAD % (b"0" * 64))


@dataclass(frozen=True)
class Bundle:
    """The content of a document."""

    snapshot: str
    """Name of the store's state that it was made from."""
    signatures: Mapping[str, Signature]
    """The last one of each op. Each answer has the one that read it."""
    answers: tuple[StoredAnswer, ...]
    transfers: tuple[Transfer, ...]
    """Transfer losses between the answers."""
    skipped: tuple[str, ...]
    """The reason for each part of the document, such as an answer or a device, that cannot be read."""
    sha256: str
    """Hash of the content."""


def packed(
    snapshot: str,
    signatures: Collection[Signature],
    answers: Iterable[StoredAnswer],
    transfers: Iterable[Transfer] = (),
    **more: str,
) -> bytes:
    """Return the document of these answers; readers ignore the fields of `more`.

    Args:
        signatures: One of each op, by which its answers are read. Those of captured calls are read by their own.
    """
    places: dict[Device, int] = {}
    readers = {signature: number for number, signature in enumerate(dict.fromkeys(signatures))}

    def reader(stored: StoredAnswer) -> int | None:
        signature = stored.signature
        captured = signature is not None and signature.captured
        return readers.setdefault(signature, len(readers)) if signature is not None and captured else None

    records = [
        answer_to_json(stored, places.setdefault(stored.provenance.device, len(places)), reader(stored))
        for stored in answers
    ]
    content = {
        "format": FORMAT,
        **more,
        "snapshot": snapshot,
        "signatures": [signature.as_json() for signature in readers],
        "devices": [device_to_json(device) for device in places],
        "answers": records,
        "transfers": [transfer.as_json() for transfer in transfers],
    }
    text = json.dumps(content, separators=(",", ":"), allow_nan=False).encode()[1:]
    return _HEAD % sha256(text).hexdigest().encode() + text


def unpacked(data: bytes, origin: str) -> Bundle:
    """Return the content of a document; `origin` names it in errors. Invalid answers are skipped, with reasons.

    Raises:
        BadBundle: It is too large, cut off, altered, of a newer format, or no bundle.
    """
    data = _uncompressed(data, origin)
    document = _parsed(data, origin)
    _check_hash(data, origin)
    try:
        return _bundle(document)
    except UsageError as error:
        raise BadBundle(f"{origin} cannot be used: {error}") from error


def read(file: Path) -> Bundle:
    """Return the content of a file.

    Raises:
        BadBundle: As for `unpacked`, or the file cannot be read.
    """
    try:
        with files.open_regular(file) as opened:
            data = opened.read(MOST_BYTES + 1)
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise BadBundle(f"{file} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    return unpacked(data, str(file))


def write(
    file: Path,
    snapshot: str,
    signatures: Collection[Signature],
    answers: Iterable[StoredAnswer],
    transfers: Iterable[Transfer] = (),
) -> Bundle:
    """Write a file in one step, in place of a file of that name, and return the content that was read back.

    Raises:
        BadBundle: It would be too large to be read.
        UsageError: It cannot be written.
    """
    data = packed(snapshot, signatures, answers, transfers)
    if file.suffix == ".gz":
        data = files.compress(data, _COMPRESSION)
    held = unpacked(data, str(file))
    try:
        files.write_atomically(file, data)
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}; name one in a writable folder") from error
    return held


def _uncompressed(data: bytes, origin: str) -> bytes:
    try:
        return files.uncompress(data, MOST_BYTES)
    except files.TooLarge as error:
        raise _too_large(origin) from error
    except files.CutOff as error:
        raise _cut_off(origin) from error
    except files.Damaged as error:
        raise BadBundle(f"{origin} is damaged: {error}; export it again") from error


def _parsed(data: bytes, origin: str) -> dict[str, Any]:
    try:
        document = json.loads(data, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        if data.startswith(BEGINS) and not data.endswith(b"}"):
            raise _cut_off(origin) from error
        raise _no_bundle(origin) from error
    if not isinstance(document, dict) or "sha256" not in document or type(document.get("format")) is not int:
        raise _no_bundle(origin)
    if document["format"] > FORMAT:
        raise BadBundle(
            f"{origin} has format {document['format']}, and this version reads {FORMAT}; "
            "update triton-tuner, or export it with this version"
        )
    return document


def _refused(constant: str) -> None:
    raise ValueError(f"{constant} is not a number in JSON")


def _check_hash(data: bytes, origin: str) -> None:
    if data[:_HEAD_BYTES] != _HEAD % sha256(memoryview(data)[_HEAD_BYTES:]).hexdigest().encode():
        raise BadBundle(f"{origin} was altered: its content does not match its sha256; use the original file")


def _bundle(document: Mapping[str, Any]) -> Bundle:
    for name, kind in (("snapshot", str), ("signatures", list), ("devices", list), ("answers", list)):
        if not isinstance(document.get(name), kind):
            raise UsageError(f"a bundle's {name} must be a {kind.__name__}")
    if not isinstance(document.get("transfers", []), list):
        raise UsageError("a bundle's transfers must be a list")
    skipped = list[str]()

    def each(name: str, read: Callable[[object], T]) -> list[T | None]:
        return [_read_or_skip(data, read, skipped) for data in document.get(name, [])]

    signatures = each("signatures", signature_from_json)
    devices = each("devices", device_from_json)
    answers = each("answers", lambda data: answer_from_json(data, signatures, devices))
    transfers = each("transfers", transfer_from_json)
    return Bundle(
        document["snapshot"],
        {signature.op: signature for signature in signatures if signature is not None},
        tuple(answer for answer in answers if answer is not None),
        tuple(transfer for transfer in transfers if transfer is not None),
        tuple(skipped),
        document["sha256"],
    )


def _read_or_skip(data: object, read: Callable[[object], T], skipped: list[str]) -> T | None:
    """Return what `read` makes of the data; None, with the reason among `skipped`, if it refuses them."""
    try:
        return read(data)
    except UsageError as error:
        skipped.append(str(error))
        return None


def _no_bundle(origin: str) -> BadBundle:
    return BadBundle(f"{origin} is no bundle of answers; tuner export FILE writes one")


def _too_large(origin: str) -> BadBundle:
    return BadBundle(f"{origin} is larger than {MOST_BYTES >> 20} MiB, the most that is read; export one op or device")


def _cut_off(origin: str) -> BadBundle:
    return BadBundle(f"{origin} ends in its middle; copy or export it again")
