"""Plain frozen values shared by measuring, storing and looking up. Standard library only. Times are microseconds."""

from tuner.records.answer import FORGOTTEN, IMPORTED, Answer, Evidence, Provenance, StoredAnswer, Tie, Transfer
from tuner.records.device import COLD, POLICIES, VERSION_NAMES, Device, Environment, Policy, RooflineLimits, policy_name
from tuner.records.measurement import (
    FEWEST_SAMPLES,
    NOT_INSTALLED,
    SLOW_US,
    VENDOR,
    VENDOR_NAME,
    CardState,
    Comparison,
    Interval,
    Measurement,
    Outcome,
    marks_of,
    median,
    vendor_contender,
)
from tuner.records.run import EarlierSearch, StoredRun

__all__ = [
    "COLD",
    "FEWEST_SAMPLES",
    "FORGOTTEN",
    "IMPORTED",
    "NOT_INSTALLED",
    "POLICIES",
    "SLOW_US",
    "VENDOR",
    "VENDOR_NAME",
    "VERSION_NAMES",
    "Answer",
    "CardState",
    "Comparison",
    "Device",
    "EarlierSearch",
    "Environment",
    "Evidence",
    "Interval",
    "Measurement",
    "Outcome",
    "Policy",
    "Provenance",
    "RooflineLimits",
    "StoredAnswer",
    "StoredRun",
    "Tie",
    "Transfer",
    "marks_of",
    "median",
    "policy_name",
    "vendor_contender",
]
