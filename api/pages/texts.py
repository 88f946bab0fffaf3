"""Numbers, times and names as pages show them; filters of the templates."""

from __future__ import annotations

from datetime import UTC, datetime

from markupsafe import Markup

from tuner.records import Interval
from tuner.report.text import minute_text

__all__ = ["ago", "between", "cut", "duration", "name", "percent", "plain_count", "ratio", "us", "when"]

_LONGEST_NAME = 120
"""Characters of a name before it is cut."""


def name(text: object, longest: int = _LONGEST_NAME) -> Markup:
    """Return a name of unknown origin as text: isolated in direction, and cut, with the whole as a tooltip."""
    whole = str(text)
    shown = cut(whole, longest)
    title = Markup(' title="{}"').format(cut(whole, 1000)) if shown != whole else ""
    return Markup("<bdi{}>{}</bdi>").format(title, shown)


def cut(text: object, longest: int = _LONGEST_NAME) -> str:
    """Return a text of at most `longest` characters; a longer one ends with an ellipsis."""
    whole = str(text)
    return whole if len(whole) <= longest else f"{whole[: longest - 1]}\N{HORIZONTAL ELLIPSIS}"


def us(latency_us: float | None) -> str:
    """Return a latency in us with four digits, or a dash for None."""
    if latency_us is None:
        return "\N{EN DASH}"
    decimals = 2 if latency_us < 100 else 1 if latency_us < 1000 else 0
    return f"{latency_us:,.{decimals}f}\N{NO-BREAK SPACE}us"


def ratio(value: float | None) -> str:
    """Return `1.04x`, or a dash for None."""
    if value is None:
        return "\N{EN DASH}"
    return f"{value:.3f}\N{MULTIPLICATION SIGN}" if value < 10 else f"{value:.1f}\N{MULTIPLICATION SIGN}"


def between(interval: Interval | None, decimals: int = 2) -> str:
    """Return the bounds of an interval, or an empty text for None."""
    return "" if interval is None else f"{interval[0]:,.{decimals}f} \N{EN DASH} {interval[1]:,.{decimals}f}"


def percent(share: float | None) -> str:
    """Return a share as a percentage, or a dash for None."""
    return "\N{EN DASH}" if share is None else f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def plain_count(count: int | None) -> str:
    """Return a count with separators of thousands, or a dash for None."""
    return "\N{EN DASH}" if count is None else f"{count:,}"


def duration(seconds: float | None) -> str:
    """Return a duration in its largest two units, or a dash for None."""
    if seconds is None:
        return "\N{EN DASH}"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def when(moment: str | None) -> Markup:
    """Return a `time` element for a time in UTC, ISO 8601; a dash for None."""
    if moment is None:
        return Markup("\N{EN DASH}")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(moment, minute_text(moment))


def ago(moment: str | None) -> Markup:
    """Return a `time` element that says how long ago a time was, as of now."""
    try:
        then = datetime.fromisoformat(moment or "")
    except ValueError:
        return when(moment)
    past = datetime.now(UTC) - (then if then.tzinfo else then.replace(tzinfo=UTC))
    return Markup('<time datetime="{}" title="{}">{} ago</time>').format(
        moment, minute_text(str(moment)), duration(max(0.0, past.total_seconds()))
    )
