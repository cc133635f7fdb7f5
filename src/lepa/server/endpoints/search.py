"""Pure: finding things by the beginning of their id, or by a part of their name."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final

from lepa.model.errors import denied, invalid
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.acl.access import Access
from lepa.server.endpoints.job_reads import scaling_policies
from lepa.server.pages import in_namespace
from lepa.server.settings import SearchSettings
from lepa.state.snapshot import Snapshot

USUAL = SearchSettings()

Find = Callable[[Snapshot, r.SearchRequest, Access], Iterator[str]]
Hit = tuple[str, tuple[str, ...]]


def search_prefix(
    snapshot: Snapshot, request: r.SearchRequest, access: Access, limits: SearchSettings = USUAL
) -> r.SearchResponse:
    """Ids that begin with a prefix, by context; only what the caller may see."""
    wanted = _contexts(request, _BY_PREFIX, access)
    matches: dict[str, Any] = {}
    truncations = {}
    for context in wanted:
        found = list(islice(_BY_PREFIX[context](snapshot, request, access), limits.limit_query + 1))
        truncations[context] = len(found) > limits.limit_query
        matches[context] = found[: limits.limit_query]
    return r.SearchResponse(matches=matches, truncations=truncations, index=snapshot.index)


def search_fuzzy(
    snapshot: Snapshot, request: r.SearchRequest, access: Access, limits: SearchSettings = USUAL
) -> r.SearchResponse:
    """Names that contain a text, in any case, with where they are; only what the caller may see."""
    text = request.text or request.prefix
    if not limits.fuzzy_enabled:
        raise invalid("fuzzy search is not enabled")
    if len(text) < limits.min_term_length:
        raise invalid(f"fuzzy search query must be at least {limits.min_term_length} characters, got {len(text)}")
    contexts = {**_BY_PREFIX, **dict.fromkeys(_FUZZY)}
    matches: dict[str, Any] = {}
    truncations = {}
    for context in _contexts(request, contexts, access):
        if context in _FUZZY:
            hits = (hit for hit in _FUZZY[context](snapshot, request, access) if text.lower() in hit[0].lower())
            found = sorted(
                islice(hits, limits.limit_results + 1), key=lambda hit: (hit[0].lower().index(text.lower()), hit)
            )
        else:
            by_prefix = r.SearchRequest(prefix=text, namespace=request.namespace)
            ids = islice(_BY_PREFIX[context](snapshot, by_prefix, access), limits.limit_results + 1)
            found = [(one, ()) for one in ids]
        truncations[context] = len(found) > limits.limit_results
        shown = found[: limits.limit_results]
        if shown:
            matches[context] = [{"ID": name, "Scope": list(scope)} for name, scope in shown]
    return r.SearchResponse(matches=matches, truncations=truncations, index=snapshot.index)


def _contexts(request: r.SearchRequest, known: Mapping[str, Any], access: Access) -> list[str]:
    """The contexts asked for, of which the caller may see something. Raises LepaError(denied) when there are none."""
    asked = request.context
    if asked not in ("", "all") and asked not in known:
        raise invalid(f"context must be one of {', '.join(sorted(known))}, all; got {asked!r}")
    wanted = list(known) if asked in ("", "all") else [asked]
    allowed = [context for context in wanted if _allowed(context, request.namespace or "default", access)]
    if not allowed:
        raise denied()
    return allowed


def _allowed(context: str, namespace: str, access: Access) -> bool:
    """Whether anything of a context may be seen."""
    if context in ("nodes", "classes"):
        return access.scope("node", "read")
    if context in ("node_pools", "namespaces"):
        return access.accessor_id != "" or access.workload is not None or access.management
    if context == "vars":
        return access.any_variable(namespace)
    needed = "list-scaling-policies" if context == "scaling_policy" else "read-job"
    return access.somewhere(needed) if namespace == "*" else access.namespace(namespace, needed)


# By prefix


def _uuids(name: str) -> Find:
    """Objects whose id is a UUID; a prefix that ends in a hyphen, or leaves them out, is found too."""

    def find(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[str]:
        mine = in_namespace_of(request, access)
        wanted = request.prefix.lower().replace("-", "")
        for row in snapshot.tables[name].with_prefix(request.prefix[:8].lower().rstrip("-")):
            if row.id.replace("-", "").startswith(wanted) and mine(row):
                yield row.id

    return find


def _jobs(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[str]:
    mine = in_namespace_of(request, access)
    return (job.id for job in snapshot.jobs() if mine(job) and job.id.startswith(request.prefix))


def _named(name: str) -> Find:
    def find(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[str]:
        return (row.name for row in snapshot.tables[name].with_prefix(request.prefix) if _seen(name, row, access))

    return find


def _seen(table: str, row: Any, access: Access) -> bool:
    return access.sees_namespace(row.name) if table == "namespaces" else access.node_pool(row.name, "read")


def _variables(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[str]:
    mine = in_namespace(r.ReadRequest(namespace=request.namespace))
    return (
        row.path
        for row in snapshot.variables()
        if mine(row) and row.path.startswith(request.prefix) and access.variable(row.namespace, row.path, "list")
    )


def _policies(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[str]:
    found = scaling_policies(snapshot, request.namespace or "default")
    return (
        policy.id
        for policy in found
        if policy.id.startswith(request.prefix)
        and access.namespace(policy.target.get("Namespace", "default"), "list-scaling-policies")
    )


def in_namespace_of(request: r.SearchRequest, access: Access, needed: str = "read-job") -> Callable[[Any], bool]:
    """Whether an object is in the search's namespace and the caller may see it; nodes are in none."""
    mine = in_namespace(r.ReadRequest(namespace=request.namespace))
    allowed = cache(lambda namespace: access.namespace(namespace, needed))
    return lambda row: not hasattr(row, "namespace") or (mine(row) and allowed(row.namespace))


_BY_PREFIX: Final[Mapping[str, Find]] = {
    "allocs": _uuids("allocs"),
    "deployment": _uuids("deployments"),
    "evals": _uuids("evals"),
    "jobs": _jobs,
    "nodes": _uuids("nodes"),
    "node_pools": _named("node_pools"),
    "namespaces": _named("namespaces"),
    "scaling_policy": _policies,
    "vars": _variables,
}


# By a part of a name


def _fuzzy_jobs(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[Hit]:
    mine = in_namespace_of(request, access)
    return ((job.name, (job.namespace, job.id)) for job in snapshot.jobs() if mine(job))


def _fuzzy_inside(pick: Callable[[Any], Iterable[tuple[str, tuple[str, ...]]]]) -> Callable[..., Iterator[Hit]]:
    """Names inside jobs. pick: of a job, names and the path below it."""

    def find(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[Hit]:
        mine = in_namespace_of(request, access)
        for job in snapshot.jobs():
            if mine(job):
                for name, path in pick(job):
                    yield name, (job.namespace, job.id, *path)

    return find


def _services_of(job: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
    for group in job.task_groups:
        yield from ((service.name, (group.name,)) for service in group.services)
        for task in group.tasks:
            yield from ((service.name, (group.name, task.name)) for service in task.services)


def _configs_of(key: str) -> Callable[[Any], Iterator[tuple[str, tuple[str, ...]]]]:
    def pick(job: Any) -> Iterator[tuple[str, tuple[str, ...]]]:
        for group in job.task_groups:
            for task in group.tasks:
                value = task.config.get(key)
                if isinstance(value, str):
                    yield value, (group.name, task.name)

    return pick


def _classes(snapshot: Snapshot, request: r.SearchRequest, access: Access) -> Iterator[Hit]:
    return ((name, ()) for name in sorted({node.node_class for node in snapshot.nodes() if node.node_class}))


_FUZZY: Final[Mapping[str, Callable[[Snapshot, r.SearchRequest, Access], Iterator[Hit]]]] = {
    "jobs": _fuzzy_jobs,
    "nodes": lambda snapshot, request, access: ((node.name, (node.id,)) for node in snapshot.nodes()),
    "allocs": lambda snapshot, request, access: (
        (alloc.name, (alloc.namespace, alloc.id))
        for alloc in snapshot.allocations()
        if in_namespace_of(request, access)(alloc)
    ),
    "namespaces": lambda snapshot, request, access: (
        (one.name, ()) for one in snapshot.namespaces() if _seen("namespaces", one, access)
    ),
    "node_pools": lambda snapshot, request, access: (
        (one.name, ()) for one in snapshot.node_pools() if _seen("node_pools", one, access)
    ),
    "groups": _fuzzy_inside(lambda job: [(group.name, ()) for group in job.task_groups]),
    "tasks": _fuzzy_inside(
        lambda job: [(task.name, (group.name,)) for group in job.task_groups for task in group.tasks]
    ),
    "services": _fuzzy_inside(_services_of),
    "images": _fuzzy_inside(_configs_of("image")),
    "commands": _fuzzy_inside(_configs_of("command")),
    "classes": _classes,
}

SEARCHES: Final = {m.SEARCH_PREFIX: search_prefix, m.SEARCH_FUZZY: search_fuzzy}
