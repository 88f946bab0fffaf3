"""The posterior of the Gaussian process over its candidates, extended by one config at a time."""

from __future__ import annotations

import numpy as np

from tuner.search.covariance import Floats, covariances


class Posterior:
    """Mean and variance of each candidate, given the known ones. The variance depends on points, not on values.

    Args:
        points: scaled points of the candidates, the known ones first.
        noise: variance of a result over that of the function.
        known: number of candidates that are known.
        room: number of candidates that can be added.
    """

    def __init__(self, points: Floats, noise: float, known: int, room: int) -> None:
        self._points, self._noise = points, noise
        covariance = covariances(points[:known], points)
        lower = np.linalg.cholesky(covariance[:, :known] + noise * np.eye(known))
        self._lower = np.zeros((known + room, known + room))
        self._lower[:known, :known] = lower
        self._rows = np.empty((known + room, len(points)))
        self._rows[:known] = np.linalg.inv(lower) @ covariance
        self._variance = 1 - (self._rows[:known] ** 2).sum(0)
        self._known = known
        self._order = [*range(known)]
        """Indices of the known candidates, in the order in which they became known."""
        self._residuals, self._scale = np.zeros(known), 1.0
        """Standardised residuals and scale of the variance, as of the last prediction."""

    def add(self, candidate: int) -> None:
        """Make a candidate known, by its index."""
        n = self._known
        before = self._rows[:n, candidate].copy()
        deviation = np.sqrt(max(1 - float(before @ before), 0.0) + self._noise)
        covariance = covariances(self._points[candidate : candidate + 1], self._points)[0]
        self._rows[n] = (covariance - before @ self._rows[:n]) / deviation
        self._variance -= self._rows[n] ** 2
        self._lower[n, :n], self._lower[n, n] = before, deviation
        self._known += 1
        self._order.append(candidate)

    def predict(self, values: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each candidate.

        Args:
            values: result of each known candidate, NaN while it runs. A running one is assumed to become its
                prediction, which changes no mean.
        """
        residuals = self._whitened(values)
        count = np.count_nonzero(~np.isnan(values))
        self._residuals, self._scale = residuals, float((residuals @ residuals + 2) / (count + 2))
        return residuals @ self._rows[: self._known], np.sqrt(np.maximum(self._variance, 1e-12) * self._scale)

    def _whitened(self, values: Floats) -> Floats:
        """Return the standardised residuals of values, one after the other; 0 for those that are NaN."""
        residuals = np.zeros(self._known)
        for n, value in enumerate(values):
            if value == value:
                residuals[n] = (value - self._lower[n, :n] @ residuals[:n]) / self._lower[n, n]
        return residuals

    def line(self, values: Floats, estimates: Floats, prior: float, deviation: float) -> tuple[float, float]:
        """Return weight and offset of the line through estimates that explains values best, given the covariance.

        Args:
            values: as for `predict`.
            estimates: what was expected of each known candidate.
            prior: expected weight.
            deviation: standard deviation of that expectation.
        """
        running = np.isnan(values)
        found = self._whitened(values)
        expected, ones = (self._whitened(np.where(running, np.nan, each)) for each in (estimates, 1.0))
        norm = ones @ ones
        if not norm:
            return prior, 0.0
        y, x = (each - ones * (ones @ each) / norm for each in (found, expected))
        weight, count = prior, np.count_nonzero(~running)
        for _ in range(2):  # the variance of the residuals depends on the weight
            variance = ((y - weight * x) @ (y - weight * x) + 0.2) / (count + 2)
            precision = variance / deviation**2
            weight = float((x @ y + precision * prior) / (x @ x + precision))
        return weight, float(ones @ (found - weight * expected) / norm)

    def quantiles(self, points: Floats, value: float | Floats) -> Floats:
        """Return the distance of a value from each point's mean, in standard deviations, as of the last prediction.

        It is minus infinity for points whose mean is more than four prior deviations above the value.

        Args:
            points: scaled points of configs that are no candidates.
            value: standardised log latency: one, or one for each point.
        """
        values = np.broadcast_to(value, len(points))
        inverse = np.linalg.inv(self._lower[: self._known, : self._known])
        covariance = covariances(self._points[self._order], points)
        mean = self._residuals @ inverse @ covariance
        quantiles = np.full(len(points), -np.inf)
        near = np.flatnonzero(mean < values + 4 * np.sqrt(self._scale))
        variance = 1 - ((inverse @ covariance[:, near]) ** 2).sum(0)
        quantiles[near] = (values[near] - mean[near]) / np.sqrt(np.maximum(variance, 1e-12) * self._scale)
        return quantiles
