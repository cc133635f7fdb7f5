"""Pure: reads in one shape: what is watched, and a function from a snapshot to the answer."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from lepa.rpc.methods import Method
from lepa.rpc.requests import ReadRequest
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch


class Query(NamedTuple):
    """One read. watches: what its index is made of. answer: the value, or a Page of a list.

    index_of: the answer's own index, where that is not the newest of what is watched; a change that leaves it as it
    was does not end a wait. ends: whether an answer ends a wait, where not every newer one does.
    """

    watches: Callable[[Any], tuple[Watch, ...]]
    answer: Callable[[Snapshot, Any], Any]
    index_of: Callable[[Any], int] | None = None
    ends: Callable[[Any, Any], bool] | None = None


Answerable = Mapping[Method[Any, Any], Query]


def table(*names: str) -> Callable[[Any], tuple[Watch, ...]]:
    """Watch whole tables."""
    watches = tuple(Watch(name) for name in names)
    return lambda request: watches


def row(name: str) -> Callable[[ReadRequest], tuple[Watch, ...]]:
    """Watch the row with the request's id."""
    return lambda request: (Watch(name, "id", request.id),)


def group(name: str, grouping: str) -> Callable[[ReadRequest], tuple[Watch, ...]]:
    """Watch the rows that share the request's id."""
    return lambda request: (Watch(name, grouping, request.id),)


def namespace_of(request: ReadRequest) -> str:
    """The namespace in which one object is asked for."""
    return request.namespace or "default"


def job_key(request: ReadRequest) -> tuple[str, str]:
    """The job that is asked about."""
    return namespace_of(request), request.id


def job_row(name: str) -> Callable[[ReadRequest], tuple[Watch, ...]]:
    """Watch the row of the job asked about."""
    return lambda request: (Watch(name, "id", job_key(request)),)


def job_group(name: str) -> Callable[[ReadRequest], tuple[Watch, ...]]:
    """Watch what belongs to the job asked about."""
    return lambda request: (Watch(name, "job", job_key(request)),)
