"""Where a model's config comes from: the path given, the log's model_path, the Hugging Face cache, the catalogue."""

from __future__ import annotations

import os

from kvdiag.errors import ConfigError
from kvdiag.frozen import replace
from kvdiag.models.catalogue import Match, catalogue_match, nearest
from kvdiag.models.config import ModelConfig, config_from, read_config


def find_config(path: str | None = None, name: str | None = None, model_path: str | None = None) -> ModelConfig | None:
    """The config given by `path`, or named by `name`, or of a log's `model_path`; None where it cannot be known.

    Never uses the network. Raises ConfigError where `path` was given and cannot be used, or `name` is unknown.
    """
    if path:
        return read_config(path)
    if name:
        found = _by_name(name)
        if found is None:
            near = nearest(name)
            meant = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"{name}: not in the catalogue and not in the Hugging Face cache{meant}; else give --config PATH")
        return found
    if not model_path:
        return None
    local = os.path.join(model_path, "config.json")
    try:
        if os.path.isfile(local):
            return read_config(local, "log")
    except (OSError, ConfigError):
        pass
    return _by_name(model_path)


def _by_name(name: str) -> ModelConfig | None:
    cached = _in_cache(name)
    if cached is not None:
        try:
            return read_config(cached, "cache")
        except ConfigError:
            pass
    found = catalogue_match(name)
    return config_of(found) if found else None


def config_of(found: Match) -> ModelConfig:
    """The config of a catalogue's entry, with what the entry and the name leave open."""
    return replace(config_from(found.config, "catalogue", found.name), note=found.note, untold=found.untold)


def _in_cache(name: str) -> str | None:
    if name.count("/") != 1 or ".." in name:
        return None
    hub = os.environ.get("HF_HUB_CACHE") or os.path.join(
        os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface"), "hub"
    )
    snapshots = os.path.join(hub, "models--" + name.replace("/", "--"), "snapshots")
    if not os.path.isdir(snapshots):
        return None
    try:
        found = [os.path.join(snapshots, each, "config.json") for each in os.listdir(snapshots)]
        return max((file for file in found if os.path.isfile(file)), key=os.path.getmtime, default=None)
    except OSError:
        return None
