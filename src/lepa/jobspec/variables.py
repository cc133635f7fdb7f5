"""Pure: input variables and local values.

Where a variable's value comes from, the later winning: its default, the environment (NOMAD_VAR_name, then
LEPA_VAR_name), variable files in their order, and -var flags. A value from the environment or a flag is a text for a
variable of type string and an expression for every other type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from lepa.jobspec import hcl, json_text, values
from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.expressions import UNKNOWN, Scope, Unresolved, evaluate, refusal
from lepa.jobspec.syntax import Attribute, Block, Body, Call, Expression, Literal, ObjectOf, Traversal, TupleOf
from lepa.jobspec.values import ANY, BOOL, NUMBER, STRING, Conversion, Type

_ENVIRONMENT_PREFIXES = ("NOMAD_VAR_", "LEPA_VAR_")

_BEGINNINGS_OF_VALUES = ("[", "{", '"')
"""How a text for a variable of any type begins when it is meant as an expression."""

_HOW_TO_SET = "Set it with -var, with -var-file, in the environment (NOMAD_VAR_{name}), or give it a default."


class Declaration(Struct):
    """A declared variable; start and end point at its name."""

    name: str
    type: Type
    default: Any
    has_default: bool
    validations: tuple[Block, ...]
    start: int
    end: int


class Given(Struct):
    """Where values for variables come from, other than their defaults.

    flags: -var, by name. files: (name, text) of variable files. strict: a name that is not declared is an error.
    """

    flags: Mapping[str, str]
    files: Sequence[tuple[str, str]]
    environment: Mapping[str, str]
    strict: bool


def declarations(blocks: Sequence[Block], report: Reporter, scope: Scope) -> dict[str, Declaration]:
    """What the `variable` and `variables` blocks of a file declare."""
    declared: dict[str, Declaration] = {}
    for block in blocks:
        for declaration in _declared(block, report, scope.constants(scope.text)):
            if declaration.name in declared:
                detail = f'The variable "{declaration.name}" was already declared.'
                report.error(declaration.start, declaration.end, "Duplicate variable", detail)
            declared[declaration.name] = declaration
    return declared


def _declared(block: Block, report: Reporter, scope: Scope) -> list[Declaration]:
    if block.type == "variables":
        for inner in block.body.blocks:
            report.error(inner.start, inner.end, "Unsupported block type", "Only defaults are expected in variables.")
        return [_with_default(attribute, report, scope) for attribute in block.body.attributes.values()]
    if len(block.labels) != 1:
        detail = 'All variable blocks must have 1 label (name): variable "name" { ... }.'
        report.error(block.start, block.end, "Missing name for variable", detail)
        return []
    return [_declaration(block, report, scope)]


def _with_default(attribute: Attribute, report: Reporter, scope: Scope) -> Declaration:
    value = _evaluated(attribute.expression, report, scope)
    return Declaration(attribute.name, values.type_of(value), value, True, (), attribute.start, attribute.end)


def _declaration(block: Block, report: Reporter, scope: Scope) -> Declaration:
    label = block.labels[0]
    attributes = block.body.attributes
    for attribute in attributes.values():
        if attribute.name not in ("type", "default", "description", "sensitive"):
            detail = f'An argument named "{attribute.name}" is not expected in a variable.'
            report.error(attribute.start, attribute.end, "Unsupported argument", detail)
    for inner in block.body.blocks:
        if inner.type != "validation":
            detail = f'Blocks of type "{inner.type}" are not expected in a variable.'
            report.error(inner.start, inner.end, "Unsupported block type", detail)
    default = _evaluated(attributes["default"].expression, report, scope) if "default" in attributes else None
    kind = _declared_type(attributes, default, report)
    if default is not None and default is not UNKNOWN:
        default = _converted(default, kind, attributes["default"].expression, label.text, report)
    validations = tuple(inner for inner in block.body.blocks if inner.type == "validation")
    return Declaration(label.text, kind, default, "default" in attributes, validations, label.start, label.end)


def _declared_type(attributes: dict[str, Attribute], default: Any, report: Reporter) -> Type:
    if "type" not in attributes:
        return values.type_of(default) if default is not UNKNOWN else ANY
    try:
        return read_type(attributes["type"].expression)
    except Refusal as problem:
        report.refuse(problem)
        return ANY


def _evaluated(expression: Expression, report: Reporter, scope: Scope) -> Any:
    """The value, or UNKNOWN after a report."""
    try:
        value = evaluate(expression, scope)
        scope.budget.spend_value(expression, value)
    except Unresolved:
        return UNKNOWN
    except Refusal as problem:
        report.refuse(problem)
        return UNKNOWN
    return value


def _converted(value: Any, kind: Type, expression: Expression, name: str, report: Reporter) -> Any:
    try:
        return values.convert(value, kind)
    except Conversion as problem:
        detail = f'The value for the variable "{name}" is not of its type {kind}: {problem}.'
        report.error(expression.start, expression.end, "Invalid value for variable", detail)
        return UNKNOWN


# Types

_PRIMITIVES = {"string": STRING, "number": NUMBER, "bool": BOOL, "any": ANY}


def read_type(expression: Expression) -> Type:
    """The type that an expression such as `list(string)` names; raises Refusal."""
    if isinstance(expression, Literal) and isinstance(expression.value, str) and expression.value in _PRIMITIVES:
        return _PRIMITIVES[expression.value]
    if isinstance(expression, Traversal) and not expression.steps:
        if expression.root in _PRIMITIVES:
            return _PRIMITIVES[expression.root]
        if expression.root in ("list", "set", "map"):
            return Type(expression.root, ANY)
    if isinstance(expression, Call) and len(expression.arguments) == 1:
        return _constructed(expression, expression.arguments[0])
    detail = "A type is string, number, bool, any, list(T), set(T), map(T), object({name=T}) or tuple([T])."
    raise refusal(expression, "Invalid type specification", detail)


def _constructed(call: Call, argument: Expression) -> Type:
    if call.name in ("list", "set", "map"):
        return Type(call.name, read_type(argument))
    if call.name == "tuple" and isinstance(argument, TupleOf):
        return Type("tuple", members=tuple((str(i), read_type(item)) for i, item in enumerate(argument.items)))
    if call.name == "object" and isinstance(argument, ObjectOf):
        return _object_type(argument)
    detail = (
        f"{call.name}(...) is not a type. Types with an argument are list, set, map, object({{...}}), tuple([...])."
    )
    raise refusal(call, "Invalid type specification", detail)


def _object_type(argument: ObjectOf) -> Type:
    members: list[tuple[str, Type]] = []
    optional: set[str] = set()
    for key, expression in argument.items:
        if not isinstance(key, Literal):
            raise refusal(key, "Invalid type specification", "The names in an object type are constant.")
        name = str(key.value)
        if isinstance(expression, Call) and expression.name == "optional" and len(expression.arguments) == 1:
            optional.add(name)
            expression = expression.arguments[0]
        members.append((name, read_type(expression)))
    return Type("object", members=tuple(members), optional=frozenset(optional))


# Values


def variable_values(
    declared: Mapping[str, Declaration], given: Given, report: Reporter, scope: Scope
) -> dict[str, Any]:
    """The value of each declared variable; UNKNOWN, after a report, for one without a usable value."""
    found = {name: each.default for name, each in declared.items() if each.has_default}
    found.update(given_values(declared, given, report, scope))
    for name, declaration in declared.items():
        if name not in found:
            found[name] = UNKNOWN
            detail = "A variable must be set or have a default value. " + _HOW_TO_SET.format(name=name)
            report.error(declaration.start, declaration.end, f'Unset variable "{name}"', detail)
    _validate(declared, found, report, scope)
    return found


def given_values(declared: Mapping[str, Declaration], given: Given, report: Reporter, scope: Scope) -> dict[str, Any]:
    """The value of each declared variable that was given one; UNKNOWN, after a report, for what is none."""
    found = _from_environment(declared, given.environment, report, scope)
    for file, text in given.files:
        found.update(_from_file(declared, Source(file, text), given.strict, report, scope))
    return found | _from_flags(declared, given, report, scope)


def _from_environment(
    declared: Mapping[str, Declaration], environment: Mapping[str, str], report: Reporter, scope: Scope
) -> dict[str, Any]:
    """Names that are not declared are ignored: the environment serves many files."""
    found: dict[str, Any] = {}
    for prefix in _ENVIRONMENT_PREFIXES:
        for name, declaration in declared.items():
            if prefix + name in environment:
                found[name] = _from_text(declaration, environment[prefix + name], prefix + name, report, scope)
    return found


def _from_flags(declared: Mapping[str, Declaration], given: Given, report: Reporter, scope: Scope) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, text in given.flags.items():
        flag = Source(f"-var {name}", text)
        if name in declared:
            found[name] = _from_text(declared[name], text, flag.name, report, scope)
        elif given.strict:
            detail = f'A variable named "{name}" was given with -var, but the job file does not declare it.'
            report.beside(flag).general("Undefined -var variable", detail)
    return found


def _from_text(declaration: Declaration, text: str, origin: str, report: Reporter, scope: Scope) -> Any:
    """A value from a flag or the environment."""
    kind = declaration.type
    beside = report.beside(Source(origin, text))
    if kind == STRING or (kind == ANY and not text.lstrip().startswith(_BEGINNINGS_OF_VALUES)):
        return text
    if kind in (NUMBER, BOOL):
        return _converted(text, kind, Literal(0, len(text), text), declaration.name, beside)
    expression = hcl.parse_expression(beside)
    if expression is None:
        return UNKNOWN
    value = _evaluated(expression, beside, scope.constants(text))
    return value if value is UNKNOWN else _converted(value, kind, expression, declaration.name, beside)


def _from_file(
    declared: Mapping[str, Declaration], source: Source, strict: bool, report: Reporter, scope: Scope
) -> dict[str, Any]:
    beside = report.beside(source)
    if source.text.lstrip().startswith("{"):
        attributes = _json_attributes(beside)
    else:
        attributes = _hcl_attributes(beside)
    found: dict[str, Any] = {}
    for attribute in attributes.values():
        declaration = declared.get(attribute.name)
        if declaration is not None:
            value = _evaluated(attribute.expression, beside, scope.constants(source.text))
            if value is not UNKNOWN:
                value = _converted(value, declaration.type, attribute.expression, declaration.name, beside)
            found[attribute.name] = value
        elif strict:
            detail = f'A variable named "{attribute.name}" is set in this file, but the job file does not declare it.'
            beside.error(attribute.start, attribute.end, "Undefined variable", detail)
    return found


def _hcl_attributes(report: Reporter) -> dict[str, Attribute]:
    body: Body = hcl.parse_body(report)
    for block in body.blocks:
        detail = f'Only values (name = value) are expected in a variable file, not a block "{block.type}".'
        report.error(block.start, block.end, "Unexpected block", detail)
    return body.attributes


def _json_attributes(report: Reporter) -> dict[str, Attribute]:
    members = json_text.read_object(report, "A variable file in JSON") or {}
    return {name: _json_attribute(report.source.text, name, value) for name, value in members.items()}


def _json_attribute(text: str, name: str, value: Any) -> Attribute:
    start = max(text.find(json.dumps(name)), 0)
    end = start + len(name) + 2
    return Attribute(name, Literal(start, end, value), start, end)


def _validate(declared: Mapping[str, Declaration], found: dict[str, Any], report: Reporter, scope: Scope) -> None:
    inner = scope.child({"var": found})
    for name, declaration in declared.items():
        for block in declaration.validations if found[name] is not UNKNOWN else ():
            try:
                _check(declaration, block, inner)
            except Unresolved:
                continue
            except Refusal as problem:
                report.refuse(problem)


def _check(declaration: Declaration, block: Block, scope: Scope) -> None:
    attributes = block.body.attributes
    for needed in ("condition", "error_message"):
        if needed not in attributes:
            detail = f'The argument "{needed}" is required in validation, but no definition was found.'
            raise Refusal(block.start, block.end, "Missing required argument", detail)
    condition = attributes["condition"].expression
    try:
        holds = values.to_bool(evaluate(condition, scope))
        message = "" if holds else values.to_text(evaluate(attributes["error_message"].expression, scope))
    except Conversion as problem:
        raise refusal(condition, "Invalid validation", f"{problem}.") from None
    if not holds:
        detail = f'{message} (variable "{declaration.name}")'
        raise refusal(condition, "Invalid value for variable", detail)


# Local values


def local_values(blocks: Sequence[Block], report: Reporter, scope: Scope) -> dict[str, Any]:
    """The local values of a file, whatever order they refer to each other in.

    Each pass works out what depends on known values only; a pass that finds nothing new ends it, and what is left
    refers to itself.
    """
    waiting: dict[str, Attribute] = {}
    for block in blocks:
        for inner in block.body.blocks:
            report.error(inner.start, inner.end, "Unsupported block type", "Only values are expected in locals.")
        for attribute in block.body.attributes.values():
            if waiting.setdefault(attribute.name, attribute) is not attribute:
                detail = f'A local value named "{attribute.name}" was already defined.'
                report.error(attribute.start, attribute.end, "Duplicate local value", detail)
    found: dict[str, Any] = dict.fromkeys(waiting, UNKNOWN)
    inner_scope = scope.child({"local": found})
    blocked: dict[str, Unresolved] = {}
    while waiting:
        blocked = _pass(waiting, found, report, inner_scope)
        if len(blocked) == len(waiting):
            break
        waiting = {name: waiting[name] for name in blocked}
    for name, problem in blocked.items():
        if problem.summary == "Unknown local value" and not _depends_on_failed(problem, waiting, scope):
            detail = f'The local value "{name}" refers to itself, directly or through others.'
            report.error(problem.start, problem.end, "Circular reference", detail)
    return found


def _depends_on_failed(problem: Unresolved, waiting: Mapping[str, Attribute], scope: Scope) -> bool:
    """Is the local value that is missing one that was reported already?"""
    missing = scope.text[problem.start : problem.end].removeprefix("local.").split(".")[0].split("[")[0]
    return missing not in waiting


def _pass(
    waiting: Mapping[str, Attribute], found: dict[str, Any], report: Reporter, scope: Scope
) -> dict[str, Unresolved]:
    """Work out what can be; what has to wait, and for what."""
    blocked: dict[str, Unresolved] = {}
    for name, attribute in waiting.items():
        try:
            value = evaluate(attribute.expression, scope)
            scope.budget.spend_value(attribute.expression, value)
            found[name] = value
        except Unresolved as problem:
            blocked[name] = problem
        except Refusal as problem:
            report.refuse(problem)
    return blocked
