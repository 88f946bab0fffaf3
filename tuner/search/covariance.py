"""The covariance function of the Gaussian process: Matern 5/2 with a weight for each block of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

from tuner.kernels.spec import Value

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.signedinteger]


@dataclass(frozen=True)
class CovarianceSettings:
    """Prior of the weights and the noise, and how they are fitted. Latency changes over an int knob's whole range."""

    log_weight: float = 0.0
    """Prior mean of the log weight of a knob."""
    log_choice_weight: float = -3.0
    """Prior mean of the log weight by which single choices of an int knob differ from their neighbours."""
    log_noise: float = log(1e-3)
    """Prior mean of the log noise."""
    deviation: float = 2.0
    """Prior standard deviation of each of these logarithms."""
    steps: int = 15
    """Number of gradient steps of a fit."""
    max_columns: int = 64
    """Maximum number of columns of a block: one for each choice, or signs that more choices share."""


COVARIANCE = CovarianceSettings()


@dataclass(frozen=True)
class Covariance:
    """The fitted covariance function of log latency between points."""

    log_weights: Floats
    """Log weight of each block of columns."""
    log_noise: float

    @property
    def noise(self) -> float:
        """Variance of a result over that of the function; it includes the configs' own peculiarities."""
        return float(np.exp(self.log_noise))

    def scaled(self, points: Floats, starts: Indices) -> Floats:
        """Return points whose Euclidean distance is the covariance's.

        Args:
            points: a row for each config.
            starts: first column of each block.
        """
        widths = np.diff([*starts, points.shape[1]])
        return np.asarray(points * np.repeat(np.exp(self.log_weights / 2), widths))


def coded(values: Sequence[Value]) -> tuple[Codes, list[Value]]:
    """Return a knob's values as indices of its choices, and the choices: numbers by value, then the others."""
    choices = sorted(set(values), key=lambda value: (0, value, "") if is_number(value) else (1, 0, repr(value)))
    indices = {choice: index for index, choice in enumerate(choices)}
    dtype = np.int16 if len(choices) <= np.iinfo(np.int16).max else np.int32
    return np.fromiter(map(indices.__getitem__, values), dtype, len(values)), choices


def blocks(choices: Sequence[Value], settings: CovarianceSettings = COVARIANCE) -> Iterator[tuple[Floats, float]]:
    """Yield blocks of columns that separate a knob's choices, each with the prior of its log weight.

    Two choices of a block differ by at most about 1. A knob of numbers has a block with their ranks, and one in which
    each choice differs by itself, since single choices may be fast between slow ones: a padding of 2, but not of 0 or
    8. Strings, bools and None have no order: if numbers are among the choices too, a block separates them from those.

    Args:
        choices: as `coded` returns them.
    """
    n, numbers = len(choices), sum(map(is_number, choices))
    if numbers < 2:
        yield _apart(np.arange(n), settings), settings.log_weight
        return
    ranks = np.full((n, 1), 0.5)
    ranks[:numbers, 0] = np.linspace(0, 1, numbers)
    yield ranks, settings.log_weight
    if numbers < n:
        yield _apart(np.maximum(np.arange(n) - numbers + 1, 0), settings), settings.log_weight
    if 2 < numbers <= settings.max_columns:
        yield _apart(np.arange(n), settings), settings.log_choice_weight


def is_number(value: Value) -> bool:
    """Return whether a choice has a place in an order."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _apart(classes: Indices, settings: CovarianceSettings) -> Floats:
    """Return rows of which those of different classes, numbered from 0, have a distance of 1.

    Of many classes, the rows are random signs, whose distances are 1 up to 10 %. A column for each class would take
    memory quadratic in their number.
    """
    count = int(classes[-1]) + 1
    if count <= settings.max_columns:
        return np.asarray(np.eye(count)[classes] / np.sqrt(2))
    signs = np.random.default_rng(0).integers(0, 2, (count, settings.max_columns), np.int8) - 0.5
    return np.asarray(signs[classes] * np.sqrt(2 / settings.max_columns))


def covariances(some: Floats, others: Floats) -> Floats:
    """Return the covariance of each of some scaled points with each of others: (some, others)."""
    squares = (some**2).sum(1)[:, None] + (others**2).sum(1) - 2 * some @ others.T
    return _matern(np.maximum(squares, 0))[0]


def fitted(
    start: Covariance, prior: Covariance, distances: Floats, values: Floats, settings: CovarianceSettings = COVARIANCE
) -> Covariance:
    """Return the covariance of the highest posterior density, by gradient steps (RPROP, Riedmiller and Braun).

    Args:
        start: where the steps begin.
        prior: means of the prior.
        distances: squared distances by block: (blocks, configs, configs).
        values: standardised result of each config.
        settings: deviation of the prior and number of steps.
    """
    n, middle = len(values), np.append(prior.log_weights, prior.log_noise)
    logs = np.append(start.log_weights, start.log_noise)
    steps, before = np.full(len(logs), 0.3), np.zeros(len(logs))
    least, best = np.inf, logs
    for _ in range(settings.steps if values.any() else 0):
        weights, noise = np.exp(logs[:-1]), np.exp(logs[-1])
        covariance, slope = _matern(np.tensordot(weights, distances, 1))
        covariance += noise * np.eye(n)
        inverse = np.linalg.inv(covariance)
        solved = inverse @ values
        scale = values @ solved / n
        penalty = (((logs - middle) / settings.deviation) ** 2).sum()
        loss = (n * np.log(scale) + np.linalg.slogdet(covariance)[1] + penalty) / 2
        if loss < least:
            least, best = loss, logs
        inner = (inverse - np.outer(solved, solved) / scale) / 2
        gradient = (logs - middle) / settings.deviation**2
        gradient[:-1] += weights * np.einsum("ij,kij->k", inner * slope, distances)
        gradient[-1] += noise * np.trace(inner)
        same = gradient * before
        steps = np.clip(np.where(same > 0, 1.3 * steps, np.where(same < 0, 0.5 * steps, steps)), 1e-3, 1.0)
        before = np.where(same < 0, 0, gradient)
        logs = np.clip(logs - steps * np.sign(gradient), -8, 8)
    return Covariance(best[:-1], float(best[-1]))


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Return Matern 5/2 of squared distances, and its derivative."""
    distance = np.sqrt(5 * squares)
    decay = np.exp(-distance)
    return (1 + distance + distance**2 / 3) * decay, -5 / 6 * (1 + distance) * decay
