"""Device names: aliases of the same card, and the device that a query is about."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from tuner.errors import UnknownName, UsageError
from tuner.records import Device

NO_ALIASES: Mapping[str, str] = MappingProxyType({})


def stored_as(card: Device, answered: Collection[str], cards: Iterable[Device]) -> str:
    """Return the id under which a card's answers are stored: its own, or that of the same card under another name.

    Args:
        answered: ids of the devices with answers.
        cards: descriptions of the known devices, those with answers among them.
    """
    if card.id in answered:
        return card.id
    return min((other.id for other in cards if other.id in answered and other.is_same_card(card)), default=card.id)


def aliases(answered: Collection[str], cards: Collection[Device]) -> dict[str, str]:
    """Return the ids of cards without answers, each with the id under which the same card's answers are stored."""
    known = {card.id: stored_as(card, answered, cards) for card in cards}
    return {name: stored for name, stored in known.items() if name != stored}


def resolve_device(
    named: str | None, own: str | None, stored: Sequence[str], aliases: Mapping[str, str] = NO_ALIASES
) -> str:
    """Return the device that a query is about: the one it names, else the caller's own, else the only one stored.

    Args:
        named: id or alias that the query names.
        own: id of the caller's card.
        stored: ids of the devices with answers.
        aliases: other names of those devices.

    Raises:
        UnknownName: no card and no answer has the name.
        UsageError: no device is named, and there is not exactly one with answers.
    """
    if named is not None:
        if named not in stored and named not in aliases and named != own:
            if not stored:
                raise UnknownName(
                    f"no device has answers, so none is called {named[:80]!r}; tuner search OP finds some"
                )
            raise UnknownName(f"no device is called {named[:80]!r}; there are {', '.join(stored)}")
        return aliases.get(named, named)
    if own is not None:
        return aliases.get(own, own)
    if len(stored) != 1:
        raise UsageError(f"device is missing; answers are stored for {', '.join(stored) or 'none'}")
    return stored[0]
