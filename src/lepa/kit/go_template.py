"""Pure: Go's text/template language over plain values: dicts, lists, texts, numbers.

    parse("{{range .}}{{.ID}} {{end}}").render([{"ID": "a"}, {"ID": "b"}])  # "a b "

text --go_template_syntax--> nodes --Run--> text. The language: pipelines, fields and chains of them, variables,
`if` / `else if` / `else`, `range` with `else`, `break` and `continue`, `with`, `define`, `template`, `block`, comments,
and `{{-` `-}}` that take white space away. What a dict does not have is `<no value>`, as a map's missing key is in Go.
Whoever embeds the language adds functions of its own; bounds on steps and output keep every template finite.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from lepa.kit.go_template_functions import BUILT_IN, Function, FunctionError, shown, true
from lepa.kit.go_template_syntax import (
    DEPTH_MAX,
    Choice,
    Constant,
    Inclusion,
    Named,
    Node,
    Operand,
    Output,
    Parser,
    Pipe,
    TemplateError,
    Text,
)

STEPS_MAX = 1_000_000
"""Nodes that one rendering may execute."""

OUTPUT_MAX = 64 * 1024 * 1024
"""Characters of output."""


class Template:
    """A template that was read."""

    def __init__(
        self, nodes: tuple[Node, ...], defined: Mapping[str, tuple[Node, ...]], functions: Mapping[str, Function]
    ) -> None:
        self._nodes = nodes
        self._defined = defined
        self._functions = functions

    def render(self, data: Any) -> str:
        """The text for some data. Raises TemplateError."""
        run = Run(self._defined, self._functions)
        run.execute(self._nodes, data)
        return "".join(run.output)


def parse(text: str, functions: Mapping[str, Function] | None = None) -> Template:
    """Read a template. functions: more than Go's own, by name. Raises TemplateError."""
    known = {**BUILT_IN, **(functions or {})}
    parser = Parser(text, known)
    nodes = parser.parse()
    return Template(nodes, parser.defined, known)


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class Run:
    """One rendering: its output, its variables, and what is left of its bounds."""

    def __init__(self, defined: Mapping[str, tuple[Node, ...]], functions: Mapping[str, Function]) -> None:
        self.output: list[str] = []
        self._defined = defined
        self._functions = functions
        self._scopes: list[dict[str, Any]] = []
        self._steps = 0
        self._written = 0
        self._depth = 0

    def execute(self, nodes: Sequence[Node], data: Any) -> None:
        """Run a template: `data` is its dot and its `$`."""
        outer, self._scopes = self._scopes, [{"$": data}]
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise TemplateError(f"templates are within one another more than {DEPTH_MAX} times")
        self._body(nodes, data)
        self._depth -= 1
        self._scopes = outer

    def _body(self, nodes: Sequence[Node], dot: Any) -> None:
        for node in nodes:
            self._step()
            if isinstance(node, Text):
                self._write(node.text)
            elif isinstance(node, Output):
                value = self._pipe(node.pipe, dot)
                if not node.pipe.names:
                    self._write(shown(value))
            elif isinstance(node, Choice):
                self._choice(node, dot)
            elif isinstance(node, Inclusion):
                self._include(node, dot)
            else:
                raise _Break if node.kind == "break" else _Continue

    def _step(self) -> None:
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise TemplateError(f"the template takes more than {STEPS_MAX} steps")

    def _write(self, text: str) -> None:
        self._written += len(text)
        if self._written > OUTPUT_MAX:
            raise TemplateError(f"the template writes more than {OUTPUT_MAX} characters")
        self.output.append(text)

    def _include(self, node: Inclusion, dot: Any) -> None:
        if node.name not in self._defined:
            raise TemplateError(f'line {node.line}: template "{node.name}" not defined')
        self.execute(self._defined[node.name], None if node.pipe is None else self._pipe(node.pipe, dot))

    def _choice(self, node: Choice, dot: Any) -> None:
        self._scopes.append({})
        try:
            if node.kind == "range":
                self._range(node, dot)
                return
            value = self._pipe(node.pipe, dot)
            chosen = node.body if true(value) else node.otherwise
            self._body(chosen, value if node.kind == "with" and chosen is node.body else dot)
        finally:
            self._scopes.pop()

    def _range(self, node: Choice, dot: Any) -> None:
        value = self._pipe(node.pipe, dot, bind=False)
        empty = True
        for key, item in _items(value, node.pipe.line):
            empty = False
            self._step()
            self._scopes.append({})
            self._bind(node.pipe, [key, item] if len(node.pipe.names) == 2 else [item])
            try:
                self._body(node.body, item)
            except _Continue:
                continue
            except _Break:
                break
            finally:
                self._scopes.pop()
        if empty:
            self._body(node.otherwise, dot)

    def _pipe(self, pipe: Pipe, dot: Any, *, bind: bool = True) -> Any:
        value = self._command(pipe.commands[0], dot, pipe.line, ())
        for command in pipe.commands[1:]:
            value = self._command(command, dot, pipe.line, (value,))
        if bind and pipe.names:
            self._bind(pipe, [value] * len(pipe.names))
        return value

    def _bind(self, pipe: Pipe, values: Sequence[Any]) -> None:
        for name, value in zip(pipe.names, values, strict=False):
            scope = self._scopes[-1] if pipe.declares else self._scope_of(name)
            scope[name] = value

    def _scope_of(self, name: str) -> dict[str, Any]:
        return next(scope for scope in reversed(self._scopes) if name in scope)

    def _command(self, command: tuple[Operand, ...], dot: Any, line: int, piped: tuple[Any, ...]) -> Any:
        """One command; `piped` is what came from the one before it, which is its last argument."""
        first, *rest = command
        if isinstance(first, Named):
            return self._call(first.name, rest, dot, line, piped)
        value = self._operand(first, dot, line)
        if callable(value):
            return self._guarded(value, [*(self._operand(each, dot, line) for each in rest), *piped], line)
        if rest or piped:
            raise TemplateError(f"line {line}: cannot give argument to non-function")
        return value

    def _call(self, name: str, operands: Sequence[Operand], dot: Any, line: int, piped: tuple[Any, ...]) -> Any:
        if name in ("and", "or"):
            return self._short_circuit(name, operands, dot, line, piped)
        arguments = [*(self._operand(each, dot, line) for each in operands), *piped]
        return self._guarded(self._functions[name], arguments, line, name)

    def _short_circuit(
        self, name: str, operands: Sequence[Operand], dot: Any, line: int, piped: tuple[Any, ...]
    ) -> Any:
        """The first argument that decides; those behind it are not looked at."""
        value: Any = None
        for value in _chained((self._operand(each, dot, line) for each in operands), piped):
            if true(value) == (name == "or"):
                return value
        return value

    def _guarded(self, function: Function, arguments: Sequence[Any], line: int, name: str = "it") -> Any:
        try:
            return function(*arguments)
        except TemplateError:
            raise
        except FunctionError as error:
            raise TemplateError(f"line {line}: {name}: {error}") from error
        except (TypeError, ValueError, LookupError, ArithmeticError) as error:
            raise TemplateError(f"line {line}: {name} cannot take these arguments: {error}") from error

    def _operand(self, operand: Operand, dot: Any, line: int) -> Any:
        self._step()
        if isinstance(operand, Constant):
            return operand.value
        if isinstance(operand, Named):
            return self._call(operand.name, (), dot, line, ())
        base = operand.base
        if isinstance(base, Pipe):
            value = self._pipe(base, dot)
        else:
            value = dot if base == "." else self._scope_of(base)[base]
        for name in operand.fields:
            value = _field(value, name, line)
        return value


def _chained(first: Iterator[Any], then: tuple[Any, ...]) -> Iterator[Any]:
    yield from first
    yield from then


def _field(value: Any, name: str, line: int) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return value.get(name)
    raise TemplateError(f"line {line}: can't evaluate field {name} in a {type(value).__name__}")


def _items(value: Any, line: int) -> Iterator[tuple[Any, Any]]:
    """Keys and values that `range` visits: a dict's in order of its keys."""
    if value is None:
        return
    if isinstance(value, Mapping):
        yield from ((key, value[key]) for key in sorted(value, key=str))
    elif isinstance(value, list | tuple):
        yield from enumerate(value)
    elif isinstance(value, int) and not isinstance(value, bool):
        yield from ((n, n) for n in range(value))
    else:
        raise TemplateError(f"line {line}: range can't iterate over {shown(value)}")


__all__ = ["Function", "FunctionError", "Template", "TemplateError", "parse"]
