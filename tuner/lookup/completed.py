"""Configs with the knobs that a kernel has got since an answer was found, the same for all readers of the answer."""

from __future__ import annotations

from dataclasses import replace

from tuner.kernels.spec import Config, Signature
from tuner.lookup.neighbours import with_current_knobs
from tuner.records import IMPORTED, StoredAnswer


def completed(stored: StoredAnswer, signature: Signature | None) -> StoredAnswer:
    """Return an answer whose configs have all knobs of a signature; those that they lack take their default.

    The answer stays as it is if it is imported, if it is of a captured call, or if its config has other knobs.
    """
    config = stored.answer.config
    if signature is None or signature.captured or len(config) == len(signature.knobs):
        return stored
    if stored.answer.kind == IMPORTED or with_current_knobs(signature, config) is None:
        return stored

    def complete(config: Config) -> Config:
        """Return a config with all knobs and its own text, by which the measurements of its search name it."""
        return Config(with_current_knobs(signature, config) or config, config.text)

    ties = tuple(replace(tie, config=complete(tie.config)) for tie in stored.answer.ties)
    return replace(stored, answer=replace(stored.answer, config=complete(config), ties=ties))
