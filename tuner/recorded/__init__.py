"""Recorded spaces: every config of a problem, measured once on a real card, to be searched again without one.

The files that ship lie in this folder. Neither torch nor triton is needed.
"""

from tuner.recorded.measurer import RecordedMeasurer
from tuner.recorded.outline import Outline
from tuner.recorded.shipped import devices, load, names, of_problem, on_one_card, outline, signatures, suggestion
from tuner.recorded.space import RecordedSpace, dumps, loads, problem_stem

__all__ = [
    "Outline",
    "RecordedMeasurer",
    "RecordedSpace",
    "devices",
    "dumps",
    "load",
    "loads",
    "names",
    "of_problem",
    "on_one_card",
    "outline",
    "problem_stem",
    "signatures",
    "suggestion",
]
