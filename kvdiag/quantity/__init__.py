"""Numbers with a unit and an interval: a printed figure is the set of values that print so."""

from kvdiag.quantity.interval import Interval
from kvdiag.quantity.printed import ABBREVIATED, GIB, UNIT_OF_PRINTED, UNITS, abbreviated_interval, figure_of, printed_interval

__all__ = ["ABBREVIATED", "GIB", "UNITS", "UNIT_OF_PRINTED", "Interval", "abbreviated_interval", "figure_of", "printed_interval"]
