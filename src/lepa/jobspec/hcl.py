"""Pure: HCL2 text -> a body of attributes and blocks, with their places.

The structure of the language: `name = expression` and `type "label" { ... }`, one a line. Expressions are read by
`grammar`. One mistake does not hide the next: it is reported, the rest of its line (or of the brackets that it opened)
is skipped, and reading goes on. The same texts are refused as by HashiCorp's own parser.
"""

from lepa.jobspec.diagnostics import Refusal, Reporter
from lepa.jobspec.grammar import ExpressionParser, refuse
from lepa.jobspec.syntax import Attribute, Block, Body, Expression, Label, Literal
from lepa.jobspec.tokens import (
    COMMENT,
    END,
    IDENTIFIER,
    NEWLINE,
    QUOTED,
    UNCLOSED_COMMENT,
    UNCLOSED_HEREDOC,
    Token,
    tokenise,
)


def parse_body(report: Reporter) -> Body:
    """The body of a whole file; what is wrong goes to the report and is left out."""
    text = report.source.text
    start = 1 if text.startswith("\ufeff") else 0
    try:
        tokens = [token for token in tokenise(text, start) if token.kind != COMMENT]
    except Refusal as refusal:
        report.refuse(refusal)
        return Body({}, [], len(text), len(text))
    return _BodyParser(report, tokens).file()


def parse_expression(report: Reporter) -> Expression | None:
    """The expression that a whole text is, such as the value of a flag; None when it is none."""
    text = report.source.text
    try:
        tokens = [token for token in tokenise(text) if token.kind != COMMENT]
        parser = ExpressionParser(text, tokens, 0, lines=False)
        expression = parser.expression()
        if parser.peek().kind != END:
            refuse(parser.peek(), "Extra characters after expression", "Expected nothing more here.")
    except Refusal as refusal:
        report.refuse(refusal)
        return None
    return expression


def parse_template(report: Reporter) -> Expression | None:
    """The template that a whole text is, as for `templatefile`; None when it is none."""
    text = report.source.text
    token = Token(QUOTED, 0, len(text), text)
    try:
        return ExpressionParser(text, [Token(END, len(text), len(text), "")], 0, lines=False).plain_template(token)
    except Refusal as refusal:
        report.refuse(refusal)
        return None


class _BodyParser(ExpressionParser):
    def __init__(self, report: Reporter, tokens: list[Token]) -> None:
        super().__init__(report.source.text, tokens, 0, lines=True)
        self.report = report
        self.cut_short = len(tokens) > 1 and tokens[-2].kind in (UNCLOSED_HEREDOC, UNCLOSED_COMMENT)
        """The last token has taken in the rest of the file, closing braces and all."""

    def file(self) -> Body:
        body = self._body()
        while self.peek().kind != END:
            detail = "This closing brace closes nothing. Is there a brace too many, or one missing before it?"
            token = self.take()
            self.report.error(token.start, token.end, "Argument or block definition required", detail)
            rest = self._body()
            body.attributes.update(rest.attributes)
            body.blocks.extend(rest.blocks)
        return body

    def _body(self) -> Body:
        """Items up to a closing brace or the end; neither is taken. With too many mistakes the end is near."""
        attributes: dict[str, Attribute] = {}
        blocks: list[Block] = []
        while True:
            if self.report.full:
                self.index = len(self.tokens) - 1
            self.skip_newlines()
            first = self.peek()
            if first.kind in ("}", END):
                return Body(attributes, blocks, first.start, first.end)
            begun, depth = self.index, self.depth
            try:
                item = self._item_of_body()
                if isinstance(item, Block):
                    blocks.append(item)
                else:
                    self._add(item, attributes)
            except Refusal as refusal:
                self.report.refuse(refusal)
                self.lines, self.depth = True, depth
                self._recover(begun, refusal.start)

    def _add(self, attribute: Attribute, attributes: dict[str, Attribute]) -> None:
        earlier = attributes.setdefault(attribute.name, attribute)
        if earlier is not attribute:
            where = self.report.source.where(earlier.start, earlier.end)
            detail = f'The argument "{attribute.name}" was already set at {where}. Each argument may be set only once.'
            self.report.error(attribute.start, attribute.end, "Attribute redefined", detail)

    def _item_of_body(self) -> Attribute | Block:
        name = self.take()
        if name.kind == QUOTED:
            refuse(name, "Invalid argument name", "Argument names must not be quoted.")
        if name.kind != IDENTIFIER:
            detail = "An argument or block definition is required here."
            refuse(name, "Argument or block definition required", detail)
        following = self.peek()
        if following.kind == "=":
            attribute = self._attribute(name)
            self._end_of_line("argument")
            return attribute
        if following.kind in ("{", IDENTIFIER, QUOTED):
            block = self._block(name)
            self._end_of_line("block definition")
            return block
        detail = (
            'An argument or block definition is required here. To set an argument, use the equals sign "=" to '
            "introduce the argument value."
        )
        if following.kind in (NEWLINE, END):
            raise Refusal(name.start, name.end, "Argument or block definition required", detail)
        return refuse(following, "Argument or block definition required", detail)

    def _attribute(self, name: Token) -> Attribute:
        self.take()
        self.operators = 0
        return Attribute(name.text, self.expression(), name.start, name.end)

    def _end_of_line(self, what: str) -> None:
        token = self.peek()
        if token.kind in (NEWLINE, END):
            return
        if token.kind == ",":
            detail = f"Definitions are separated by newlines, not commas. An {what} must end with a newline."
            refuse(token, "Unexpected comma after argument", detail)
        article = "An" if what == "argument" else "A"
        refuse(token, f"Missing newline after {what}", f"{article} {what} must end with a newline.")

    def _block(self, name: Token) -> Block:
        labels: list[Label] = []
        while (token := self.peek()).kind in (IDENTIFIER, QUOTED):
            labels.append(self._label(self.take()))
        if token.kind == "=":
            detail = 'The equals sign "=" indicates an argument definition, and must not be used when defining a block.'
            refuse(token, "Invalid block definition", detail)
        if token.kind != "{":
            detail = 'A block has its content between "{" and "}", starting on the same line as the block header.'
            refuse(token, "Invalid block definition", detail)
        self.deeper(token)
        self.take()
        body = self._block_body(name, token)
        self.depth -= 1
        return Block(name.text, tuple(labels), body, name.start, name.end)

    def _label(self, token: Token) -> Label:
        if token.kind == IDENTIFIER:
            return Label(token.text, token.start, token.end)
        value = self.quoted(token)
        if not isinstance(value, Literal) or not isinstance(value.value, str):
            detail = 'Template sequences are not allowed in this string. To include a literal "$", double it (as "$$").'
            raise Refusal(token.start, token.end, "Invalid string literal", detail)
        return Label(value.value, token.start, token.end)

    def _block_body(self, name: Token, opening: Token) -> Body:
        if self.peek().kind not in (NEWLINE, "}", END):
            return self._single_line_body()
        body = self._body()
        if not self.skip("}") and not self.cut_short:
            detail = (
                f'There is no closing brace for this block "{name.text}" before the end of the file. This may be '
                "caused by incorrect brace nesting elsewhere in this file."
            )
            self.report.error(opening.start, opening.end, "Unclosed configuration block", detail)
        return body

    def _single_line_body(self) -> Body:
        """`{ name = expression }`: one argument at most."""
        name = self.take()
        if name.kind != IDENTIFIER or self.peek().kind != "=":
            detail = (
                "A single-line block definition can contain only a single argument (name = value). Place a nested "
                "block on lines of its own."
            )
            refuse(name, "Argument definition required", detail)
        attribute = self._attribute(name)
        closing = self.peek()
        if closing.kind != "}":
            detail = "A single-line block definition must end with a closing brace right after its single argument."
            refuse(closing, "Invalid single-argument block definition", detail)
        self.take()
        return Body({attribute.name: attribute}, [], closing.start, closing.end)

    def _recover(self, begun: int, offset: int) -> None:
        """Go behind the item that began at token `begun` and was refused at `offset`.

        Brackets that the item opened are followed to their end; a brace that closes the enclosing block stops.
        """
        opened = 0
        self.index = begun
        while (token := self.tokens[self.index]).kind != END:
            if token.kind in _OPENING:
                opened += 1
            elif token.kind in _CLOSING:
                if opened == 0 and token.kind == "}" and self.index > begun:
                    return
                opened = max(0, opened - 1)
            elif token.kind == NEWLINE and opened == 0 and token.end > offset:
                return
            self.index += 1


_OPENING = frozenset({"(", "[", "{"})
_CLOSING = frozenset({")", "]", "}"})
