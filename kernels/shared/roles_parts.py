"""Device functions on the parts of a tile's columns, the powers of two that they are composed of, and on the ring."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tuner.kernels.shared import roles

parts_of = gluon.constexpr_function(roles.parts)
workers_of = gluon.constexpr_function(roles.workers)


@gluon.constexpr_function
def before(parts, nth):
    """Return the columns before a part."""
    return sum(parts[:nth])


@gluon.constexpr_function
def count(parts):
    return len(parts)


@gluon.constexpr_function
def width(parts, nth):
    return parts[nth]


@gluon.constexpr_function
def chunks_before(parts, nth, most):
    """Return the number of pieces, of up to `most` columns, in which the parts before one are stored."""
    return sum(-(-part // most) for part in parts[:nth])


@gluon.jit
def after(stage, phase, STAGES: gl.constexpr):
    """Return the stage after this one, and the parity of its barriers, which changes with each round of the ring."""
    stage += 1
    return gl.where(stage == STAGES, 0, stage), gl.where(stage == STAGES, phase ^ 1, phase)


@gluon.jit
def later(stage, phase, steps, STAGES: gl.constexpr):
    """Return the stage some steps after this one, and the parity of its barriers."""
    stage += steps
    return stage % STAGES, phase ^ (stage // STAGES & 1)
