"""Numbers with a unit and an interval: a printed figure is the set of values that print so."""

from kvdiag.quantity.interval import Interval
from kvdiag.quantity.printed import GIB, UNIT_OF_PRINTED, printed_interval

__all__ = ["GIB", "UNIT_OF_PRINTED", "Interval", "printed_interval"]
