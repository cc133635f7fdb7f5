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

Each condition is compiled to two functions. `one` tells of an object; that is what a filter means. `many` tells the
same of a column of objects in few calls for all of them, as a list of 100,000 rows needs. Where it meets an object that
the filter does not fit, the objects are asked one by one, so that what passed before is seen before the error is.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, lru_cache
from itertools import chain, compress, islice, repeat
from operator import attrgetter, eq, not_
from types import NoneType
from typing import Any, NamedTuple, TypeVar

import msgspec

from lepa.kit.regexp import RegexpError, compile_regexp

LENGTH_MAX = 8_192
DEPTH_MAX = 64
"""How deep parentheses, `not` and loops may nest."""

COLUMN_MIN, COLUMN_MAX = 64, 4_096
"""Objects that are asked together: few at first, as a page may be full soon."""
ROUNDS_MAX = 65_536
"""Elements of all objects of a column that a loop looks at together."""
REMEMBERED_MAX = 4_096
"""Texts of which a regular expression remembers whether it is found in them."""

T = TypeVar("T")

_Scope = tuple[Any, ...]
"""What loops have bound, the outermost first."""
_Columns = tuple[list[Any], ...]
"""Objects, then what loops have bound for each of them."""


class _Test(NamedTuple):
    """A condition: of an object and its scope, and of many of them."""

    one: Callable[[Any, _Scope], bool]
    many: Callable[[_Columns], list[bool]]


class _Fetch(NamedTuple):
    """What a selector names: of an object and its scope, and of many of them."""

    one: Callable[[Any, _Scope], Any]
    many: Callable[[_Columns], list[Any]]


class _Check(NamedTuple):
    """What is asked of a value that was found, and of many of them."""

    one: Callable[[Any], bool]
    many: Callable[[list[Any]], list[bool]]


_MISSING: Any = None
"""What a selector gives where nothing is: the same as null."""


class FilterError(ValueError):
    """The expression cannot be read, or does not fit the objects. position: index into the expression, from 0."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(f"{message} (at character {position + 1})")
        self.position = position


class Filter:
    """A compiled expression. Call it with an object to hear whether it passes.

    Raises FilterError when the expression does not fit an object: a field it does not have, a comparison its type does
    not allow.
    """

    def __init__(self, test: _Test) -> None:
        self._test = test

    def __call__(self, item: Any) -> bool:
        return self._test.one(item, ())

    def sift(self, items: Iterable[T]) -> Iterator[T]:
        """The objects that pass, in order: `filter(self, items)`, in a fraction of its time where they are many."""
        rest = iter(items)
        size = COLUMN_MIN
        while column := list(islice(rest, size)):
            yield from self._sifted(column)
            size = min(2 * size, COLUMN_MAX)

    def _sifted(self, column: list[T]) -> Iterable[T]:
        try:
            return compress(column, self._test.many((column,)))
        except FilterError:
            return filter(self, column)


def compile_filter(expression: str) -> Filter:
    """Raises FilterError when the expression cannot be read."""
    if len(expression) > LENGTH_MAX:
        raise FilterError(f"filter is longer than {LENGTH_MAX} characters", LENGTH_MAX)
    parser = _Parser(expression)
    test = parser.disjunction(())
    parser.expect_end()
    return Filter(test)


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

    def disjunction(self, bound: tuple[str, ...]) -> _Test:
        self._deeper()
        tests = [self._conjunction(bound)]
        while self._take_word("or"):
            tests.append(self._conjunction(bound))
        self.depth -= 1
        return _joined(tests, any)

    def _conjunction(self, bound: tuple[str, ...]) -> _Test:
        tests = [self._negation(bound)]
        while self._take_word("and"):
            tests.append(self._negation(bound))
        return _joined(tests, all)

    def _negation(self, bound: tuple[str, ...]) -> _Test:
        if self._take_word("not"):
            self._deeper()
            inner = self._negation(bound)
            self.depth -= 1
            return _negated(inner)
        if self._take_sign("("):
            inner = self.disjunction(bound)
            self._expect_sign(")")
            return inner
        if self._peek().text in ("any", "all") and self.tokens[self.at + 1].kind in ("word", "string"):
            return self._loop(bound)
        return self._match(bound)

    def _loop(self, bound: tuple[str, ...]) -> _Test:
        every = self._next().text == "all"
        start = self._peek()
        fetch = _fetcher(self._operand(), bound)
        if not self._take_word("as"):
            raise self._unexpected('"as"')
        names = [self._name()]
        if self._take_sign(","):
            names.append(self._name())
        self._expect_sign("{")
        inner = self.disjunction((*bound, *names))
        self._expect_sign("}")
        return _looped(fetch, inner, len(names), all if every else any, start)

    def _name(self) -> str:
        if self._peek().kind != "word":
            raise self._unexpected("a name")
        return self._next().text

    def _match(self, bound: tuple[str, ...]) -> _Test:
        operand = self._operand()
        negated = self._take_word("not")
        operator = self._next()
        if operator.text == "in" and operator.kind == "word":
            literal = _Literal(_value_text(operand))
            selected = self._operand()
            test = _asked(_fetcher(selected, bound), _containment(literal, selected.token))
        elif operator.text in ("contains", "matches") and operator.kind == "word":
            make = _containment if operator.text == "contains" else _regexp
            test = _asked(_fetcher(operand, bound), make(_Literal(_value_text(self._operand())), operand.token))
        elif not negated and operator.text in ("==", "!=") and operator.kind == "sign":
            negated = operator.text == "!="
            test = _asked(_fetcher(operand, bound), _equality(_Literal(_value_text(self._operand())), operand.token))
        elif not negated and operator.text == "is" and operator.kind == "word":
            negated = self._take_word("not")
            test = self._state(_fetcher(operand, bound), operand.token)
        else:
            raise _unexpected("a comparison: ==, !=, is, in, contains or matches", operator)
        return _negated(test) if negated else test

    def _state(self, fetch: _Fetch, token: _Token) -> _Test:
        if self._take_word("empty"):
            return _asked(fetch, _one_by_one(_emptiness(token)))
        if self._take_word("nil"):
            return _asked(fetch, _one_by_one(lambda value: value is None))
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


def _fetcher(operand: _Operand, bound: tuple[str, ...]) -> _Fetch:
    """A function that finds what the selector names, None where there is nothing."""
    token, path = operand
    if token.kind in ("string", "raw"):
        path = _pointer(_unquoted(token), token)
    elif not path:
        raise FilterError(f"expected a field, found {token.text}", token.position)
    if path[0] in bound:
        place, steps = len(bound) - bound[::-1].index(path[0]), path[1:]
        return _Fetch(
            lambda item, scope: _walk(scope[place - 1], steps, token),
            lambda columns: _walk_all(columns[place], steps, token),
        )
    return _Fetch(
        lambda item, scope: _walk(item, path, token),
        lambda columns: _walk_all(columns[0], path, token),
    )


def _pointer(text: str, token: _Token) -> tuple[str, ...]:
    if not text.startswith("/") or text == "/":
        raise FilterError(f'expected a field, found "{text}"; a quoted field starts with /', token.position)
    return tuple(step.replace("~1", "/").replace("~0", "~") for step in text[1:].split("/"))


def _walk(value: Any, path: tuple[str, ...], token: _Token) -> Any:
    for key in path:
        value = _member(value, key, token)
    return value


def _walk_all(values: list[Any], path: tuple[str, ...], token: _Token) -> list[Any]:
    for key in path:
        values = _members(values, key, token)
    return values


def _members(values: list[Any], key: str, token: _Token) -> list[Any]:
    """The same as `_member` of each; nearly always all are of one type."""
    kinds = set(map(type, values))
    if len(kinds) == 1:
        (kind,) = kinds
        if issubclass(kind, msgspec.Struct) and (attribute := _attributes(kind).get(key)) is not None:
            return list(map(attrgetter(attribute), values))
        if kind is dict:
            return [value.get(key) for value in values]
    return [_member(value, key, token) for value in values]


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


# Conditions made of others


def _joined(tests: list[_Test], judge: Callable[[Iterable[bool]], bool]) -> _Test:
    """All or any of the tests, from left to right as far as they matter."""
    if len(tests) == 1:
        return tests[0]
    undecided = not_ if judge is any else bool

    def many(columns: _Columns) -> list[bool]:
        marks = tests[0].many(columns)
        for test in tests[1:]:
            open_still = list(map(undecided, marks))
            if not any(open_still):
                break
            found = iter(test.many(tuple(list(compress(column, open_still)) for column in columns)))
            marks = [next(found) if still else mark for mark, still in zip(marks, open_still, strict=True)]
        return marks

    return _Test(lambda item, scope: judge(test.one(item, scope) for test in tests), many)


def _negated(test: _Test) -> _Test:
    return _Test(
        lambda item, scope: not test.one(item, scope),
        lambda columns: list(map(not_, test.many(columns))),
    )


def _looped(fetch: _Fetch, inner: _Test, names: int, judge: Callable[[Iterable[bool]], bool], token: _Token) -> _Test:
    """Whether all or any elements of what is fetched pass the inner test."""

    def one(item: Any, scope: _Scope) -> bool:
        rounds = _rounds(fetch.one(item, scope), names, token)
        return judge(inner.one(item, (*scope, *given)) for given in rounds)

    def many(columns: _Columns) -> list[bool]:
        rounds = [tuple(_rounds(value, names, token)) for value in fetch.many(columns)]
        counts = list(map(len, rounds))
        if sum(counts) > ROUNDS_MAX:
            return [one(item, tuple(scope)) for item, *scope in zip(*columns, strict=True)]
        if not any(counts):
            return [judge(())] * len(counts)
        outer = (list(chain.from_iterable(map(repeat, column, counts))) for column in columns)
        given = map(list, zip(*chain.from_iterable(rounds), strict=True))
        marks = iter(inner.many((*outer, *given)))
        return [judge(tuple(islice(marks, count))) for count in counts]

    return _Test(one, many)


def _rounds(value: Any, names: int, token: _Token) -> Iterable[tuple[Any, ...]]:
    """What a loop binds in each round: one name is the element (of a map: the key), two are key and element."""
    if value is None:
        return ()
    if isinstance(value, dict):
        return value.items() if names == 2 else zip(value)
    if isinstance(value, tuple | list):
        return enumerate(value) if names == 2 else zip(value)
    raise FilterError(f"any and all go over lists and maps, not over a {_noun(value)}", token.position)


def _asked(fetch: _Fetch, check: _Check) -> _Test:
    """What is asked of the value that a selector finds."""
    return _Test(
        lambda item, scope: check.one(fetch.one(item, scope)),
        lambda columns: check.many(fetch.many(columns)),
    )


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


def _one_by_one(check: Callable[[Any], bool]) -> _Check:
    return _Check(check, lambda values: list(map(check, values)))


def _equality(literal: _Literal, token: _Token) -> _Check:
    def one(value: Any) -> bool:
        return literal.equals(value, token)

    def many(values: list[Any]) -> list[bool]:
        kinds = set(map(type, values)) - {NoneType}
        wanted = [literal.readings.get(kind) for kind in kinds]
        if len(wanted) == 1 and wanted[0] is not None:
            return list(map(eq, values, repeat(wanted[0])))
        return list(map(one, values))

    return _Check(one, many)


def _containment(literal: _Literal, token: _Token) -> _Check:
    def check(value: Any) -> bool:
        if value is None:
            return False
        if isinstance(value, str | dict):
            return literal.text in value
        if isinstance(value, tuple | list):
            return any(literal.equals(element, token) for element in value)
        raise FilterError(f"a {_noun(value)} contains nothing", token.position)

    return _one_by_one(check)


def _regexp(literal: _Literal, token: _Token) -> _Check:
    try:
        pattern = compile_regexp(literal.text)
    except RegexpError as error:
        raise FilterError(f"the regular expression cannot be read: {error}", token.position) from error
    found_in = lru_cache(REMEMBERED_MAX)(pattern.search)

    def check(value: Any) -> bool:
        if value is None:
            return False
        if not isinstance(value, str):
            raise FilterError(f"a {_noun(value)} cannot be matched with a regular expression", token.position)
        return found_in(value)

    return _one_by_one(check)


def _emptiness(token: _Token) -> Callable[[Any], bool]:
    def check(value: Any) -> bool:
        if value is None:
            return True
        if isinstance(value, str | bytes | dict | tuple | list):
            return not value
        raise FilterError(f"a {_noun(value)} is never empty", token.position)

    return check


def _noun(value: Any) -> str:
    if isinstance(value, msgspec.Struct):
        return type(value).__name__
    names = {bool: "boolean", int: "number", float: "number", str: "text", dict: "map", tuple: "list", list: "list"}
    return names.get(type(value), type(value).__name__)
