"""Other sources than the log: server_info, metrics, the GPU's tool; they know nothing of what the log says."""

from kvdiag.outside.model import Outside

__all__ = ["Outside"]
