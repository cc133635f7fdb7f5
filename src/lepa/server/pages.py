"""Pure: filters, prefixes and pages of lists.

A page's token is the key of the first item of the next page. Filters apply before items are counted.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar

from lepa.kit.bexpr import Filter, FilterError, compile_filter
from lepa.model.errors import LepaError, invalid
from lepa.rpc.requests import ReadRequest, Request

T = TypeVar("T")


class Page(NamedTuple):
    """A list's answer. next_token "": nothing follows."""

    items: tuple[Any, ...]
    next_token: str = ""


def page_of(
    rows: Iterable[T],
    request: ReadRequest,
    *,
    token: Callable[[T], str],
    stub: Callable[[T], Any] = lambda row: row,
    where: Callable[[T], bool] | None = None,
) -> Page:
    """The page that a request asks for. rows: in order, from the request's token on. where: what counts at all."""
    items: list[Any] = []
    wanted = _filter(request.filter)
    for row in _sifted(wanted, rows if where is None else filter(where, rows)):
        if request.per_page and len(items) == request.per_page:
            return Page(tuple(items), token(row))
        items.append(stub(row))
    return Page(tuple(items))


def since(rows: Iterable[T], request: ReadRequest, key: Callable[[T], str], *, reverse: bool = False) -> Iterable[T]:
    """Rows that come in the order of their token, from the request's token on; reverse: the other way round."""
    start = request.next_token
    if reverse:
        return (row for row in reversed(list(rows)) if not start or key(row) <= start)
    return (row for row in rows if key(row) >= start)


def created_token(row: Any) -> str:
    """The token of lists in the order of creation."""
    return f"{row.create_index}.{row.id}"


def created_start(request: ReadRequest) -> tuple[int, str] | None:
    """Where a list in the order of creation begins, from such a token."""
    if not request.next_token:
        return None
    index, _, row_id = request.next_token.partition(".")
    if not index.isdigit():
        raise invalid(f'invalid next_token "{request.next_token}"')
    return int(index), row_id


def namespaced_token(row: Any) -> str:
    """The token of lists by namespace and id."""
    return f"{row.namespace}.{row.id}"


def namespaced_start(request: ReadRequest) -> tuple[str, str] | None:
    """Where a list by namespace and id begins, from such a token."""
    if not request.next_token:
        return None
    namespace, _, row_id = request.next_token.partition(".")
    return namespace, row_id


def in_namespace(request: ReadRequest) -> Callable[[Any], bool]:
    """Whether a row is in the request's namespace; "*" is all of them that the caller may see."""
    wanted, names = request.namespace or "default", request.visible
    if names is None:
        return (lambda row: True) if wanted == "*" else (lambda row: bool(row.namespace == wanted))
    return lambda row: wanted in ("*", row.namespace) and row.namespace in names


def visible(request: Request) -> Callable[[str], bool]:
    """Whether the caller may see a namespace."""
    names = request.visible
    return (lambda namespace: True) if names is None else names.__contains__


def _filter(text: str) -> Filter | None:
    if not text:
        return None
    try:
        return compile_filter(text)
    except FilterError as error:
        raise invalid(f"failed to create result paginator: failed to read filter expression: {error}") from error


def _sifted(wanted: Filter | None, rows: Iterable[T]) -> Iterator[T]:
    try:
        yield from rows if wanted is None else wanted.sift(rows)
    except FilterError as error:
        raise LepaError("invalid", f"failed to read result page: {error}") from error
