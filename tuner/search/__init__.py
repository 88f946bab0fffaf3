"""The search for the fastest config: ask-measure-tell loop, samplers, interleaved comparison and verdict.

Optuna and numpy are imported when a search starts, not with this package.
"""

from tuner.search.budget import UNLIMITED, Budget
from tuner.search.comparison import COMPARISON, ComparisonSettings
from tuner.search.finalists import Finalists, FinalistSettings, close_to_best
from tuner.search.loop import LoopSettings, search
from tuner.search.result import Result
from tuner.search.samplers import DEFAULT_SAMPLER, SAMPLERS

__all__ = [
    "COMPARISON",
    "DEFAULT_SAMPLER",
    "SAMPLERS",
    "UNLIMITED",
    "Budget",
    "ComparisonSettings",
    "FinalistSettings",
    "Finalists",
    "LoopSettings",
    "Result",
    "close_to_best",
    "search",
]
