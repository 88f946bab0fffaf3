"""States of a reduction: the sum, or the largest of the elements that were read so far, and how two states join.

A state is a pair. Its first is the sum, or the largest value; min is the max of negated values. Its second is the sum
of exp(value - largest) for logsumexp, a place for an index, and nothing else. NaN is larger than all values, and of
equal values the first is the largest, as in torch.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.constexpr_function
def neutral(kind):
    """Return the element that changes no result."""
    return {"sum": 0.0, "mean": 0.0, "min": float("inf")}.get(kind, -float("inf"))


@triton.constexpr_function
def empty(kind):
    """Return the first of the state of no elements."""
    return 0.0 if kind in ("sum", "mean") else -float("inf")


@triton.jit
def larger(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def is_larger(a, b):
    """Return whether a is larger than b; NaN is larger than all but NaN."""
    return ~(a <= b) & (b == b)


@triton.jit
def first_larger(a, place, b, other):
    """Return the larger value with its place, and of equal values the first."""
    takes = is_larger(b, a) | ((other < place) & ~is_larger(a, b))
    return tl.where(takes, b, a), tl.where(takes, other, place)


@triton.jit
def largest(values, AXIS: tl.constexpr):
    """Return the largest values along an axis, by integers in the order of the floats; NaN is above all."""
    bits = values.to(tl.int32, bitcast=True)
    keys = tl.where(values != values, 0x7FFFFFFF, bits ^ ((bits >> 31) & 0x7FFFFFFF))
    top = tl.max(keys, axis=AXIS)
    return (top ^ ((top >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)


@triton.jit
def first_place(values, places, top, AXIS: tl.constexpr, BEHIND: tl.constexpr):
    """Return the first of the places along an axis that have its largest value `top`, which is NaN if any value is.

    BEHIND is behind all places.
    """
    is_top = (values == tl.expand_dims(top, AXIS)) | (values != values)
    return tl.min(tl.where(is_top, places, BEHIND), axis=AXIS)


@triton.jit
def shift_of(top):
    """Return what is subtracted before exp: the largest value, or 0 for infinities, so that inf - inf never occurs."""
    return tl.where(tl.abs(top) == float("inf"), 0.0, top)


@triton.jit
def state_of(values, AXIS: tl.constexpr, KIND: tl.constexpr):
    """Return the state of values along an axis, which lie in one thread."""
    if KIND == "sum" or KIND == "mean":
        first = tl.sum(values, axis=AXIS)
        second = first
    elif KIND == "logsumexp":
        first = tl.max(values, axis=AXIS)
        second = tl.sum(tl.exp(values - tl.expand_dims(shift_of(first), AXIS)), axis=AXIS)
    else:
        first = tl.reduce(values, AXIS, larger)
        second = first
    return first, second


@triton.jit
def joined(first, second, other_first, other_second, KIND: tl.constexpr, INDEX: tl.constexpr):
    """Return the state of the elements of two. The places of the other are all behind those of the first."""
    if KIND == "sum" or KIND == "mean":
        first += other_first
    elif KIND == "logsumexp":
        top = tl.maximum(first, other_first)
        shift = shift_of(top)
        second = second * tl.exp(first - shift) + other_second * tl.exp(other_first - shift)
        first = top
    elif INDEX:
        takes = is_larger(other_first, first)
        first = tl.where(takes, other_first, first)
        second = tl.where(takes, other_second, second)
    else:
        first = larger(first, other_first)
    return first, second


@triton.jit
def all_joined(first, second, AXIS: tl.constexpr, KIND: tl.constexpr, INDEX: tl.constexpr):
    """Return the state of the elements of all states along an axis, in an order that is always the same."""
    if KIND == "sum" or KIND == "mean":
        first = tl.sum(first, axis=AXIS)
        second = first
    elif KIND == "logsumexp":
        top = tl.max(first, axis=AXIS)
        second = tl.sum(second * tl.exp(first - tl.expand_dims(shift_of(top), AXIS)), axis=AXIS)
        first = top
    elif INDEX:
        top = largest(first, AXIS)
        second = first_place(first, second, top, AXIS, 2**62)
        first = top
    else:
        first = largest(first, AXIS)
        second = first
    return first, second


@triton.jit
def finished(first, second, count, KIND: tl.constexpr):
    """Return the result of a state of `count` elements."""
    if KIND == "mean":
        first = first / count
    elif KIND == "min":
        first = -first
    elif KIND == "logsumexp":
        first = shift_of(first) + tl.log(second)
    return first


@triton.jit
def leave(firsts, seconds, place, mask, first, second, KIND: tl.constexpr, INDEX: tl.constexpr):
    """Write states for the program that joins them. Places keep their bits in floats of 64 bits."""
    tl.store(firsts + place, first, mask=mask)
    if KIND == "logsumexp":
        tl.store(seconds + place, second, mask=mask)
    elif INDEX:
        tl.store(seconds + place, second.to(tl.int64).to(tl.float64, bitcast=True), mask=mask)


@triton.jit
def left(firsts, seconds, place, mask, KIND: tl.constexpr, INDEX: tl.constexpr):
    """Return states that `leave` wrote; neutral ones, behind all others, if the mask is false."""
    EMPTY: tl.constexpr = empty(KIND)
    first = tl.load(firsts + place, mask=mask, other=EMPTY, cache_modifier=".cg")
    second = first
    if KIND == "logsumexp":
        second = tl.load(seconds + place, mask=mask, other=0.0, cache_modifier=".cg")
    elif INDEX:
        second = tl.load(seconds + place, mask=mask, other=0.0, cache_modifier=".cg").to(tl.int64, bitcast=True)
        second = tl.where(mask, second, 2**62)
    return first, second
