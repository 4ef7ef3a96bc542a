"""A start held against the arithmetic: checks, limits, findings; knows nothing of output formats."""

from kvdiag.checks.diagnose import diagnose
from kvdiag.checks.model import Check, Diagnosis, Finding, Limits, StartDiagnosis

__all__ = ["Check", "Diagnosis", "Finding", "Limits", "StartDiagnosis", "diagnose"]
