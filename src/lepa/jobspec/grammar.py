"""Pure: tokens -> expressions, by recursive descent.

Each method takes its tokens from the front and leaves the cursor behind them. What does not fit raises a Refusal; the
caller (`hcl` for an attribute) reports it and goes on behind it. The depth of everything that nests is bounded, so that
no text can exhaust the stack.
"""

from decimal import Decimal
from typing import NoReturn

from lepa.jobspec import templates, values
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
    Splat,
    Step,
    Template,
    Traversal,
    TupleOf,
    Unary,
)
from lepa.jobspec.tokens import (
    END,
    HEREDOC,
    IDENTIFIER,
    INVALID,
    NESTING_MAX,
    NEWLINE,
    NUMBER,
    QUOTED,
    UNCLOSED_COMMENT,
    UNCLOSED_HEREDOC,
    UNCLOSED_QUOTED,
    Token,
    runaway_sequence,
)

OPERATORS_MAX = 1000
"""Binary operators in one expression: a chain of them is a tree that is as deep as the chain is long."""

_PRECEDENCE = {
    "||": 1,
    "&&": 2,
    "==": 3,
    "!=": 3,
    "<": 4,
    "<=": 4,
    ">": 4,
    ">=": 4,
    "+": 5,
    "-": 5,
    "*": 6,
    "/": 6,
    "%": 6,
}
_WORDS = {"true": True, "false": False, "null": None}


class Cursor:
    """Tokens with a place in them.

    lines: do newlines count? They do between arguments and between the items of an object, not inside ( ), [ ], ${ }.
    depth: how deep what is being read is nested.
    """

    def __init__(self, text: str, tokens: list[Token], depth: int, *, lines: bool) -> None:
        self.text = text
        self.tokens = tokens
        self.index = 0
        self.lines = lines
        self.depth = depth

    def peek(self) -> Token:
        """The next token that counts."""
        token = self.tokens[self.index]
        while token.kind == NEWLINE and not self.lines:
            self.index += 1
            token = self.tokens[self.index]
        return token

    def take(self) -> Token:
        """The next token, which is then done with. The END token stays."""
        token = self.peek()
        if token.kind != END:
            self.index += 1
        return token

    def skip(self, kind: str) -> bool:
        """Take the next token if it is of this kind."""
        if self.peek().kind != kind:
            return False
        self.index += 1
        return True

    def skip_newlines(self) -> None:
        """Take all newlines that come next."""
        while self.tokens[self.index].kind == NEWLINE:
            self.index += 1

    def expect(self, kind: str, summary: str, detail: str) -> Token:
        """Take a token of this kind or refuse."""
        token = self.peek()
        if token.kind != kind:
            refuse(token, summary, detail)
        return self.take()

    def deeper(self, at: Token) -> None:
        """Enter one more level; refuse beyond the bound."""
        self.depth += 1
        if self.depth > NESTING_MAX:
            detail = f"More than {NESTING_MAX} levels are not supported."
            raise Refusal(at.start, at.end, "Nested too deeply", detail)


def refuse(token: Token, summary: str, detail: str) -> NoReturn:
    """Refuse a token that does not fit here; one that fits nowhere is refused for what it is."""
    if token.kind == INVALID:
        raise Refusal(token.start, token.end, "Invalid character", _invalid_character(token.text))
    if token.kind == UNCLOSED_QUOTED:
        detail = (
            "Quoted strings may not be split over multiple lines, and this one has no closing quote on its line. Use "
            "\\n for a newline or a heredoc (<<EOT) for several lines."
        )
        raise Refusal(token.start, token.end, "Unclosed string", detail)
    if token.kind == UNCLOSED_HEREDOC:
        runaway, opening = runaway_sequence(token)
        if runaway >= 0:
            detail = (
                f"There is no closing brace for this {opening} before the end of the heredoc. Write "
                f"{opening[0]}{opening} for a literal {opening}."
            )
            raise Refusal(token.start + runaway, token.start + runaway + 2, "Unclosed template sequence", detail)
        first_line = token.text.split("\n", 1)[0].strip()
        detail = f"No line holds just the closing marker of {first_line}."
        raise Refusal(token.start, token.start + len(first_line), "Unterminated heredoc", detail)
    if token.kind == UNCLOSED_COMMENT:
        raise Refusal(token.start, token.start + 2, "Unclosed comment", "This comment has no closing */.")
    raise Refusal(token.start, max(token.end, token.start + 1), summary, detail)


def _invalid_character(character: str) -> str:
    if character == "'":
        return 'Single quotes are not valid. Use double quotes (") to enclose strings.'
    if character == "`":
        return 'The "`" character is not valid. For several lines use the heredoc syntax, like "<<EOT".'
    if character == ";":
        return 'The ";" character is not valid. Use newlines between arguments, commas between items.'
    if character in "&|":
        return f'Bitwise operators are not supported. Did you mean the boolean operator "{character * 2}"?'
    return f"The character {character!r} is not used within the language."


class ExpressionParser(Cursor):
    """Reads one expression after another from the tokens. operators: how many binary ones the current one has."""

    operators = 0

    def expression(self) -> Expression:
        """A whole expression, the conditional operator included."""
        self.deeper(self.peek())
        condition = self._operation(1)
        if not self.skip("?"):
            self.depth -= 1
            return condition
        when_true = self.expression()
        detail = "The conditional operator (...?...:...) requires a false expression, delimited by a colon."
        self.expect(":", "Missing false expression in conditional", detail)
        when_false = self.expression()
        self.depth -= 1
        return Conditional(condition.start, when_false.end, condition, when_true, when_false)

    def _operation(self, lowest: int) -> Expression:
        """Binary operators that bind at least as strongly as `lowest`, by precedence climbing."""
        left = self._unary()
        while (strength := _PRECEDENCE.get((operator := self.peek()).kind, 0)) >= lowest:
            self.take()
            self.operators += 1
            if self.operators > OPERATORS_MAX:
                detail = f"More than {OPERATORS_MAX} operators in one expression are not supported."
                raise Refusal(operator.start, operator.end, "Too many operators", detail)
            right = self._operation(strength + 1)
            left = Binary(left.start, right.end, operator.kind, left, right)
        return left

    def _unary(self) -> Expression:
        token = self.peek()
        if token.kind not in ("-", "!"):
            return self._with_steps(self._primary())
        self.take()
        self.deeper(token)
        operand = self._unary()
        self.depth -= 1
        return Unary(token.start, operand.end, token.kind, operand)

    def _primary(self) -> Expression:
        token = self.peek()
        kind = token.kind
        if kind == QUOTED:
            return self.quoted(self.take())
        if kind == IDENTIFIER:
            return self._named(self.take())
        if kind == NUMBER:
            self.take()
            return Literal(token.start, token.end, _number(token))
        if kind == HEREDOC:
            return self._heredoc(self.take())
        if kind == "(":
            return self._parenthesised(self.take())
        if kind == "[":
            return self._tuple(self.take())
        if kind == "{":
            return self._object(self.take())
        if kind == END:
            detail = "Expected the start of an expression, but found the end of the text."
            refuse(token, "Missing expression", detail)
        found = "the end of the line" if kind == NEWLINE else f'"{token.text}"'
        refuse(token, "Invalid expression", f"Expected the start of an expression, but found {found}.")

    # Names, calls and steps

    def _named(self, name: Token) -> Expression:
        following = self.peek()
        if following.kind == "(":
            return self._call(name)
        if following.kind == "::":
            self.take()
            part = self.expect(IDENTIFIER, "Missing function name", "A name must follow the two colons.")
            joined = Token(IDENTIFIER, name.start, part.end, f"{name.text}::{part.text}")
            if self.peek().kind not in ("(", "::"):
                refuse(self.peek(), "Missing open parenthesis", f"{joined.text} names a function: call it with ( ).")
            return self._named(joined)
        if name.text in _WORDS:
            return Literal(name.start, name.end, _WORDS[name.text])
        return Traversal(name.start, name.end, name.text, ())

    def _call(self, name: Token) -> Expression:
        self.deeper(name)
        lines, self.lines = self.lines, False
        opening = self.take()
        arguments: list[Expression] = []
        expand = False
        while not self.skip(")"):
            arguments.append(self.expression())
            if self.skip("..."):
                expand = True
                if self.peek().kind != ")":
                    detail = "An expanded argument (with ...) must be the last one, followed by a parenthesis."
                    refuse(self.peek(), "Missing closing parenthesis", detail)
            elif not self.skip(",") and self.peek().kind != ")":
                self._unclosed(opening, "function call", "a comma or a closing parenthesis")
        end = self.tokens[self.index - 1].end
        self.lines = lines
        self.depth -= 1
        return Call(name.start, end, name.text, tuple(arguments), expand)

    def _with_steps(self, base: Expression) -> Expression:
        """The base with all `.name`, `[key]` and splat steps that follow it."""
        if self.peek().kind not in (".", "["):
            return base
        steps = self._steps(through_splat=False)
        if not isinstance(base, Traversal):
            return Access(base.start, steps[-1].end, base, tuple(steps))
        keys: list[str | int] = []
        for step in steps:
            key = _constant_key(step)
            if key is None:
                break
            keys.append(key)
        if keys:
            base = Traversal(base.start, steps[len(keys) - 1].end, base.root, tuple(keys))
        rest = tuple(steps[len(keys) :])
        return Access(base.start, rest[-1].end, base, rest) if rest else base

    def _steps(self, *, through_splat: bool) -> list[Step]:
        """through_splat: only `.name` steps follow the old splat `.*`."""
        steps: list[Step] = []
        while True:
            if self.peek().kind == ".":
                steps.append(self._dot_step(self.take()))
            elif self.peek().kind == "[" and not through_splat:
                steps.append(self._index_step(self.take()))
            else:
                return steps

    def _dot_step(self, dot: Token) -> Step:
        name = self.take()
        if name.kind == IDENTIFIER:
            return GetAttribute(name.text, dot.start, name.end)
        if name.kind == "*":
            self.deeper(dot)
            inner = self._steps(through_splat=True)
            self.depth -= 1
            return Splat(tuple(inner), dot.start, inner[-1].end if inner else name.end)
        if name.kind == NUMBER:
            if not name.text.isdigit():
                detail = f"Two indexes cannot be chained with dots: write [{name.text.replace('.', '][')}]."
                refuse(name, "Invalid legacy index syntax", detail)
            return GetAttribute(int(_number(name)), dot.start, name.end)
        refuse(name, "Invalid attribute name", "An attribute name is required after a dot.")

    def _index_step(self, opening: Token) -> Step:
        self.deeper(opening)
        lines, self.lines = self.lines, False
        star = self.take() if self.peek().kind == "*" else None
        key = self.expression() if star is None else None
        if self.peek().kind != "]":
            self._unclosed(opening, "index", "a closing bracket")
        end = self.take().end
        self.lines = lines
        if key is not None:
            step: Step = GetIndex(key, opening.start, end)
        else:
            inner = self._steps(through_splat=False)
            step = Splat(tuple(inner), opening.start, inner[-1].end if inner else end)
        self.depth -= 1
        return step

    # Brackets

    def _parenthesised(self, opening: Token) -> Expression:
        lines, self.lines = self.lines, False
        inner = self.expression()
        if self.peek().kind != ")":
            self._unclosed(opening, "parenthesis", "a closing parenthesis")
        self.take()
        self.lines = lines
        return inner

    def _tuple(self, opening: Token) -> Expression:
        lines, self.lines = self.lines, False
        if self.peek().text == "for" and self.peek().kind == IDENTIFIER:
            return self._for(opening, lines)
        items: list[Expression] = []
        while self.peek().kind != "]":
            items.append(self.expression())
            if not self.skip(",") and self.peek().kind != "]":
                self._unclosed(opening, "list", "a comma or a closing bracket", "Missing item separator")
        end = self.take().end
        self.lines = lines
        return TupleOf(opening.start, end, tuple(items))

    def _object(self, opening: Token) -> Expression:
        lines, self.lines = self.lines, True
        self.skip_newlines()
        if self.peek().text == "for" and self.peek().kind == IDENTIFIER:
            self.lines = False
            return self._for(opening, lines)
        items: list[tuple[Expression, Expression]] = []
        while self.peek().kind != "}":
            items.append(self._item())
            if not self.skip(",") and self.peek().kind not in (NEWLINE, "}"):
                self._unclosed(
                    opening, "object", "a comma, a newline or a closing brace", "Missing attribute separator"
                )
            self.skip_newlines()
        end = self.take().end
        self.lines = lines
        return ObjectOf(opening.start, end, tuple(items))

    def _item(self) -> tuple[Expression, Expression]:
        first = self.peek()
        following = self.tokens[self.index + 1] if first.kind == IDENTIFIER else first
        if following.kind in ("=", ":") and first.kind == IDENTIFIER:
            self.take()
            key: Expression = Literal(first.start, first.end, first.text)
        else:
            key = self.expression()
            if isinstance(key, Traversal) and key.steps and first.kind != "(":
                key = self._dotted_key(key)
        if not self.skip("=") and not self.skip(":"):
            detail = 'Expected a value for this key, introduced by "=" or ":".'
            refuse(self.peek(), "Missing attribute value", detail)
        return key, self.expression()

    def _dotted_key(self, key: Traversal) -> Expression:
        """A bare name with dots as a key: itself, as people write it in `env`; it may look like a reference, though."""
        if key.root in ("var", "local"):
            detail = "Put parentheses around a reference that is a key, (var.x) = 1, or quotes around a text."
            raise Refusal(key.start, key.end, "Ambiguous attribute key", detail)
        return Literal(key.start, key.end, self.text[key.start : key.end])

    def _for(self, opening: Token, lines: bool) -> Expression:
        """The rest of a `for` expression; newlines are ignored up to its closing bracket."""
        makes_object = opening.kind == "{"
        key_name, value_name, collection = self.for_intro()
        self.expect(":", "Invalid 'for' expression", "A colon is required after the collection.")
        value = self.expression()
        key: Expression | None = None
        grouped = False
        if makes_object:
            self.expect(
                "=>", "Invalid 'for' expression", "An object needs a key and a value: {for v in list: key => v}."
            )
            key, value = value, self.expression()
            grouped = self.skip("...")
        condition: Expression | None = None
        if self.peek().text == "if":
            self.take()
            condition = self.expression()
        closing = "}" if makes_object else "]"
        if self.peek().kind != closing:
            self._unclosed(opening, "'for' expression", f'"{closing}"')
        end = self.take().end
        self.lines = lines
        return For(opening.start, end, key_name, value_name, collection, key, value, condition, grouped)

    def for_intro(self) -> tuple[str | None, str, Expression]:
        """`for k, v in collection`: the names and the collection."""
        self.take()
        summary, detail = "Invalid 'for' expression", "A variable name is required after 'for'."
        key_name: str | None = None
        value_name = self.expect(IDENTIFIER, summary, detail).text
        if self.skip(","):
            key_name = value_name
            value_name = self.expect(IDENTIFIER, summary, "A variable name is required after the comma.").text
        if self.peek().text != "in":
            refuse(self.peek(), summary, "The word 'in' and a collection are required after the names.")
        self.take()
        return key_name, value_name, self.expression()

    def _unclosed(self, opening: Token, what: str, wanted: str, summary: str = "") -> NoReturn:
        token = self.peek()
        if token.kind == END:
            detail = f"There is no closing bracket for this {what} before the end of the text."
            raise Refusal(opening.start, opening.end, f"Unterminated {what}", detail)
        refuse(token, summary or f"Unterminated {what}", f'Expected {wanted} in this {what}, but found "{token.text}".')

    # Templates

    def quoted(self, token: Token) -> Expression:
        """A quoted string: a Literal, or a Template when it holds interpolations."""
        inner = token.text[1:-1]
        if "$" not in inner and "%" not in inner and "\\" not in inner:
            return Literal(token.start, token.end, inner)
        return self._template(token, templates.split_quoted(self.text, token.start + 1, token.end - 1))

    def plain_template(self, token: Token) -> Expression:
        """A template without quotes, as a whole file may be."""
        return self._template(token, templates.split_heredoc(self.text, token.start, token.end, flush=False))

    def _heredoc(self, token: Token) -> Expression:
        flush = token.text.startswith("<<-")
        body = token.start + token.text.index("\n") + 1
        end = self.text.rindex("\n", body - 1, token.end) + 1
        pieces = templates.split_heredoc(self.text, body, end, flush=flush)
        return self._template(token, pieces)

    def _template(self, token: Token, pieces: list[templates.Piece]) -> Expression:
        if all(isinstance(piece, str) for piece in pieces):
            return Literal(token.start, token.end, "".join(str(piece) for piece in pieces))
        depth = self.depth
        parsed = [piece if isinstance(piece, str) else self._sequence(piece) for piece in pieces]
        self.depth = depth
        if len(parsed) == 1 and isinstance(parsed[0], Expression):
            return parsed[0]
        return Template(token.start, token.end, templates.nest(parsed))

    def _sequence(self, sequence: templates.Sequence) -> Expression | templates.Directive:
        inner = ExpressionParser(self.text, sequence.tokens, self.depth, lines=False)
        inner.deeper(inner.peek())
        inner.operators = self.operators
        parsed = inner.directive(sequence) if sequence.directive else inner.expression()
        self.operators = inner.operators
        rest = inner.peek()
        if rest.kind != END:
            detail = f'Expected a closing brace to end the sequence, but found "{rest.text}".'
            refuse(rest, "Extra characters after expression", detail)
        if isinstance(parsed, templates.Directive):
            self._count_directive(parsed, sequence)
        return parsed

    def _count_directive(self, directive: templates.Directive, sequence: templates.Sequence) -> None:
        """What stands between a directive and its end is one level deeper."""
        if directive.keyword in ("if", "for"):
            self.deeper(sequence.tokens[0])
        elif directive.keyword in ("endif", "endfor"):
            self.depth -= 1

    def directive(self, sequence: templates.Sequence) -> templates.Directive:
        """The inside of `%{ }`."""
        keyword = self.peek()
        start, end = sequence.start, sequence.end
        if keyword.text == "for":
            key_name, value_name, collection = self.for_intro()
            return templates.Directive("for", start, end, collection, key_name, value_name)
        if keyword.text == "if":
            self.take()
            return templates.Directive("if", start, end, self.expression())
        if keyword.text in ("else", "endif", "endfor"):
            self.take()
            return templates.Directive(keyword.text, start, end)
        detail = f'"{keyword.text}" is not a valid template control keyword. Write %%{{ for a literal %{{.'
        refuse(keyword, "Invalid template control keyword", detail)


def _constant_key(step: Step) -> str | int | None:
    if isinstance(step, GetAttribute):
        return step.key
    if isinstance(step, GetIndex) and isinstance(step.key, Literal) and type(step.key.value) in (str, int):
        key: str | int = step.key.value
        return key
    return None


def _number(token: Token) -> int | float:
    text = token.text
    if text.isdigit() and len(text) < 19:
        return int(text)
    if text.count(".") > 1:
        raise Refusal(token.start, token.end, "Invalid number literal", f"{text} is not a number.")
    try:
        return values.number(Decimal(text))
    except (values.Conversion, ArithmeticError):
        raise Refusal(token.start, token.end, "Number too large", f"{text} is out of range.") from None
