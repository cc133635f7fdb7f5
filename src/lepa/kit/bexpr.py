"""Pure: the filter language of the API: a boolean expression over the fields of an object.

    ClientStatus == "running" and not (JobID matches "^web-" or Meta["owner"] is empty)

    or      := and ("or" and)*                      and  := not ("and" not)*
    not     := "not" not | "(" or ")" | loop | match
    loop    := ("any" | "all") selector "as" name ["," name] "{" or "}"
    match   := selector ("==" | "!=" | ["not"] "contains" | ["not"] "matches") value
             | selector "is" ["not"] ("empty" | "nil")
             | value ["not"] "in" selector
    selector:= name ("." name | "[" string "]")* | string that is a JSON pointer, "/Meta/a key"
    value   := "text" | `text` | name | number

A selector names fields by their JSON keys, map entries and list indexes. It works on msgspec Structs, dicts and
sequences. A map entry that is not there, and whatever lies below null, equals nothing and is empty; a field that the
type does not have is an error. Texts, numbers and booleans are compared as what the field holds.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from lepa.kit.regexp import RegexpError, compile_regexp

LENGTH_MAX = 8_192
DEPTH_MAX = 64
"""How deep parentheses, `not` and loops may nest."""

Predicate = Callable[[Any], bool]
_Scope = Mapping[str, Any]
_Test = Callable[[Any, _Scope], bool]
_Fetch = Callable[[Any, _Scope], Any]

_MISSING: Any = None
"""What a selector gives where nothing is: the same as null."""


class FilterError(ValueError):
    """The expression cannot be read, or does not fit the objects. position: index into the expression, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


def compile_filter(expression: str) -> Predicate:
    """A function that says whether an object passes.

    Raises FilterError when the expression cannot be read; the function raises it when the expression does not fit the
    object: a field it does not have, a comparison its type does not allow.
    """
    if len(expression) > LENGTH_MAX:
        raise FilterError(f"filter is longer than {LENGTH_MAX} characters", LENGTH_MAX)
    parser = _Parser(expression)
    test = parser.disjunction(frozenset())
    parser.expect_end()
    nothing: _Scope = {}
    return lambda item: test(item, nothing)


# Words


class _Token(NamedTuple):
    kind: str
    text: str
    position: int


_TOKEN = re.compile(
    r"""\s*(?:
        (?P<string>"(?:[^"\\]|\\.)*")
      | (?P<raw>`[^`]*`)
      | (?P<number>-?[0-9]+(?:\.[0-9]+)?(?![\w]))
      | (?P<word>[A-Za-z_][\w/-]*)
      | (?P<sign>==|!=|[()\[\]{}.,])
    )""",
    re.VERBOSE | re.ASCII,
)


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while True:
        found = _TOKEN.match(text, position)
        if found is None:
            rest = text[position:]
            start = position + len(rest) - len(rest.lstrip())
            if start < len(text):
                what = "text without a closing quote" if text[start] in '"`' else f"unexpected {text[start]!r}"
                raise FilterError(what, start)
            yield _Token("end", "end of the filter", len(text))
            return
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
        position = found.end()


def _unquoted(token: _Token) -> str:
    if token.kind == "raw":
        return token.text[1:-1]
    try:
        return str(msgspec.json.decode(token.text, type=str))
    except msgspec.DecodeError as error:
        raise FilterError("text with an escape that is not known", token.position) from error


# Grammar


class _Operand(NamedTuple):
    """The left side of a match before it is known whether it is a selector or a value."""

    token: _Token
    path: tuple[str, ...]


class _Parser:
    """Recursive descent over the tokens; each method returns the test for what it has read."""

    def __init__(self, text: str) -> None:
        self.tokens = list(_tokens(text))
        self.at = 0
        self.depth = 0

    def disjunction(self, bound: frozenset[str]) -> _Test:
        self._deeper()
        tests = [self._conjunction(bound)]
        while self._take_word("or"):
            tests.append(self._conjunction(bound))
        self.depth -= 1
        return tests[0] if len(tests) == 1 else lambda item, scope: any(test(item, scope) for test in tests)

    def _conjunction(self, bound: frozenset[str]) -> _Test:
        tests = [self._negation(bound)]
        while self._take_word("and"):
            tests.append(self._negation(bound))
        return tests[0] if len(tests) == 1 else lambda item, scope: all(test(item, scope) for test in tests)

    def _negation(self, bound: frozenset[str]) -> _Test:
        if self._take_word("not"):
            self._deeper()
            inner = self._negation(bound)
            self.depth -= 1
            return lambda item, scope: not inner(item, scope)
        if self._take_sign("("):
            inner = self.disjunction(bound)
            self._expect_sign(")")
            return inner
        if self._peek().text in ("any", "all") and self.tokens[self.at + 1].kind in ("word", "string"):
            return self._loop(bound)
        return self._match(bound)

    def _loop(self, bound: frozenset[str]) -> _Test:
        every = self._next().text == "all"
        start = self._peek()
        fetch = _fetcher(self._operand(), bound)
        if not self._take_word("as"):
            raise self._unexpected('"as"')
        names = [self._name()]
        if self._take_sign(","):
            names.append(self._name())
        self._expect_sign("{")
        inner = self.disjunction(bound | set(names))
        self._expect_sign("}")

        def test(item: Any, scope: _Scope) -> bool:
            rounds = (inner(item, {**scope, **given}) for given in _bindings(fetch(item, scope), names, start))
            return all(rounds) if every else any(rounds)

        return test

    def _name(self) -> str:
        if self._peek().kind != "word":
            raise self._unexpected("a name")
        return self._next().text

    def _match(self, bound: frozenset[str]) -> _Test:
        operand = self._operand()
        negated = self._take_word("not")
        operator = self._next()
        if operator.text == "in" and operator.kind == "word":
            literal = _Literal(_value_text(operand))
            selected = self._operand()
            test = _containment(_fetcher(selected, bound), literal, selected.token)
        elif operator.text in ("contains", "matches") and operator.kind == "word":
            make = _containment if operator.text == "contains" else _regexp
            test = make(_fetcher(operand, bound), _Literal(_value_text(self._operand())), operand.token)
        elif not negated and operator.text in ("==", "!=") and operator.kind == "sign":
            negated = operator.text == "!="
            test = _equality(_fetcher(operand, bound), _Literal(_value_text(self._operand())), operand.token)
        elif not negated and operator.text == "is" and operator.kind == "word":
            negated = self._take_word("not")
            test = self._state(_fetcher(operand, bound), operand.token)
        else:
            raise _unexpected("a comparison: ==, !=, is, in, contains or matches", operator)
        return (lambda item, scope: not test(item, scope)) if negated else test

    def _state(self, fetch: _Fetch, token: _Token) -> _Test:
        if self._take_word("empty"):
            return _emptiness(fetch, token)
        if self._take_word("nil"):
            return lambda item, scope: fetch(item, scope) is None
        raise self._unexpected('"empty" or "nil"')

    def _operand(self) -> _Operand:
        token = self._next()
        if token.kind in ("string", "raw", "number"):
            return _Operand(token, ())
        if token.kind != "word":
            raise _unexpected("a field or a value", token)
        path = [token.text]
        while True:
            if self._take_sign("."):
                if self._peek().kind not in ("word", "number"):
                    raise self._unexpected("a name")
                path.extend(self._next().text.split("."))
            elif self._take_sign("["):
                if self._peek().kind not in ("string", "raw", "number"):
                    raise self._unexpected("a key in quotes")
                path.append(_value_text(_Operand(self._next(), ())))
                self._expect_sign("]")
            else:
                return _Operand(token, tuple(path))

    def expect_end(self) -> None:
        if self._peek().kind != "end":
            raise self._unexpected('"and", "or" or the end of the filter')

    def _peek(self) -> _Token:
        return self.tokens[self.at]

    def _next(self) -> _Token:
        token = self.tokens[self.at]
        self.at += 1 if token.kind != "end" else 0
        return token

    def _take_word(self, word: str) -> bool:
        return self._take("word", word)

    def _take_sign(self, sign: str) -> bool:
        return self._take("sign", sign)

    def _take(self, kind: str, text: str) -> bool:
        token = self._peek()
        found = token.kind == kind and token.text == text
        self.at += found
        return found

    def _expect_sign(self, sign: str) -> None:
        if not self._take_sign(sign):
            raise self._unexpected(f'"{sign}"')

    def _unexpected(self, wanted: str) -> FilterError:
        return _unexpected(wanted, self._peek())

    def _deeper(self) -> None:
        self.depth += 1
        if self.depth > DEPTH_MAX:
            raise FilterError(f"filter nests deeper than {DEPTH_MAX}", self._peek().position)


def _unexpected(wanted: str, found: _Token) -> FilterError:
    return FilterError(f"expected {wanted}, found {found.text}", found.position)


def _value_text(operand: _Operand) -> str:
    if operand.token.kind in ("string", "raw"):
        return _unquoted(operand.token)
    return ".".join(operand.path) or operand.token.text


# Selectors


def _fetcher(operand: _Operand, bound: frozenset[str]) -> _Fetch:
    """A function that finds what the selector names, None where there is nothing."""
    token, path = operand
    if token.kind in ("string", "raw"):
        path = _pointer(_unquoted(token), token)
    elif not path:
        raise FilterError(f"expected a field, found {token.text}", token.position)
    if path[0] in bound:
        name, rest = path[0], path[1:]
        return lambda item, scope: _walk(scope[name], rest, token)
    if len(path) == 1:
        (only,) = path
        return lambda item, scope: _member(item, only, token)
    return lambda item, scope: _walk(item, path, token)


def _pointer(text: str, token: _Token) -> tuple[str, ...]:
    if not text.startswith("/") or text == "/":
        raise FilterError(f'expected a field, found "{text}"; a quoted field starts with /', token.position)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def _walk(value: Any, path: tuple[str, ...], token: _Token) -> Any:
    for key in path:
        value = _member(value, key, token)
    return value


def _member(value: Any, key: str, token: _Token) -> Any:
    if isinstance(value, msgspec.Struct):
        attribute = _attributes(type(value)).get(key)
        if attribute is None:
            raise FilterError(f'"{key}" is not a field of {type(value).__name__}', token.position)
        return getattr(value, attribute)
    if isinstance(value, dict):
        return value.get(key)
    if value is None:
        return _MISSING
    if isinstance(value, tuple | list):
        if not (key.isascii() and key.isdigit()):
            raise FilterError(f'"{key}" is not an index of a list', token.position)
        return next(islice(value, int(key[:9]), None), _MISSING)
    raise FilterError(f'there is no "{key}" in a {_noun(value)}', token.position)


@cache
def _attributes(kind: type[msgspec.Struct]) -> Mapping[str, str]:
    return {field.encode_name: field.name for field in msgspec.structs.fields(kind)}


def _bindings(value: Any, names: list[str], token: _Token) -> Iterator[dict[str, Any]]:
    """What a loop binds in each round: one name is the element (of a map: the key), two are key and element."""
    if value is None:
        return
    if isinstance(value, dict):
        pairs: Iterator[tuple[Any, Any]] = iter(value.items())
    elif isinstance(value, tuple | list):
        pairs = iter(enumerate(value))
    else:
        raise FilterError(f"any and all go over lists and maps, not over a {_noun(value)}", token.position)
    for key, element in pairs:
        if len(names) == 2:
            yield {names[0]: key, names[1]: element}
        else:
            yield {names[0]: key if isinstance(value, dict) else element}


# Comparisons


class _Literal:
    """The constant side of a comparison, as text and as everything else it can be read as."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.readings: dict[type, Any] = {str: text}
        for kind, read in ((bool, _boolean), (int, int), (float, float)):
            try:
                self.readings[kind] = read(text)
            except ValueError:
                continue

    def equals(self, value: Any, token: _Token) -> bool:
        """Whether the value, of whatever type, is what the text says. Raises FilterError when it cannot be."""
        wanted = self.readings.get(type(value))
        if wanted is not None:
            return bool(value == wanted)
        if value is None:
            return False
        if type(value) in (bool, int, float):
            raise FilterError(f'"{self.text}" is not a {_noun(value)}', token.position)
        raise FilterError(f"cannot compare a {_noun(value)} with a text", token.position)


def _boolean(text: str) -> bool:
    if text in ("1", "t", "T", "true", "TRUE", "True"):
        return True
    if text in ("0", "f", "F", "false", "FALSE", "False"):
        return False
    raise ValueError(text)


def _equality(fetch: _Fetch, literal: _Literal, token: _Token) -> _Test:
    text, equals = literal.text, literal.equals

    def test(item: Any, scope: _Scope) -> bool:
        value = fetch(item, scope)
        return value == text if type(value) is str else equals(value, token)

    return test


def _containment(fetch: _Fetch, literal: _Literal, token: _Token) -> _Test:
    def test(item: Any, scope: _Scope) -> bool:
        value = fetch(item, scope)
        if value is None:
            return False
        if isinstance(value, str | dict):
            return literal.text in value
        if isinstance(value, tuple | list):
            return any(literal.equals(element, token) for element in value)
        raise FilterError(f"a {_noun(value)} contains nothing", token.position)

    return test


def _regexp(fetch: _Fetch, literal: _Literal, token: _Token) -> _Test:
    try:
        pattern = compile_regexp(literal.text)
    except RegexpError as error:
        raise FilterError(f"the regular expression cannot be read: {error}", token.position) from error

    def test(item: Any, scope: _Scope) -> bool:
        value = fetch(item, scope)
        if value is None:
            return False
        if not isinstance(value, str):
            raise FilterError(f"a {_noun(value)} cannot be matched with a regular expression", token.position)
        return pattern.search(value)

    return test


def _emptiness(fetch: _Fetch, token: _Token) -> _Test:
    def test(item: Any, scope: _Scope) -> bool:
        value = fetch(item, scope)
        if value is None:
            return True
        if isinstance(value, str | bytes | dict | tuple | list):
            return not value
        raise FilterError(f"a {_noun(value)} is never empty", token.position)

    return test


def _noun(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return type(value).__name__
    names = {bool: "boolean", int: "number", float: "number", str: "text", dict: "map", tuple: "list", list: "list"}
    return names.get(type(value), type(value).__name__)
