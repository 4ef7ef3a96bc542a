"""Hugging Face config.json to attention geometry, and where a config is found; knows nothing of logs."""

from kvdiag.models.config import ModelConfig, read_config
from kvdiag.models.find import find_config
from kvdiag.models.geometry import Geometry, geometry_of
from kvdiag.models.state import StateShape
from kvdiag.models.windows import Windows

__all__ = ["Geometry", "ModelConfig", "StateShape", "Windows", "find_config", "geometry_of", "read_config"]
