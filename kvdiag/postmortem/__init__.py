"""What a server did over time: its scheduler lines cut into phases, each with the limit that bound."""

from kvdiag.postmortem.gather import Gatherer
from kvdiag.postmortem.model import Phase, Postmortem, Spread

__all__ = ["Gatherer", "Phase", "Postmortem", "Spread"]
