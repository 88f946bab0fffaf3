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

    def predict(self, values: Floats) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of each candidate.

        Args:
            values: result of each known candidate, NaN while it runs. A running one is assumed to become its
                prediction, which changes no mean.
        """
        residuals = np.zeros(self._known)
        for n, value in enumerate(values):
            if value == value:
                residuals[n] = (value - self._lower[n, :n] @ residuals[:n]) / self._lower[n, n]
        count = np.count_nonzero(~np.isnan(values))
        scale = (residuals @ residuals + 2) / (count + 2)
        return residuals @ self._rows[: self._known], np.sqrt(np.maximum(self._variance, 1e-12) * scale)
