"""What a server did over time: its scheduler lines cut into phases, each with the limit that bound."""

from kvdiag.postmortem.model import Phase, Postmortem, Spread
from kvdiag.postmortem.review import review

__all__ = ["Phase", "Postmortem", "Spread", "review"]
