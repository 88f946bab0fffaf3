"""The application layer: what the command line, notebooks, jobs and benchmarks call to tune, verify and compare."""

from tuner.tuning.api import tune
from tuner.tuning.events import Events
from tuner.tuning.joint_answer import JointAnswer
from tuner.tuning.progress import Progress
from tuner.tuning.tuned import Tuned

__all__ = ["Events", "JointAnswer", "Progress", "Tuned", "tune"]
