"""Following a function's statements with known values: what each assignment gives, where conditions can be decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvdiag.frozen import field, mutable
from kvdiag.quantity import Interval
from kvdiag.source.calls import called_function
from kvdiag.source.evaluate import OPERATORS, Evaluator, Known, Unknown, Value
from kvdiag.source.parsed import Parsed
from kvdiag.source.syntax import line, of_types, one_line, required, text

if TYPE_CHECKING:
    from tree_sitter import Node

_DEEPEST = 3
_ENDS = ("return_statement", "raise_statement", "break_statement", "continue_statement")


@mutable
class Followed:
    """What was found out: `local` the variables at the end, `at` the value each assignment or return gave, by its line."""

    local: dict[str, Value] = field(default_factory=dict)
    at: dict[int, Value] = field(default_factory=dict)
    returned: Value = field(default_factory=lambda: Unknown("no return was reached"))


def follow(function: Node, known: Known, depth: int = 0, parsed: Parsed | None = None) -> Followed:
    """Follows the statements of `function` from its beginning, with `known` for all that comes from outside.

    Calls are followed too, to a depth of `_DEEPEST`: into functions of the same file, with `parsed` into other files.
    """
    follower = _Follower(known, depth, parsed)
    follower.block(required(function, "body").children)
    follower.found.local = dict(follower.evaluator.local)
    return follower.found


def _called(call: Node, evaluator: Evaluator, depth: int, parsed: Parsed | None) -> Value:
    """What a call gives by following the one function of the file that has its name, with its arguments."""
    owner = text(call.child_by_field_name("function")).rpartition(".")[0]
    function = called_function(call, parsed) if depth < _DEEPEST else None
    if function is None or function.type != "function_definition":
        return Unknown(f"what {one_line(call)[:80]} gives is not known")
    parameters = [node for node in required(function, "parameters").named_children if node.type != "comment"]
    every = [text(next(of_types(node, ("identifier",)), None)) for node in parameters]
    defaults = ((name, node.child_by_field_name("value")) for name, node in zip(every, parameters, strict=True))
    given = {name: evaluator.value(value) for name, value in defaults if value is not None}
    names = every[1:] if owner and every[:1] in (["self"], ["cls"]) else every
    for index, node in enumerate(node for node in required(call, "arguments").named_children if node.type != "comment"):
        if node.type == "keyword_argument":
            given[text(required(node, "name"))] = evaluator.value(required(node, "value"))
        elif index < len(names):
            given[names[index]] = evaluator.value(node)
    # A parameter that is not known must not be taken for the number of the same name outside.
    known = {name: value for name, value in evaluator.known.items() if name not in every}
    known |= {name: value for name, value in given.items() if not isinstance(value, Unknown)}
    return follow(function, known, depth + 1, parsed).returned


class _Follower:
    def __init__(self, known: Known, depth: int, parsed: Parsed | None) -> None:
        self.evaluator = Evaluator(known, lambda call, evaluator: _called(call, evaluator, depth, parsed))
        self.found = Followed()
        self.certain = True
        self.left = False  # whether a return may have run before

    def block(self, statements: list[Node]) -> bool:
        """Follows a block; True where it was left by a return or a raise."""
        return any(self.statement(statement) for statement in statements)

    def statement(self, statement: Node) -> bool:
        if statement.type == "expression_statement":
            self.simple(statement.named_children[0] if statement.named_child_count else statement)
        elif statement.type == "if_statement":
            return self.branches(statement)
        elif statement.type in ("with_statement", "try_statement"):
            return self.block(required(statement, "body").children)
        elif statement.type in ("for_statement", "while_statement", "match_statement"):
            self.forget(statement, "is assigned in a loop or match")
            self.left = self.left or any(True for _ in of_types(statement, ("return_statement",)))
        elif statement.type == "return_statement":
            self.returns(statement)
        return statement.type in _ENDS

    def returns(self, statement: Node) -> None:
        value: Value = None
        if statement.named_child_count:
            value = self.evaluator.value(statement.named_children[0])
        self.record(statement, value)
        self.left = self.left or not self.certain
        self.found.returned = Unknown("it depends on conditions that are not known") if self.left else value

    def simple(self, node: Node) -> None:
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        if left is None or right is None or node.type not in ("assignment", "augmented_assignment"):
            return
        if left.type not in ("identifier", "attribute"):
            self.forget(node, "is one of several values given at once")
            return
        name, last = text(left), text(left).rpartition(".")[2]
        if node.type == "augmented_assignment":
            value = self.augmented(left, text(required(node, "operator")), self.evaluator.value(right))
        elif right.type == "call" and last in self.evaluator.known:
            # What was measured: the log tells it of this name, not of every call that measures.
            value = self.evaluator.known[last]
        else:
            value = self.evaluator.value(right)
        self.record(node, value)
        if isinstance(value, Unknown) and node.type == "assignment" and last in self.evaluator.known:
            value = self.evaluator.known[last]
        self.evaluator.local[name] = value

    def record(self, node: Node, value: Value) -> None:
        """Keeps what a statement gave, where it certainly runs and is more than a constant."""
        if self.certain and any(True for _ in of_types(node, ("binary_operator", "attribute", "call", "augmented_assignment"))):
            self.found.at[line(node)] = value

    def augmented(self, left: Node, operator: str, value: Value) -> Value:
        before = self.evaluator.named(text(left))
        if isinstance(before, Interval) and isinstance(value, Interval) and operator[:-1] in OPERATORS:
            try:
                return OPERATORS[operator[:-1]](before, value)
            except (ZeroDivisionError, ValueError, OverflowError) as error:
                return Unknown(f"{text(left)}: {error}")
        return value if isinstance(value, Unknown) else Unknown(f"{text(left)} before it is not known")

    def branches(self, statement: Node) -> bool:
        tests: list[tuple[Node | None, Node]] = [(required(statement, "condition"), required(statement, "consequence"))]
        for other in statement.children_by_field_name("alternative"):
            test = other.child_by_field_name("condition")
            tests.append((test, required(other, "body" if test is None else "consequence")))
        for index, (test, body) in enumerate(tests):
            holds = self.evaluator.truth(test) if test is not None else True
            if holds is None:
                return self.undecided(statement, one_line(test), [body for _, body in tests[index:]])
            if holds:
                return self.block(body.children)
        return False

    def undecided(self, statement: Node, condition: str, bodies: list[Node]) -> bool:
        """Follows every branch apart; what they leave different is not known afterwards."""
        before, certain = dict(self.evaluator.local), self.certain
        outcomes = [] if statement.children[-1].type == "else_clause" else [before]
        self.certain = False
        for body in bodies:
            self.evaluator.local = dict(before)
            if not self.block(body.children):
                outcomes.append(dict(self.evaluator.local))
        self.evaluator.local = _common(outcomes or [before], condition)
        self.certain = certain
        return not outcomes

    def forget(self, node: Node, why: str) -> None:
        for assignment in of_types(node, ("assignment", "augmented_assignment")):
            for target in of_types(required(assignment, "left"), ("identifier",)):
                self.evaluator.local[text(target)] = Unknown(f"{text(target)} {why}")


def _common(outcomes: list[dict[str, Value]], condition: str) -> dict[str, Value]:
    names = {name for outcome in outcomes for name in outcome}
    missing = object()
    merged: dict[str, Value] = {}
    for name in names:
        values = [outcome.get(name, missing) for outcome in outcomes]
        first = outcomes[0].get(name)
        same = all(value is not missing and value == values[0] for value in values)
        merged[name] = first if same else Unknown(f"{name} depends on whether {condition[:80]}")
    return merged
