"""Source text that is cut and altered at random: every reader of it gives an answer that stands in the text."""

from __future__ import annotations

import random

import pytest

from kvdiag.quantity import Interval
from kvdiag.source import open_tree, path_changes
from kvdiag.source.calls import called_function
from kvdiag.source.evaluate import Unknown, exactly
from kvdiag.source.forms import own_names, statements
from kvdiag.source.messages import messages_at
from kvdiag.source.origins import Walker
from kvdiag.source.parsed import Parsed
from kvdiag.source.path import code_path
from kvdiag.source.running import follow
from kvdiag.source.syntax import definitions, of_types
from tests.source_trees import SIZING, TREE, copied

pytestmark = pytest.mark.usefixtures("own_cache")
FORMS = "python/sglang/srt/managers/forms.py"
PIECES = [
    *("(", ")", "{", "}", "[", "]", "'", '"', ":", "=", ":=", ",", ".", "+", "-", "*", "**", "%", "\n", "\\\n", "#", "\0", "é"),
    *("if", "elif", "else:", "def", "class", "return", "lambda", "not", "x", 'f"{'),
]


def altered(source: str, seed: int) -> str:
    draw = random.Random(seed)
    text = source
    for _ in range(draw.randrange(1, 9)):
        at = draw.randrange(len(text))
        text = text[:at] + draw.choice([*PIECES, ""]) + text[at + draw.choice([0, 0, 1, 9]) :]
    return text


@pytest.mark.parametrize("file", [SIZING, FORMS], ids=["sizing", "forms"])
@pytest.mark.parametrize("seed", range(6))
def test_altered_source_is_read_by_all_that_reads_source(tmp_path, file, seed):
    tree = copied(tmp_path)
    (tree / file).write_text(altered((TREE / file).read_text(), seed))
    opened = open_tree(str(tree))
    parsed, inside = Parsed(opened), opened.inside(file)
    root = parsed.root(inside)
    length = root.end_point[0] + 1
    walker = Walker(parsed)
    for message in messages_at(root, inside, of_types(root, ("string", "string_content"))):
        assert 1 <= message.line <= message.end_line <= length
    for _, node in definitions(root):
        if node.type == "function_definition":
            returned = follow(node, {"self.page_size": exactly(16)}, parsed=parsed).returned
            assert returned is None or isinstance(returned, (Interval, Unknown, bool, str))
            assert all(given for given in own_names(node).values())
            assert all(statements(node).values())
    for call in of_types(root, ("call",)):
        called = called_function(call, parsed)
        assert called is None or called.type in ("function_definition", "class_definition")
        assert all(origin.line >= 1 for origin in walker.origins(inside, call))
    for number in ("rest_memory", "max_total_num_tokens"):
        assert all(step.expression for step in code_path(opened, number).steps)
        assert all(change.sentence for change in path_changes(open_tree(str(TREE)), opened, number))
