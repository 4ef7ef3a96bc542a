"""What in a text of a log is personal: keys, passwords, mail addresses, hosts, addresses, paths, each found by its look."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache, partial

Word = Callable[[str, str], str]
"""Gives the word that stands for an original of a kind (``key``, ``mail``, ``host``, ``address``, ``path``)."""

_VALUE = r"(?:\\?'[^']{1,400}|\\?\"[^\"]{1,400}|[^\s'\",;(){}\[\]<>\\][^\s'\"\\]{0,400}(?<![,;)\]}]))"
_NOTHING = (
    r"(?!\\?['\"]?(?:None|null|True|False|true|false|hidden|auto)\b)(?!\\?['\"]{2})"
    r"(?!\\?['\"]?<(?:key|mail|host|address|path)[0-9]*>)"
)
_JOINT = r"\\?['\"]?(?:\s{0,3}[:=]{1,2}\s{0,3}|\sis\s)"
_PUBLIC = r"(?:[\w-]+\.){0,3}(?:huggingface\.co|github\.com|pytorch\.org|sglang\.ai|nvidia\.com|python\.org|modelscope\.cn)\b"
_ENDS = (
    "internal|intern|intranet|intra|local|localdomain|lan|corp|private|cluster|svc|cloud|com|net|org|edu|gov|mil|biz|info|io|ai|"
    "dev|app|tech|co|eu|de|fr|uk|nl|ch|at|it|es|se|no|fi|dk|pl|cz|ru|cn|jp|kr|in|sg|tw|hk|au|ca|us|br|il"
)
"""What the last part of a host's name is; a Python module's or a file's is none of these but where `_MODULES` says so."""
_MODULES = r"(?:sglang|torch|triton|transformers|threading|asyncio|numpy|vllm|flashinfer|os|self|google)\."

_KINDS: tuple[tuple[str, str], ...] = (
    ("key", r"(?<=://)[^/\s@'\"]{1,300}(?=@)"),
    (
        "key",
        rf"(?i:(?<![a-z])authorization{_JOINT}\\?['\"]?(?:(?:bearer|basic|token|digest|negotiate)\s+)?){_NOTHING}(?P<it>{_VALUE})",
    ),
    ("key", r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,4000}(?:\.[A-Za-z0-9_-]{0,4000}){0,4}"),
    (
        "key",
        r"(?<![A-Za-z0-9])(?:sk-|gh[pousr]_|github_pat_|xox[abeprs]-|xapp-|glpat-|nvapi-|gsk_|npm_|AIza)[A-Za-z0-9_-]{8,400}"
        r"|(?<![A-Za-z0-9])(?:AKIA|ASIA)[A-Z0-9]{8,124}"
        r"|(?<![A-Za-z0-9])hf_(?!transformers)[A-Za-z0-9]{12,200}(?![A-Za-z0-9_])",
    ),
    ("key", r"(?i:(?<![a-z])(?:bearer|basic)\s+)(?P<it>(?=[^\s]{0,40}[0-9=])[A-Za-z0-9._~+/=-]{8,4000})"),
    (
        "key",
        r"(?i:(?:password|passwd|passphrase|(?<![a-z])pass|pwd|signature|(?<![a-z])pw|secret(?:[_-]?(?:access[_-]?)?key)?|api[_-]?key|access[_-]key(?:[_-]id)?"
        r"|private[_-]key|(?<![a-z])credentials?|(?<![a-z])cookie"
        r"|(?:(?<![a-z])(?:hf|access|auth|api|bearer|refresh|session|github|gitlab|security|hub|wandb)[_-])token)"
        rf"{_JOINT}){_NOTHING}(?P<it>{_VALUE})",
    ),
    ("key", rf"(?i:(?<![a-z0-9_#-])token\\?['\"]?=\\?){_NOTHING}(?!\\?['\"]?[0-9.,]+(?![\w-]))(?P<it>{_VALUE})"),
    (
        "key",
        rf"(?i:(?<![a-z0-9_#-])token{_JOINT}){_NOTHING}(?P<it>\\?['\"]?(?=[^\s]{{0,40}}[A-Za-z])(?=[^\s]{{0,40}}[0-9])[A-Za-z0-9._~+/-]{{6,400}})",
    ),
    (
        "key",
        r"--(?:[a-z]{1,20}-){0,3}(?:api-key|password|passwd|token|secret)(?:=|\s{1,3}|\\?['\"],\s?)(?!-)"
        rf"(?P<it>{_VALUE})",
    ),
    (
        "key",
        r"(?<![A-Za-z0-9_])(?=(?:[A-Za-z]{0,40}[0-9]){5})(?=[^A-Z\s]{0,40}[A-Z])(?=[^a-z\s]{0,40}[a-z])[A-Za-z0-9]{32,400}(?![A-Za-z0-9_])",
    ),
    ("key", r"(?<=hooks\.slack\.com/services/)[A-Za-z0-9/]{1,200}"),
    ("key", r"(?i:[?&](?:sig|code|key|token|x-amz-[a-z-]{1,40})=)(?P<it>[^\s'\"&<>]{1,4000})"),
    (
        "key",
        r"(?i:(?<![a-z0-9_-])(?:password|passwd|token|secret)\s{1,3})"
        r"(?P<it>(?=[^\s]{0,40}[0-9])(?=[^\s]{0,40}[A-Za-z])[A-Za-z0-9]{8,400}(?![\w.]))",
    ),
    ("mail", r"(?<![A-Za-z0-9._%+-])[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,6}"),
    ("host", r"(?:(?<=://)|(?<=>@))[A-Za-z0-9._-]{1,253}(?::[0-9]{1,5})?(?![A-Za-z0-9._-])"),
    ("address", r"(?<![0-9.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![0-9])(?!\.[0-9])"),
    ("address", r"(?<![0-9A-Fa-f:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![0-9A-Fa-f:])"),
    (
        "address",
        r"(?<![\w:.])(?=[0-9A-Fa-f:]{6})(?=[0-9A-Fa-f:]{0,40}::)(?=[A-Fa-f:]{0,40}[0-9])(?:[0-9A-Fa-f]{0,4}:){2,8}[0-9A-Fa-f]{0,5}(?:%\w{1,15})?(?![\w:])",
    ),
    (
        "host",
        rf"(?<![\w./@:-])(?!{_PUBLIC})(?!{_MODULES})(?:[A-Za-z0-9](?:[A-Za-z0-9_-]{{0,62}})\.){{1,8}}(?:{_ENDS})(?::[0-9]{{1,5}})?(?![\w(/-]|\.\w)",
    ),
    (
        "host",
        r"(?i:(?<![a-z])host(?:_?name)?(?:\\?['\"]?\s{0,3}[:=]\s{0,3}\\?['\"]?))(?!None\b|localhost\b)(?P<it>[A-Za-z0-9][A-Za-z0-9.-]{1,252})",
    ),
    (
        "host",
        r"(?<![\w./@<-])(?:[A-Za-z0-9]{1,40}-){0,8}(?:node|host|dgx|hgx|srv|server|vm|ip)-?(?:[0-9]{1,6}-){0,4}[0-9]{1,6}(?![\w.-])",
    ),
    (
        "path",
        r"(?<![A-Za-z0-9_.<>/-])(?<!:/)(?<!:)(?!/(?:dev|proc|sys|v1)/)~?/(?:[A-Za-z0-9_.+@-]{1,255}/){1,40}[A-Za-z0-9_.+@-]{0,255}",
    ),
    ("path", r"(?<=file://)/[A-Za-z0-9_.+@/-]{1,1000}"),
    ("path", r"(?<![A-Za-z0-9])[A-Za-z]:\\{1,2}(?:[^\\\s'\"]{1,100}\\{1,2}){1,20}[^\\\s'\"]{0,100}"),
    ("path", r"(?<=[a-z]:)/(?:home|root|Users|mnt|data|scratch|nfs)/(?:[A-Za-z0-9_.+@-]{1,255}/){0,40}[A-Za-z0-9_.+@-]{0,255}"),
)
_OPEN = frozenset({"0.0.0.0", "127.0.0.1", "::1", "localhost"})
"""What every server has: it says nothing of anybody."""


@lru_cache(maxsize=1)
def _patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    return tuple((kind, re.compile(pattern)) for kind, pattern in _KINDS)


def replaced(text: str, word: Word) -> str:
    """`text` with what `word` gives in place of each original; a list of places is as short as the text."""
    for kind, pattern in _patterns():
        text = pattern.sub(partial(_word, kind=kind, word=word), text)
    return text


def _word(found: re.Match[str], kind: str, word: Word) -> str:
    whole = found.group()
    original = found["it"] if "it" in found.re.groupindex else whole
    bare = original.lstrip("\\'\"")
    if bare in _OPEN or not bare:
        return whole
    return whole[: len(whole) - len(bare)] + word(kind, bare)


def impersonal(text: str) -> str:
    """`text` with ``<key>``, ``<mail>``, ``<host>``, ``<address>`` and ``<path>`` in place of what is personal in it."""
    return replaced(text, lambda kind, _: f"<{kind}>")
