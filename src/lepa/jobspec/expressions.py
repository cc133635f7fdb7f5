"""Pure: what an expression comes to in a scope.

References that the file does not define (`${NOMAD_PORT_http}`, `${attr.kernel.name}`, `${meta.rack}`, ...) are left as
the text `${...}`, for the node to fill in when the task starts. All work is counted against a budget, so that no file,
however its locals and loops feed on each other, can keep a server busy or fill its memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lepa.jobspec import values
from lepa.jobspec.diagnostics import Refusal
from lepa.jobspec.syntax import (
    Access,
    Binary,
    Call,
    Conditional,
    Expression,
    For,
    GetAttribute,
    GetIndex,
    Literal,
    ObjectOf,
    Part,
    Splat,
    Step,
    Template,
    TemplateFor,
    TemplateIf,
    Traversal,
    TupleOf,
    Unary,
)
from lepa.jobspec.values import Conversion, HclSet, kind_of

STEPS_MAX = 500_000
"""Expressions evaluated for one file; a large real file needs a few thousand."""

TEXT_SIZE_MAX = 8 * 1024 * 1024
"""Characters of one text value."""


class Unresolved(Refusal):
    """The value is not known: not yet, or never because of an error that was reported elsewhere."""


UNKNOWN = object()
"""Stands in a scope for a variable or local whose value is not known; whoever uses it is Unresolved."""


class Budget:
    """How much work is left for one file."""

    __slots__ = ("steps",)

    def __init__(self, steps: int = STEPS_MAX) -> None:
        self.steps = steps

    def spend(self, expression: Expression, steps: int = 1) -> None:
        """Take some away; refuse when nothing is left."""
        self.steps -= steps
        if self.steps < 0:
            detail = f"The file takes more than {STEPS_MAX} steps to work out. Do its loops feed on each other?"
            raise Refusal(expression.start, expression.end, "Too much work", detail)

    def spend_value(self, expression: Expression, value: Any) -> None:
        """Take away what a new value costs in memory; refuse one that is too large."""
        if isinstance(value, str) and len(value) > TEXT_SIZE_MAX:
            raise refusal(expression, "Text too long", f"The text has more than {TEXT_SIZE_MAX} characters.")
        if isinstance(value, str | list | dict):
            try:
                self.spend(expression, values.measure(value))
            except Conversion as problem:
                raise refusal(expression, "Value too large", f"It cannot be used: {problem}.") from None


Function = Callable[["Scope", Call], Any]
"""A function gets its call unevaluated, because `try`, `can` and `convert` look at it."""


class Scope:
    """What names mean where an expression stands.

    text: the source of the expressions, from which unknown references are copied. names: values by root name; `var` and
    `local` are dicts. functions: what can be called. closed: unknown references are errors, not left as text.
    """

    __slots__ = ("budget", "closed", "functions", "names", "text")

    def __init__(
        self,
        text: str,
        names: Mapping[str, Any],
        functions: Mapping[str, Function],
        budget: Budget,
        *,
        closed: bool = False,
    ) -> None:
        self.text = text
        self.names = names
        self.functions = functions
        self.budget = budget
        self.closed = closed

    def child(self, names: Mapping[str, Any]) -> Scope:
        """The same scope with more names."""
        return Scope(self.text, {**self.names, **names}, self.functions, self.budget, closed=self.closed)

    def constants(self, text: str, names: Mapping[str, Any] | None = None) -> Scope:
        """A closed scope for another text, with names of its own, the same functions and the same budget."""
        return Scope(text, names or {}, self.functions, self.budget, closed=True)


def evaluate(expression: Expression, scope: Scope) -> Any:
    """The value of an expression; raises Refusal at the part that has none."""
    if type(expression) is Literal:
        return expression.value
    scope.budget.spend(expression)
    return _EVALUATORS[type(expression)](expression, scope)


def refusal(expression: Expression, summary: str, detail: str) -> Refusal:
    """A refusal of that expression."""
    return Refusal(expression.start, expression.end, summary, detail)


# References and steps


def _traversal(node: Traversal, scope: Scope) -> Any:
    if node.root not in scope.names:
        if scope.closed:
            detail = f'"{node.root}" means nothing here. A text needs quotes.'
            raise refusal(node, "Variables not allowed", detail)
        if _forgot_quotes(node, scope.text):
            detail = f'There is no variable named "{node.root}". Did you mean the text "{node.root}", in quotes?'
            raise refusal(node, "Unknown variable", detail)
        return "${" + scope.text[node.start : node.end] + "}"
    value = scope.names[node.root]
    if node.root in ("var", "local") and node.steps:
        value = _named(node, value)
        steps = node.steps[1:]
    else:
        steps = node.steps
    for key in steps:
        value = _member(node, value, key)
    return value


def _forgot_quotes(node: Traversal, text: str) -> bool:
    """Is it a lone word, such as `driver = docker`? What is known only at run time has steps (`attr.kernel.name`), is a
    variable of the environment (`NOMAD_PORT_http`), or stands inside of a text ("${word}")."""
    alone = not node.steps and node.root != node.root.upper() and not node.root.startswith("NOMAD_")
    return alone and text[: node.start].rstrip().endswith(("=", "[", ","))


def _named(node: Traversal, values_by_name: dict[str, Any]) -> Any:
    """The value of `var.name` or `local.name`."""
    name = str(node.steps[0])
    if name not in values_by_name:
        if node.root == "var":
            detail = f'An input variable named "{name}" has not been declared. Declare it: variable "{name}" {{}}'
            raise refusal(node, "Undeclared variable", detail)
        raise refusal(node, "Undeclared local value", f'A local value named "{name}" has not been declared.')
    value = values_by_name[name]
    if value is UNKNOWN:
        what = "variable" if node.root == "var" else "local value"
        raise Unresolved(node.start, node.end, f"Unknown {what}", f'The {what} "{name}" has no value.')
    return value


def _member(node: Expression, value: Any, key: Any) -> Any:
    """One step into a value: by name into an object, by number into a list."""
    if isinstance(value, dict):
        name = _key_text(node, key)
        if name not in value:
            raise refusal(node, "Unsupported attribute", f'This object does not have an attribute named "{name}".')
        return value[name]
    if isinstance(value, list) and not isinstance(value, HclSet):
        return _element(node, value, key)
    if value is None:
        raise refusal(node, "Attempt to get attribute from null value", "This value is null, so it has no attributes.")
    detail = f"This value is a {kind_of(value)}, which has no elements or attributes."
    if isinstance(value, str) and value.startswith("${"):
        detail = f"{values.quoted(value)} is known only when the task starts, so a part of it cannot be taken here."
    raise refusal(node, "Invalid index", detail)


def _key_text(node: Expression, key: Any) -> str:
    try:
        return values.to_text(key)
    except Conversion as problem:
        raise refusal(node, "Invalid index", f"The key does not name an attribute: {problem}.") from None


def _element(node: Expression, items: list[Any], key: Any) -> Any:
    try:
        index = values.to_whole(key)
    except Conversion:
        detail = f"A list is indexed by number, but the key is {values.quoted(str(key))}."
        raise refusal(node, "Invalid index", detail) from None
    if not 0 <= index < len(items):
        detail = f"The list has {len(items)} elements, so there is none with the index {index}."
        raise refusal(node, "Invalid index", detail)
    return items[index]


def _access(node: Access, scope: Scope) -> Any:
    return _steps(node, evaluate(node.base, scope), node.steps, scope)


def _steps(node: Access, value: Any, steps: tuple[Step, ...], scope: Scope) -> Any:
    for step in steps:
        if isinstance(step, GetAttribute):
            value = _member(node, value, step.key)
        elif isinstance(step, GetIndex):
            value = _member(step.key, value, evaluate(step.key, scope))
        else:
            value = _splat(node, value, step, scope)
    return value


def _splat(node: Access, value: Any, splat: Splat, scope: Scope) -> list[Any]:
    if value is None:
        return []
    elements = value if isinstance(value, list) else [value]
    scope.budget.spend(node, len(elements))
    return [_steps(node, each, splat.steps, scope) for each in elements]


# Operators


def _unary(node: Unary, scope: Scope) -> Any:
    value = evaluate(node.operand, scope)
    try:
        return not values.to_bool(value) if node.operator == "!" else -values.to_number(value)
    except Conversion as problem:
        raise refusal(node.operand, "Invalid operand", f"Unsuitable value for unary operand: {problem}.") from None


def _binary(node: Binary, scope: Scope) -> Any:
    """A chain such as `a + b + c` is walked down its left side, not by recursion: it may be long."""
    chain: list[Binary] = []
    left: Expression = node
    while isinstance(left, Binary):
        chain.append(left)
        left = left.left
    scope.budget.spend(node, len(chain))
    value = evaluate(left, scope)
    for each in reversed(chain):
        value = _apply(each, value, scope)
    return value


def _apply(node: Binary, left: Any, scope: Scope) -> Any:
    operator = node.operator
    try:
        if operator in ("&&", "||"):
            decided = values.to_bool(left)
            if decided == (operator == "||"):
                return decided
            return values.to_bool(evaluate(node.right, scope))
        right = evaluate(node.right, scope)
        if operator == "==":
            return values.equal(left, right)
        if operator == "!=":
            return not values.equal(left, right)
        return _ARITHMETIC[operator](values.to_number(left), values.to_number(right))
    except Conversion as problem:
        raise refusal(node, "Invalid operand", f'Unsuitable value for "{operator}": {problem}.') from None
    except (ZeroDivisionError, OverflowError):
        detail = "Division by zero." if operator in ("/", "%") else "The result is too large."
        raise refusal(node, "Invalid operation", detail) from None


def _divide(left: int | float, right: int | float) -> int | float:
    if isinstance(left, int) and isinstance(right, int) and left % right == 0:
        return left // right
    return values.number(left / right)


def _remainder(left: int | float, right: int | float) -> int | float:
    """The remainder with the sign of the left side, as in Go."""
    if isinstance(left, int) and isinstance(right, int):
        rest = abs(left) % abs(right)
        return -rest if left < 0 else rest
    return values.number(left - right * int(left / right))


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda left, right: values.number(left + right),
    "-": lambda left, right: values.number(left - right),
    "*": lambda left, right: values.number(left * right),
    "/": _divide,
    "%": _remainder,
    "<": lambda left, right: left < right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    ">=": lambda left, right: left >= right,
}


def _conditional(node: Conditional, scope: Scope) -> Any:
    return evaluate(node.when_true if _condition(node.condition, scope) else node.when_false, scope)


def _condition(node: Expression, scope: Scope) -> bool:
    value = evaluate(node, scope)
    try:
        return values.to_bool(value)
    except Conversion as problem:
        raise refusal(node, "Incorrect condition type", f"The condition must be true or false: {problem}.") from None


# Collections


def _tuple_of(node: TupleOf, scope: Scope) -> list[Any]:
    return [evaluate(item, scope) for item in node.items]


def _object_of(node: ObjectOf, scope: Scope) -> dict[str, Any]:
    return {object_key(key, scope): evaluate(value, scope) for key, value in node.items}


def object_key(node: Expression, scope: Scope) -> str:
    """The text of an object's key."""
    key = evaluate(node, scope)
    if key is None:
        raise refusal(node, "Null value as key", "A null value cannot be the key of an object.")
    try:
        return values.to_text(key)
    except Conversion as problem:
        raise refusal(node, "Incorrect key type", f"A key must be a text: {problem}.") from None


def elements(node: Expression, collection: Any) -> Iterator[tuple[Any, Any]]:
    """(key, value) of each element of a collection: index, name, or in a set the element itself."""
    if isinstance(collection, dict):
        return ((key, collection[key]) for key in sorted(collection))
    if isinstance(collection, HclSet):
        return ((value, value) for value in collection)
    if isinstance(collection, list):
        return iter(enumerate(collection))
    detail = f"A list, set or map is needed here, not a {kind_of(collection)}."
    raise refusal(node, "Iteration over non-iterable value", detail)


def _for(node: For, scope: Scope) -> Any:
    items: list[Any] = []
    members: dict[str, Any] = {}
    for key, value in elements(node.collection, evaluate(node.collection, scope)):
        inner = scope.child({node.value_name: value, **({node.key_name: key} if node.key_name else {})})
        scope.budget.spend(node)
        if node.condition is not None and not _condition(node.condition, inner):
            continue
        result = evaluate(node.value, inner)
        if node.key is None:
            items.append(result)
            continue
        name = object_key(node.key, inner)
        if node.grouped:
            members.setdefault(name, []).append(result)
        elif name in members:
            detail = f'Two values have the key "{name}". Add ... after the value to gather them in a list.'
            raise refusal(node.key, "Duplicate object key", detail)
        else:
            members[name] = result
    return items if node.key is None else members


# Templates


def _template(node: Template, scope: Scope) -> str:
    text = _Text(node, scope)
    text.add_parts(node.parts, scope)
    return "".join(text.words)


class _Text:
    """A text that grows, within bounds."""

    def __init__(self, node: Template, scope: Scope) -> None:
        self.node = node
        self.budget = scope.budget
        self.words: list[str] = []
        self.size = 0

    def add_parts(self, parts: tuple[Part, ...], scope: Scope) -> None:
        for part in parts:
            if isinstance(part, str):
                self.add(part)
            elif isinstance(part, TemplateIf):
                self.add_parts(part.when_true if _condition(part.condition, scope) else part.when_false, scope)
            elif isinstance(part, TemplateFor):
                for key, value in elements(part.collection, evaluate(part.collection, scope)):
                    names = {part.value_name: value, **({part.key_name: key} if part.key_name else {})}
                    self.budget.spend(self.node)
                    self.add_parts(part.body, scope.child(names))
            else:
                self.add(_interpolated(part, scope))

    def add(self, text: str) -> None:
        self.words.append(text)
        self.size += len(text)
        self.budget.spend(self.node, 1 + len(text) // values.TEXT_PER_NODE)
        if self.size > TEXT_SIZE_MAX:
            raise refusal(self.node, "Text too long", f"The text has more than {TEXT_SIZE_MAX} characters.")


def _interpolated(node: Expression, scope: Scope) -> str:
    value = evaluate(node, scope)
    if value is None:
        raise refusal(node, "Invalid template interpolation value", "The value is null, which is no text.")
    try:
        return values.to_text(value)
    except Conversion as problem:
        raise refusal(node, "Invalid template interpolation value", f"Cannot be put into a text: {problem}.") from None


# Calls


def _call(node: Call, scope: Scope) -> Any:
    function = scope.functions.get(node.name)
    if function is None:
        raise refusal(node, "Call to unknown function", f'There is no function named "{node.name}".')
    return function(scope, node)


_EVALUATORS: dict[type[Expression], Callable[[Any, Scope], Any]] = {
    Traversal: _traversal,
    Access: _access,
    Call: _call,
    Unary: _unary,
    Binary: _binary,
    Conditional: _conditional,
    TupleOf: _tuple_of,
    ObjectOf: _object_of,
    For: _for,
    Template: _template,
}
