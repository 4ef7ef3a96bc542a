"""A start held against the tree it ran from: file and line at every check, its arithmetic with the log's values."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import TYPE_CHECKING

from kvdiag.checks.budget import budget_of
from kvdiag.checks.diagnosis import StartDiagnosis
from kvdiag.checks.findings import told
from kvdiag.checks.inputs import CheckInputs
from kvdiag.checks.model import Check, CodeStep, Finding
from kvdiag.frozen import replace
from kvdiag.quantity import GIB, Interval
from kvdiag.quantity.dtype import canonical_dtype
from kvdiag.sizing.cells import kv_heads_per_rank
from kvdiag.sizing.dtypes import model_dtype, plain_element_bytes
from kvdiag.source import CodePath, PathStep, SourceTree, code_path
from kvdiag.source.evaluate import Known, Value, exactly
from kvdiag.source.parsed import Parsed
from kvdiag.source.running import Followed, follow

if TYPE_CHECKING:
    from kvdiag.models import Geometry

_NUMBERS = {"bytes_per_token": "cell_size", "kv_pool_bytes": "kv_bytes", "memory_after_pool": "kv_bytes"}
_CHECKED = (
    "rest_memory",
    "bytes_per_token",
    "max_total_num_tokens",
    "max_running_requests",
    "mem_fraction_static",
    "kv_pool_bytes",
    "memory_after_pool",
    "swa_max_total_num_tokens",
    "max_mamba_cache_size",
)
_HELD = (
    ("rest_memory", "rest_memory", "reduced"),
    ("bytes_per_token", "cell_size", "cost of a token"),
    ("max_total_num_tokens", "", "divided"),
)
"""Check, the variable of the source that has its value (none: the last statement has), and the step that gives it."""
_PLAIN = ("mha", "gqa", "mqa", "mla")
_WINDOWED = ("swa", "hybrid-swa")
_DECIMALS = 4
"""Digits that a value of the source is shown with after the point."""


class InSource:
    """Adds to diagnoses what `tree` says; paths and functions are looked up once."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self.parsed = Parsed(tree)
        self._paths: dict[str, CodePath] = {}

    def path(self, check: str) -> CodePath | None:
        """The path of the number that a check is of; None where the rules have none."""
        if check not in _CHECKED:
            return None
        if check not in self._paths:
            self._paths[check] = code_path(self.tree, _NUMBERS.get(check, check))
        return self._paths[check]

    def add(self, item: StartDiagnosis, inputs: CheckInputs) -> None:
        """Puts code steps into the checks of `item`, and findings where tree and log or tree and rules part."""
        first = list(self._told(inputs))
        ranks: dict[str, Known] = {check.rank: known_values(inputs, check.rank) for check in item.checks}
        checks = [replace(check, code=tuple(self._steps(check, inputs, ranks[check.rank]))) for check in item.checks]
        item.checks[:] = checks
        item.findings += [*first, *self._differences(inputs, item.checks, ranks)]

    def _told(self, inputs: CheckInputs) -> Iterator[Finding]:
        release = code_path(self.tree, "rest_memory").release
        if release.release is None or any(release.release.key == other.key for other in inputs.candidates()):
            return
        stated = {"tree": self.tree.name, "there": str(release.release), "by": release.source}
        yield told("KV151", {**stated, "wrote": str(inputs.releases) if inputs.releases else str(inputs.stated)})

    def _steps(self, check: Check, inputs: CheckInputs, known: Known) -> Iterator[CodeStep]:
        path = self.path(check.name)
        for step in path.steps if path else ():
            if not _applies(step, inputs):
                continue
            value = self._follow(step, self._handed(step, path, known)).at.get(step.line) if path and known else None
            shown = _shown(value) if isinstance(value, Interval) else None
            yield CodeStep(step.file, step.symbol, step.line, step.step, step.expression, shown, step.confidence)

    def _follow(self, step: PathStep, known: Known) -> Followed:
        scope = self.parsed.symbol(self.tree.inside(step.file), step.symbol)
        return (
            follow(scope, known, parsed=self.parsed) if scope is not None and scope.type == "function_definition" else Followed()
        )

    def _handed(self, step: PathStep, path: CodePath, known: Known) -> Known:
        """`known`, and for a division that is a method of its own what it is handed: the budget, and what its class set up."""
        owner = step.symbol.rpartition(".")[0]
        if step.step != "divided" or "available_bytes" not in step.expression:
            return known
        budget = next((place for place in path.steps if place.step == "in bytes"), None)
        handed = {"available_bytes": self._follow(budget, known).returned} if budget is not None else {}
        made = self.parsed.symbol(self.tree.inside(step.file), f"{owner}.__init__")
        if made is not None and made.type == "function_definition":
            values = follow(made, known, parsed=self.parsed).local
            handed |= {name.removeprefix("self."): value for name, value in values.items() if name.startswith("self.")}
        return {**known, **{name: value for name, value in handed.items() if isinstance(value, Interval)}}

    def _differences(self, inputs: CheckInputs, checks: list[Check], ranks: dict[str, Known]) -> Iterator[Finding]:
        """Where the tree's formula gives what ours cannot: it is patched, or our rule is wrong. Each formula once.

        Capacity is what the other two give: another result of it is told where they agree.
        """
        raised = False
        for name, variable, step in _HELD:
            found = next(filter(None, (self._difference(inputs, checks, name, variable, step, rank) for rank in ranks)), None)
            if found and not (raised and name == "max_total_num_tokens"):
                raised = True
                yield found

    def _difference(
        self, inputs: CheckInputs, checks: list[Check], name: str, variable: str, step: str, rank: str
    ) -> Finding | None:
        ours = _ours(inputs, checks, name, rank)
        path = self.path(name)
        known = known_values(inputs, rank)
        if ours is None or path is None or not known or _counts_drafts(path, inputs, name):
            return None
        for place in reversed(path.steps):
            of_variable = place.step == step and place.expression.startswith(variable)
            if not of_variable or place.confidence == "possible" or not _applies(place, inputs):
                continue
            followed = self._follow(place, self._handed(place, path, known))
            stated = followed.at.get(place.line)
            theirs = followed.local.get(variable) if variable and _is_plain(inputs) else stated
            # The statement that gave the variable its last value is the one to quote.
            if isinstance(theirs, Interval) and stated == theirs:
                theirs = _whole_pages(theirs, inputs) if name == "max_total_num_tokens" else theirs
                return None if theirs.meets(ours) else self._finding(name, place, theirs, ours)
        return None

    def _finding(self, name: str, place: PathStep, theirs: Interval, ours: Interval) -> Finding:
        place_of = {"file": place.file, "line": place.line, "symbol": place.symbol, "statement": place.expression}
        return told("KV150", {**place_of, "name": name, "theirs": _shown(theirs), "ours": _shown(ours)})


def _applies(step: PathStep, inputs: CheckInputs) -> bool:
    """Whether a step that holds only for some models or modes holds for this start, as far as its model is known."""
    geometry = inputs.geometry
    speculative = bool(inputs.start.server_args.get("speculative_algorithm"))
    if step.when in ("speculative decoding", "DFLASH drafts"):
        return speculative
    if not step.when or geometry is None or geometry.attention not in _PLAIN:
        return True
    return step.when == ("MLA models" if geometry.attention == "mla" else "models with heads")


def _is_plain(inputs: CheckInputs) -> bool:
    """Whether the model has one pool, no state and no index."""
    return inputs.geometry is not None and inputs.geometry.attention in _PLAIN


def _ours(inputs: CheckInputs, checks: list[Check], name: str, rank: str) -> Interval | None:
    """What kvdiag's rule gives, in the source's unit; None where it has terms that the source has elsewhere."""
    if inputs.geometry is None:
        return None
    if name == "rest_memory":
        # Before states come out of it the budget is the same for every model.
        found = budget_of(inputs, rank)
        return _gib(found[0]) if found else None
    if not _is_plain(inputs):
        return None
    if name == "max_total_num_tokens" and (inputs.arguments.max_total_tokens or inputs.arguments.pp_size != 1):
        return None
    for check in checks:
        if check.name == name and check.rank == rank and check.recomputed is not None and check.role != "draft":
            ours = check.recomputed.with_unit("")
            return ours if name != "bytes_per_token" or _as_asked(inputs.geometry, ours) else None
    return None


def _counts_drafts(path: CodePath, inputs: CheckInputs, name: str) -> bool:
    """Whether the tree charges a draft model in another statement than the one that is followed."""
    if name == "rest_memory" or not inputs.start.server_args.get("speculative_algorithm"):
        return False
    return any(step.when in ("speculative decoding", "DFLASH drafts") for step in path.steps)


def _whole_pages(tokens: Interval, inputs: CheckInputs) -> Interval:
    """What is left of a number of tokens when it is rounded down to pages, as the source does after the division."""
    page = inputs.arguments.page_size or 1
    return Interval(Fraction(tokens.low // page * page), Fraction(tokens.high // page * page), "")


def _as_asked(geometry: Geometry, ours: Interval) -> bool:
    """Whether a latent model was sized as one: releases that do not know its class size it otherwise."""
    if geometry.attention != "mla":
        return True
    width = (geometry.kv_lora_rank + geometry.qk_rope_head_dim) * geometry.num_hidden_layers
    return ours.is_exact and ours.low % width == 0


def _gib(value: Interval) -> Interval:
    return Interval(value.low / GIB, value.high / GIB, "")


def known_values(inputs: CheckInputs, rank: str) -> dict[str, Interval | bool | str | None]:
    """The names of SGLang's sizing code whose values log, config and arguments tell; memory is in GiB, as there."""
    known: dict[str, Interval | bool | str | None] = {"is_draft_worker": False}
    worst = inputs.worst(rank)
    if worst is not None:
        available = _gib(worst.available)
        known |= {"available_gpu_memory": available, "post_model_load_memory": available, "get_available_gpu_memory()": available}
        if worst.total is not None:
            names = ("total_gpu_memory", "pre_model_load_memory", "min_per_gpu_memory")
            known |= dict.fromkeys(names, _gib(worst.total))
    if inputs.mem_fraction_static is not None:
        known["mem_fraction_static"] = exactly(inputs.mem_fraction_static)
    for name in ("max_total_tokens", "max_running_requests", "page_size", "context_length"):
        value = getattr(inputs.arguments, name, None)
        if isinstance(value, int):
            known[name] = exactly(value)
    if inputs.geometry is not None and inputs.geometry.attention in (*_PLAIN, *_WINDOWED):
        known |= {"mambaish_config": None, "mambaish_config()": None, "is_hybrid_gdn": False}
    if _reserves_nothing(inputs):
        known["mm_runtime_reservation_gb()"] = exactly(0)
    if inputs.geometry is not None and inputs.geometry.attention in _PLAIN:
        known |= _of_geometry(inputs.geometry, inputs)
    return known


def _reserves_nothing(inputs: CheckInputs) -> bool:
    """Whether the model has no images or sounds to keep memory for."""
    if inputs.config is None or inputs.geometry is None or inputs.geometry.towers:
        return False
    return not any("vision" in key or "audio" in key for key in inputs.config.whole)


def _of_geometry(geometry: Geometry, inputs: CheckInputs) -> dict[str, Interval | bool | str | None]:
    """What a plain model (one pool, no state, no index) makes of the questions the sizing code asks."""
    mla = geometry.attention == "mla"
    known: dict[str, Interval | bool | str | None] = {
        "use_mla_backend": mla,
        "attention_arch": "AttentionArch.MLA" if mla else "AttentionArch.MHA",
        "MLA": "AttentionArch.MLA",
        "disable_mla": False,
        "enable_mla": mla,
        "is_hybrid_swa": False,
        "is_deepseek_nsa()": False,
        "is_deepseek_dsa()": False,
        "is_minimax_sparse()": False,
        "is_glm_dsa_cache_layer_split_enabled()": False,
        "parse_qsa_profile()": None,
        "kv_cache_dtype_str": inputs.arguments.kv_cache_dtype or "auto",
    }
    told = inputs.start.server_args
    if told.get("device") == "cuda":
        known["envs.SGLANG_NPU_ENABLE_SPARSE_KV_OFFLOAD.get()"] = False
    if not told.get("enable_hisparse"):
        known["enable_hisparse"] = False
    if told.get("speculative_algorithm", "") is None:
        known |= dict.fromkeys(("is_eagle()", "is_standalone()", "is_dflash()", "is_dflash_family()"), False)
    if told.get("dcp_size", 1) in (None, 1):
        known["attn_dcp_size"] = exactly(1)
    if inputs.arguments.pp_size == 1:
        layers = exactly(geometry.num_hidden_layers)
        known |= dict.fromkeys(("num_layers", "num_effective_layers", "num_hidden_layers", "effective_num_layers"), layers)
    for name in ("kv_lora_rank", "qk_rope_head_dim", "head_dim", "v_head_dim"):
        if getattr(geometry, name):
            known[name] = exactly(getattr(geometry, name))
    known |= _of_dtype(inputs, geometry)
    return known


def _of_dtype(inputs: CheckInputs, geometry: Geometry) -> dict[str, Interval | bool | str | None]:
    arguments = inputs.arguments
    known: dict[str, Interval | bool | str | None] = {}
    if geometry.attention != "mla":
        known["get_num_kv_heads()"] = exactly(kv_heads_per_rank(geometry.num_key_value_heads, arguments.attention_tp_size))
    dtype = canonical_dtype(arguments.kv_cache_dtype or "auto")
    if dtype == "auto" and geometry.kv_cache_quant_algo:
        return known
    size = plain_element_bytes(model_dtype(geometry, arguments) if dtype == "auto" else dtype)
    if size is None:
        return known
    names = ("_element_size()", "element_size()")
    return known | dict.fromkeys(names, exactly(size)) | {"is_float4_e2m1fn_x2()": False}


def _shown(value: Value) -> str:
    if not isinstance(value, Interval):
        return ""
    low, high = (_figure(bound) for bound in (value.low, value.high))
    return low if low == high else f"{low}..{high}"


def _figure(bound: Fraction) -> str:
    return f"{int(bound):,}" if bound.denominator == 1 else f"{float(bound):,.{_DECIMALS}f}"
