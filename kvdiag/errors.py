"""Errors whose message is what the command line prints: what was wrong, where, what to do next."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes scripts may rely on."""

    DONE = 0
    CHECK_FAILED = 1
    UNUSABLE = 2
    NOT_SGLANG = 3
    INTERNAL = 70


def install_extra(extra: str) -> str:
    """What to type for an extra of kvdiag, from an index that has it and from a checkout."""
    return f"pip install 'kvdiag[{extra}]' (in a checkout: pip install '.[{extra}]')"


class KvdiagError(Exception):
    """Base of every error kvdiag raises on purpose; ``str()`` of it is the message for the user."""

    exit_code = ExitCode.UNUSABLE


class InputError(KvdiagError):
    """An input cannot be opened, decoded or decompressed."""


class NotSglangError(KvdiagError):
    """The input was read, but no line of it was printed by an SGLang server."""

    exit_code = ExitCode.NOT_SGLANG


class RuleError(KvdiagError):
    """A rule file is not of the shape its folder asks for."""


class ReleaseError(KvdiagError):
    """A release is not one SGLang has published, or not a release number at all."""


class ConfigError(KvdiagError):
    """A model config.json cannot be read or lacks what sizing needs."""


class UnknownWordError(KvdiagError):
    """What was asked about is no field, line, number or code that the rules hold."""


class CannotSizeError(KvdiagError):
    """No formula is known for this architecture, dtype or argument: refused rather than guessed."""


class BaselineError(KvdiagError):
    """A baseline file is missing or not one that kvdiag wrote."""


class PolicyError(KvdiagError):
    """A policy file is not TOML, or asks for something there is not; the message has path, line and column."""


class MissingError(KvdiagError, ImportError):
    """What was asked for needs a package that is not installed; the message names the extra of kvdiag that brings it."""
