"""The source's own arithmetic with known values put in: an interpreter of sums over the syntax tree, nothing is executed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from kvdiag.frozen import frozen
from kvdiag.quantity import Interval
from kvdiag.source.syntax import one_line, required, text

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 60
_LARGEST_SHIFT = 128


@frozen
class Unknown:
    """A value that cannot be worked out, and why."""

    why: str


Value = Interval | bool | str | None | Unknown
Known = Mapping[str, Interval | bool | str | None]
"""Names to values: ``x`` for a variable or an attribute of that name, ``f()`` for what a call of ``f`` gives."""


Called = Callable[["Node", "Evaluator"], "Value"]
"""What a call of a function of the tree gives."""


def exactly(number: int | Fraction) -> Interval:
    """The interval of one number, without a unit."""
    return Interval(Fraction(number), Fraction(number), "")


class Evaluator:
    """Works out expressions; `local` holds what statements before have assigned and goes before `known`."""

    def __init__(self, known: Known, called: Called | None = None) -> None:
        self.known = known
        self.called = called
        self.local: dict[str, Value] = {}

    def value(self, node: Node, depth: int = 0) -> Value:
        """The value of an expression; `Unknown` with the reason where a part of it is not known."""
        reader = _READERS.get(node.type)
        if reader is None or depth > _DEEPEST:
            return Unknown(f"{one_line(node)[:80]} is not arithmetic")
        return reader(self, node, depth + 1)

    def truth(self, node: Node, depth: int = 0) -> bool | None:
        """Whether a condition holds; None where that is not known."""
        return _truth(self.value(node, depth))

    def named(self, written: str) -> Value:
        """The value of a variable or attribute by its whole text, else by its last part."""
        last = written.rpartition(".")[2]
        for table in (self.local, self.known):
            for name in (written, last):
                if name in table and not (isinstance(table[name], Unknown) and name in self.known):
                    return table[name]
        return Unknown(f"{written} is not known")


def _truth(value: Value) -> bool | None:
    if isinstance(value, Unknown):
        return None
    if isinstance(value, Interval):
        if value.low == value.high == 0:
            return False
        return None if value.low <= 0 <= value.high else True
    return bool(value)


def _number(evaluator: Evaluator, node: Node, depth: int) -> Value:
    del evaluator, depth
    try:
        written = text(node).replace("_", "")
        return exactly(int(written, 0)) if node.type == "integer" else exactly(Fraction(written))
    except ValueError:
        return Unknown(f"{text(node)[:40]} is not a plain number")


def _name(evaluator: Evaluator, node: Node, depth: int) -> Value:
    del depth
    return evaluator.named(text(node))


def _constant(evaluator: Evaluator, node: Node, depth: int) -> Value:
    del evaluator, depth
    return {"true": True, "false": False}.get(node.type)


def _text(evaluator: Evaluator, node: Node, depth: int) -> Value:
    del evaluator, depth
    return text(node).strip("\"'")


def _inner(evaluator: Evaluator, node: Node, depth: int) -> Value:
    inner = [child for child in node.named_children if child.type != "comment"]
    return evaluator.value(inner[0], depth) if len(inner) == 1 else Unknown(f"{one_line(node)[:80]} is not arithmetic")


def _unary(evaluator: Evaluator, node: Node, depth: int) -> Value:
    value = evaluator.value(required(node, "argument"), depth)
    return -value if isinstance(value, Interval) and text(node).startswith("-") else value


def _binary(evaluator: Evaluator, node: Node, depth: int) -> Value:
    first, second = evaluator.value(required(node, "left"), depth), evaluator.value(required(node, "right"), depth)
    for value in (first, second):
        if isinstance(value, Unknown):
            return value
    if not isinstance(first, Interval) or not isinstance(second, Interval):
        return Unknown(f"{one_line(node)[:80]} is not of numbers")
    operator = OPERATORS.get(text(node.child_by_field_name("operator")))
    try:
        return operator(first, second) if operator else Unknown(f"{one_line(node)[:80]} is not arithmetic")
    except (ZeroDivisionError, ValueError, OverflowError) as error:
        return Unknown(f"{one_line(node)[:80]}: {error}")


def _shift(first: Interval, second: Interval) -> Interval:
    if not second.is_exact or not 0 <= second.low <= _LARGEST_SHIFT or second.low.denominator != 1:
        raise ValueError("a shift by no small whole number")
    return first * Fraction(2 ** int(second.low))


def _power(first: Interval, second: Interval) -> Interval:
    if not (first.is_exact and second.is_exact and second.low.denominator == 1 and 0 <= second.low <= _LARGEST_SHIFT):
        raise ValueError("a power of no small whole number")
    return exactly(first.low ** int(second.low))


def _remainder(first: Interval, second: Interval) -> Interval:
    if not (first.is_exact and second.is_exact) or second.low == 0:
        raise ValueError("a remainder of what is not exact")
    return exactly(first.low % second.low)


OPERATORS: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "<<": _shift,
    "**": _power,
    "%": _remainder,
}


def _conditional(evaluator: Evaluator, node: Node, depth: int) -> Value:
    parts = [child for child in node.named_children if child.type != "comment"]
    if len(parts) != 3:
        return Unknown("half a condition")
    holds = evaluator.truth(parts[1], depth)
    if holds is None:
        return Unknown(f"whether {one_line(parts[1])[:80]} is not known")
    return evaluator.value(parts[0] if holds else parts[2], depth)


def _boolean(evaluator: Evaluator, node: Node, depth: int) -> Value:
    is_or = text(required(node, "operator")) == "or"
    first = evaluator.value(required(node, "left"), depth)
    holds = _truth(first)
    if holds is is_or:
        return first
    second = evaluator.value(required(node, "right"), depth)
    if holds is not None:
        return second
    # What is not known on the left does not matter where the right side alone decides.
    return second if _truth(second) is is_or and not isinstance(second, Interval) else first


def _not(evaluator: Evaluator, node: Node, depth: int) -> Value:
    argument = required(node, "argument")
    holds = evaluator.truth(argument, depth)
    return Unknown(f"whether {one_line(argument)[:80]} is not known") if holds is None else not holds


def _comparison(evaluator: Evaluator, node: Node, depth: int) -> Value:
    parts = node.named_children
    signs = [text(child) for child in node.children if not child.is_named]
    if len(parts) != 2:
        return Unknown(f"{one_line(node)[:80]} is a chain")
    first, second = (evaluator.value(part, depth) for part in parts)
    sign = " ".join(signs)
    if isinstance(first, Unknown) or isinstance(second, Unknown):
        return first if isinstance(first, Unknown) else second
    if sign in ("is", "is not", "==", "!=") and not (isinstance(first, Interval) and isinstance(second, Interval)):
        same = first is second or (first == second and not isinstance(first, bool) and not isinstance(second, bool))
        return same if sign in ("is", "==") else not same
    if isinstance(first, Interval) and isinstance(second, Interval):
        found = _compared(sign, first, second)
        if found is not None:
            return found
    return Unknown(f"whether {one_line(node)[:80]} is not known")


def _compared(sign: str, first: Interval, second: Interval) -> bool | None:
    if sign in (">", ">="):
        return _compared({">": "<", ">=": "<="}[sign], second, first)
    if sign == "<":
        return True if first.high < second.low else False if first.low >= second.high else None
    if sign == "<=":
        return True if first.high <= second.low else False if first.low > second.high else None
    if sign in ("==", "!=") and first.is_exact and second.is_exact:
        return (first.low == second.low) is (sign == "==")
    return None


def _call(evaluator: Evaluator, node: Node, depth: int) -> Value:
    function, arguments = required(node, "function"), required(node, "arguments")
    name = text(function).rpartition(".")[2]
    for told in (f"{text(function)}()", f"{name}()"):
        if told in evaluator.known:
            return evaluator.known[told]
    if function.type != "identifier" or name not in _BUILTINS:
        found = evaluator.called(node, evaluator) if evaluator.called else None
        return found if found is not None else Unknown(f"what {one_line(node)[:80]} gives is not known")
    values = [evaluator.value(child, depth) for child in arguments.named_children if child.type != "comment"]
    unknown = next((value for value in values if isinstance(value, Unknown)), None)
    numbers = [value for value in values if isinstance(value, Interval)]
    if unknown is not None or len(numbers) != len(values) or not numbers:
        return unknown or Unknown(f"{one_line(node)[:80]} is not of numbers")
    return _BUILTINS[name](numbers)


def _whole(numbers: list[Interval]) -> Interval:
    (number,) = numbers[:1]
    return Interval(Fraction(int(number.low)), Fraction(int(number.high)), "")


def _least(numbers: list[Interval]) -> Interval:
    return Interval(min(n.low for n in numbers), min(n.high for n in numbers), "")


def _most(numbers: list[Interval]) -> Interval:
    return Interval(max(n.low for n in numbers), max(n.high for n in numbers), "")


def _absolute(numbers: list[Interval]) -> Interval:
    (number,) = numbers[:1]
    low = Fraction(0) if number.low <= 0 <= number.high else min(abs(number.low), abs(number.high))
    return Interval(low, max(abs(number.low), abs(number.high)), "")


_BUILTINS: dict[str, Callable[[list[Interval]], Interval]] = {
    "int": _whole,
    "float": lambda numbers: numbers[0],
    "min": _least,
    "max": _most,
    "abs": _absolute,
}


def _walrus(evaluator: Evaluator, node: Node, depth: int) -> Value:
    value = evaluator.value(required(node, "value"), depth)
    evaluator.local[text(required(node, "name"))] = value
    return value


_READERS: dict[str, Callable[[Evaluator, Node, int], Value]] = {
    "integer": _number,
    "float": _number,
    "identifier": _name,
    "attribute": _name,
    "true": _constant,
    "false": _constant,
    "none": _constant,
    "string": _text,
    "parenthesized_expression": _inner,
    "unary_operator": _unary,
    "binary_operator": _binary,
    "conditional_expression": _conditional,
    "boolean_operator": _boolean,
    "not_operator": _not,
    "comparison_operator": _comparison,
    "call": _call,
    "named_expression": _walrus,
}
