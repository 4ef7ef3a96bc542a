"""Ways in which a statement puts its text together, one at a time: the line it prints leads back to it."""

from __future__ import annotations

import pytest

from kvdiag.source import open_tree
from kvdiag.source.find_line import find_line
from kvdiag.source.line_answer import line_answer
from kvdiag.source.origins import Walker
from kvdiag.source.parsed import Parsed
from kvdiag.source.syntax import find, of_types, text

pytestmark = pytest.mark.usefixtures("own_cache")


def tree_of(folder, **files: str):
    package = folder / "sglang" / "srt"
    package.mkdir(parents=True)
    for name, source in files.items():
        (package / f"{name}.py").write_text(source)
    return open_tree(str(folder))


FORMS = [
    (r"log(r'raw text with \d in it')", r"raw text with \d in it", []),
    ("log(rf'raw text of {name} here')", "raw text of x here", ["x"]),
    ("log('a long text of %s over '\n        # that it says\n        'two pieces' % name)",
     "a long text of x over two pieces", ["x"]),
    ("log(('in brackets held text'))", "in brackets held text", []),
    ("log('mapped %(kind)s of things' % {'kind': name})", "mapped x of things", ["x"]),
    ("log('in hexadecimal %x is shown', name)", "in hexadecimal 1f is shown", ["1f"]),
    ("log('representation %r is shown', name)", "representation 'x' is shown", ["'x'"]),
    ("log('in whole numbers %i is shown', name)", "in whole numbers 12 is shown", ["12"]),
    ("log('more places %s than %s values', name)", "more places x than y values", ["x", "y"]),
    ("log('numbered {1} before {0} ones'.format(a, b))", "numbered y before x ones", ["y", "x"]),
    ("log('converted {!r} for {}'.format(a, b))", "converted 'y' for x", ["'y'", "x"]),
    ("log('doubled {{braces}} around {}'.format(a))", "doubled {braces} around x", ["x"]),
    ("log('nobody gives {missing} a value'.format(a))", "nobody gives x a value", ["x"]),
    ("log('stripped text of things \\n'.strip())", "stripped text of things", []),
    ("log(', '.join(['joined text', name, 'of things']))", "joined text, x, of things", ["x"]),
    ("log('all of them: ' + ', '.join(names))", "all of them: x, y", ["x, y"]),
    ("log('shown as is: ' + repr(name))", "shown as is: 'x'", ["'x'"]),
    ("log('added text ' + name)", "added text x", ["x"]),
    ("log(name + ' added behind it')", "x added behind it", ["x"]),
    ("log('yes, it is so' if name else name)", "yes, it is so", []),
    ("log('-' * width + ' a ruled text')", "--- a ruled text", ["---"]),
    ("log(f'percentage {share:.1%} of it all')", "percentage 12.5% of it all", ["12.5%"]),
    ("log(f'thousands {count:,} of tokens')", "thousands 1,024 of tokens", ["1,024"]),
    ("log(f'padded {count:5d} of tokens')", "padded    12 of tokens", ["   12"]),
    ("log('%s: %s' % (name, 'a text that stands here'))", "x: a text that stands here", ["x"]),
    ("print('printed', name, 'with blanks between')", "printed x with blanks between", ["x"]),
    ("raise ValueError(name, 'the second of two texts')", "ValueError: the second of two texts", []),
    ("assert name, f'asserted {name} of things'", "AssertionError: asserted x of things", ["x"]),
    ("parts = ['listed text one', f'with {name}']\n    log(' and '.join(parts))", "listed text one and with x", ["x"]),
    ("out = io()\n    out.write('written text one. ')\n    out.write(f'then {name}')\n    log(out)",
     "written text one. then x", ["", "x"]),
    ("with lock:\n        told = 'told inside a with'\n    log(told)", "told inside a with", []),
    ("told = 'first words'\n    while more():\n        told += ' again words'\n        log(told)", "first words again words", []),
    ("if name:\n        told = f'branch of {name}'\n        log(told + ' itself')", "branch of x itself", ["x"]),
    ("told: str\n    told = 'declared before given'\n    log(told)", "declared before given", []),
    ("return ['an element of a returned list', name]", "an element of a returned list", [""]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "line", "values"), FORMS, ids=[line for _, line, _ in FORMS])
def test_a_line_leads_back_to_the_statement_of_this_form(tmp_path, body, line, values):
    found = find_line(Parsed(tree_of(tmp_path, forms=f"def shown(self, name):\n    {body}\n")), line)
    assert found, line
    assert found[0].message.symbol == "shown"
    assert [value for _, value in found[0].fit.values] == values


NOT_PRINTED = [
    ("log(b'bytes are no line of text')", "bytes are no line of text"),
    ("log(f'percentage {share:.1%} of it')", "percentage 12.5 of it"),
    ("log(f'decimals {share:.2f} of it')", "decimals 0.5 of it"),
    ("log(f'whole {count:d} of it')", "whole 0.5 of it"),
]


@pytest.mark.parametrize(("body", "line"), NOT_PRINTED, ids=[line for _, line in NOT_PRINTED])
def test_a_value_in_another_format_was_not_printed_by_it(tmp_path, body, line):
    assert find_line(Parsed(tree_of(tmp_path, forms=f"def shown(self, share):\n    {body}\n")), line) == []


WALKED = """
class Runner:
    limit: int = 3

    def __init__(self, args, size):
        self.size = size
        self.args = args

    def total(self):
        return self.size * 2

    def tell(self):
        given = count(self.size, scale=4)
        first, (second) = pair(self)
        log(f"told {given} then {second} then {self.total()} then {other.far}")


def count(number, scale=1):
    return number * scale


def pair(runner):
    return (runner.limit, runner.size)


def make():
    return Runner(None, size=4096)
"""


def expressions(tree, name):
    parsed = Parsed(tree)
    scope = find(parsed.root("srt/walked.py"), "Runner.tell")
    node = next(node for node in of_types(scope, ("identifier", "call", "attribute")) if text(node) == name and in_text(node))
    return [origin.expression for origin in Walker(parsed).origins("srt/walked.py", node)]


def in_text(node):
    return node.parent.type == "interpolation"


def test_a_value_is_walked_back_through_the_function_that_gives_it_and_what_that_was_given(tmp_path):
    told = expressions(tree_of(tmp_path, walked=WALKED), "given")
    assert told[:2] == ["given = count(self.size, scale=4)", "return number * scale"]
    assert "self.size = size" in told


def test_an_element_of_several_is_walked_back_alone(tmp_path):
    told = expressions(tree_of(tmp_path, walked=WALKED), "second")
    assert told[0] == "first, (second) = pair(self)"
    assert "return (runner.limit, runner.size)" in told


def test_an_attribute_of_another_object_is_looked_for_over_the_tree(tmp_path):
    far = "class Other:\n    def __init__(self):\n        self.far = measured()\n"
    tree = tree_of(tmp_path, walked=WALKED, far=far)
    assert expressions(tree, "other.far") == ["self.far = measured()"]
    assert expressions(tree, "self.total()")[0] == "return self.size * 2"


def test_an_empty_line_is_refused_with_what_to_give(kvdiag, tmp_path):
    tree_of(tmp_path, walked=WALKED)
    done = kvdiag("source", str(tmp_path), "--line", "  ")
    assert done.returncode == 2
    assert "the text is empty" in done.stderr


def test_only_so_many_values_of_a_line_are_bound(tmp_path):
    told = " ".join(f"v{index}={{v{index}}}" for index in range(30))
    tree = tree_of(tmp_path, walked=f'def shown():\n    log(f"{told}")\n')
    answer = line_answer(tree, " ".join(f"v{index}={index}" for index in range(30)))
    assert [item["value"] for item in answer["bindings"]] == [str(index) for index in range(16)]
