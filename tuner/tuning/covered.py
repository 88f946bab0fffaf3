"""Comparison of the feasible configs of searches of one problem, whose kernel's choices may have changed between."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from tuner.kernels.spec import Config
from tuner.records import EarlierSearch, Measurement


def space_hash(space: Iterable[Config]) -> str:
    """Return a hash of a set of configs, in whatever order they come."""
    hashes = (blake2b(config.text.encode(), digest_size=8).digest() for config in space)
    return f"{sum(int.from_bytes(each, 'big') for each in hashes) % 2**64:016x}"


def same_space(settings: Mapping[str, Any], space: Collection[Config] | None) -> bool:
    """Return whether a run with these settings searched this space; True if it is None, which is not compared.

    Of a run that was stored without the hash of its space, the size is compared.
    """
    return space is None or (
        settings.get("space") == len(space) and settings.get("space_hash") in (None, space_hash(space))
    )


@dataclass(frozen=True)
class Covered:
    """Configs of a space that earlier searches measured, and the numbers of those that do not count as its effort."""

    known: Sequence[Measurement]
    """Measurements that need not be repeated."""
    jointly: int
    """Number of known configs that joint searches measured. They were chosen for other problems too."""
    elsewhere: int
    """Number of other known configs that were only proposed in searches of another space."""
    continues: bool
    """True if an earlier search measured each config of another space, so that only what was added is left."""

    @staticmethod
    def of(known: Sequence[Measurement], earlier: Iterable[EarlierSearch], space: Collection[Config]) -> Covered:
        """Return what is covered of a space.

        Args:
            known: Measurements of configs of the space.
            earlier: Searches of the same problem, device, environment, source, definition and policy.
        """
        jointly, own, elsewhere, continues = set[str](), set[str](), set[str](), False
        for search in earlier:
            if search.is_joint:
                jointly |= search.tried
            elif same_space(search.settings, space):
                own |= search.tried
            else:
                elsewhere |= search.tried
                continues |= search.is_finished
        texts = {measurement.config.text for measurement in known}
        return Covered(known, len(texts & jointly), len(texts & elsewhere - own - jointly), continues)

    @property
    def settings(self) -> dict[str, int]:
        """Settings of the run, as `Effort.accepts` reads them."""
        counts = {"known_jointly": self.jointly, "known_elsewhere": self.elsewhere}
        return {name: count for name, count in counts.items() if count}

    @property
    def free(self) -> int:
        """Number of known configs that do not count towards the trials of a search."""
        return self.jointly + self.elsewhere
