"""Comparisons of two readings of an answer. Pure: no clock, no device, no store."""

from __future__ import annotations

from math import exp, hypot, log, sqrt
from statistics import NormalDist

from tuner.records import VENDOR, Interval
from tuner.records.retune import DEFAULT, Reading

_BEYOND = NormalDist().inv_cdf(0.995)
"""Standard deviations on either side of a 99 % interval, as those of ratios are."""


def quotient(over: tuple[float, Interval], under: tuple[float, Interval]) -> tuple[float, Interval]:
    """Return the quotient of two independent estimates, with its interval.

    In logarithms the distances of the ends add up as the root of the sum of squares.
    """
    (above, (low, high)), (below, (lowest, highest)) = over, under
    found = above / below
    down = hypot(log(above / low), log(highest / below))
    up = hypot(log(high / above), log(below / lowest))
    return found, (found * exp(-down), found * exp(up))


def widened(found: float, interval: Interval, spread: float) -> Interval:
    """Return the interval of a quotient whose parts also vary from process to process.

    Args:
        spread: Standard deviation of the logarithm of either part.
    """
    beyond = _BEYOND * sqrt(2) * spread
    return (
        found * exp(-hypot(log(found / interval[0]), beyond)),
        found * exp(hypot(log(interval[1] / found), beyond)),
    )


def is_in_both(role: str, then: Reading, now: Reading) -> bool:
    """Return whether the same contender has this role in both readings."""
    before, after = then.contenders.get(role), now.contenders.get(role)
    if before is None or after is None:
        return False
    return (before.config, before.vendor) == (after.config, after.vendor)


def is_code_same(then: Reading, now: Reading) -> bool:
    """Return whether a config has the same machine code in both readings: source, Triton and ptxas are the same."""
    before, after = then.provenance, now.provenance
    return (before.source, before.environment.triton, before.environment.ptxas) == (
        after.source,
        after.environment.triton,
        after.environment.ptxas,
    )


def is_vendor_same(then: Reading, now: Reading) -> bool:
    """Return whether the vendor's implementation, if it is in both readings, is the same: PyTorch and its compiler are.

    The versions of libraries are not known.
    """
    before, after = then.provenance.environment, now.provenance.environment
    return before.torch == after.torch and is_vendor_compiled_alike(then, now)


def is_vendor_compiled_alike(then: Reading, now: Reading) -> bool:
    """Return whether a change of Triton leaves the vendor as it is, or Triton is the same.

    It may compile a vendor that is not the kernel's own: `torch.compile` or a library.
    """
    vendor = now.contenders.get(VENDOR)
    is_own = vendor is None or not vendor.vendor
    return is_own or then.provenance.environment.triton == now.provenance.environment.triton


def role_factor(role: str, then: Reading, now: Reading) -> float:
    """Return the latency of a contender now over that then. It is in both readings."""
    return now.contenders[role].latency_us / then.contenders[role].latency_us


def machine_factor(then: Reading | None, now: Reading | None) -> float | None:
    """Return the latency now over that then of something whose code is the same, so that the machine made the change.

    That is the vendor if PyTorch is the same, else the default. None if there is none, or the policies differ.
    """
    if then is None or now is None or then.provenance.policy != now.provenance.policy:
        return None
    if is_in_both(VENDOR, then, now) and is_vendor_same(then, now):
        return role_factor(VENDOR, then, now)
    if is_in_both(DEFAULT, then, now) and is_code_same(then, now):
        return role_factor(DEFAULT, then, now)
    return None
