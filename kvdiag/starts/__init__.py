"""Records grouped by server start, rank and role; knows nothing of the arithmetic."""

from kvdiag.starts.assemble import assemble
from kvdiag.starts.model import Event, Number, ReleaseEvidence, Start

__all__ = ["Event", "Number", "ReleaseEvidence", "Start", "assemble"]
