"""A start held against the arithmetic: checks, limits, findings; knows nothing of output formats."""

from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.diagnosis import Diagnosis, StartDiagnosis
from kvdiag.checks.model import Check, Finding, Limits

__all__ = ["Check", "Diagnosis", "Finding", "Limits", "StartDiagnosis", "diagnose"]
