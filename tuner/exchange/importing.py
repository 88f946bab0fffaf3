"""The import of files into a store, from reading to the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.db.store import Store
from tuner.exchange.convert import answers_of_bundle, to_answers
from tuner.exchange.import_report import ImportReport
from tuner.exchange.imported import ImportOptions, Skipped
from tuner.exchange.reader import read
from tuner.kernels.spec import Signature
from tuner.records import Device


def import_files(
    paths: Sequence[Path],
    store: Store,
    options: ImportOptions,
    known_signature: Callable[[str], Signature | None],
    known_device: Callable[[str], Device | None],
    *,
    replace: bool = False,
) -> ImportReport:
    """Store the answers and configs of files, and return what was stored and skipped.

    Args:
        paths: Files, or folders of them.
        known_signature: Returns the signature of an op, or None.
        known_device: Returns the full description of the card with an id, or None.
        replace: Replace answers that were measured here, too.

    Raises:
        UsageError: A path does not exist.
        StoreError: The store cannot be written.
    """
    content = read(paths, options)
    converted, skipped = to_answers(content.configs, known_signature, known_device)
    answers = [(answer.origin, answer) for answer in converted]
    for file, bundle in content.bundles:
        of_bundle, refused = answers_of_bundle(bundle, file)
        answers += [(file, answer) for answer in of_bundle]
        skipped += refused
    outcomes = store.import_answers([answer for _, answer in answers], replace=replace)
    by_file = zip((file for file, _ in answers), outcomes, strict=True)
    not_stored = [Skipped(file, str(outcome)) for file, outcome in by_file if not outcome.is_stored]
    return ImportReport(
        files=content.files,
        read=content.count,
        outcomes=Counter(outcomes),
        skipped=(*content.skipped, *skipped, *not_stored),
        not_understood=content.not_understood,
    )
