"""The checks of the contract: each recomputes one number of the log and says agree, disagree or unknown."""

from __future__ import annotations

from kvdiag.checks.after import after_checks
from kvdiag.checks.arithmetic import Arithmetic
from kvdiag.checks.capacity import capacity_checks
from kvdiag.checks.compressed import compressed_checks
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.mlx import mlx_checks
from kvdiag.checks.model import Check
from kvdiag.checks.pools import pool_checks
from kvdiag.checks.slots import slot_checks
from kvdiag.checks.symbols import symbol_of
from kvdiag.frozen import replace

_MAKERS = (pool_checks, mlx_checks, compressed_checks, capacity_checks, slot_checks, after_checks)
_SELF_SIZED = ("rest_memory", "max_total_num_tokens")


def recompute(inputs: CheckInputs) -> list[Check]:
    """Every check whose observed number the log states."""
    found: list[Check] = []
    arithmetic, releases = Arithmetic(inputs), inputs.candidates()
    for make in _MAKERS:
        for check in make(inputs, arithmetic):
            taken = any((check.name, check.rank, check.role) == (other.name, other.rank, other.role) for other in found)
            if not (taken and check.name in _SELF_SIZED):
                found.append(replace(check, symbol=symbol_of(check.name, releases)))
    return found
