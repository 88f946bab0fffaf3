"""Names of cards: under which one the answers of a card are stored that hosts or drivers call by several."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from tuner.records import Device


def known_as(card: Device, answered: Collection[str], cards: Iterable[Device]) -> str:
    """The id that a card's answers are stored under: its own, or that of the same card under another name.

    Args:
        answered: ids of the devices with answers.
        cards: what is known of devices, those among them.
    """
    if card.id in answered:
        return card.id
    return min((other.id for other in cards if other.id in answered and other.is_same_card(card)), default=card.id)


def aliases(answered: Collection[str], cards: Collection[Device]) -> dict[str, str]:
    """Names of cards without answers, each with the id that the same card's answers are stored under."""
    known = {card.id: known_as(card, answered, cards) for card in cards}
    return {name: stored for name, stored in known.items() if name != stored}
