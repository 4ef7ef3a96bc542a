"""Records grouped by server start, rank and role; knows nothing of the arithmetic."""

from kvdiag.starts.assemble import Assembly, assemble
from kvdiag.starts.model import Event, Number, ReleaseEvidence, Start

__all__ = ["Assembly", "Event", "Number", "ReleaseEvidence", "Start", "assemble"]
