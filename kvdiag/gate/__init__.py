"""A start held against an earlier one: baseline, policy, drift and what explains it; knows nothing of output formats."""

from kvdiag.gate.baseline import read_baseline, write_baseline
from kvdiag.gate.model import Drift, Outcome, Snapshot
from kvdiag.gate.observe import Observation, observe
from kvdiag.gate.verdict import check

__all__ = ["Drift", "Observation", "Outcome", "Snapshot", "check", "observe", "read_baseline", "write_baseline"]
