"""`lepa namespace …` and `lepa node pool …`: parts of a cluster."""

import functools
import os
from collections.abc import Callable
from typing import Any

import click

from lepa.cli import output
from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.node import node_table
from lepa.cli.output import Json, pairs, table
from lepa.cli.session import Session, Shape, api, read_input, segment, shaped
from lepa.model.errors import LepaError, conflict, invalid, not_found

SPEC_KEYS = {
    "name": "Name",
    "description": "Description",
    "quota": "Quota",
    "meta": "Meta",
    "capabilities": "Capabilities",
    "node_pool_config": "NodePoolConfiguration",
    "scheduler_config": "SchedulerConfiguration",
    "enabled_task_drivers": "EnabledTaskDrivers",
    "disabled_task_drivers": "DisabledTaskDrivers",
    "enabled_network_modes": "EnabledNetworkModes",
    "disabled_network_modes": "DisabledNetworkModes",
    "default": "Default",
    "allowed": "Allowed",
    "denied": "Denied",
    "scheduler_algorithm": "SchedulerAlgorithm",
    "memory_oversubscription_enabled": "MemoryOversubscriptionEnabled",
}
"""How specification files call what the API calls otherwise."""


def _read_spec(path: str, block: str) -> Json:
    """A namespace or node pool from a file, HCL or JSON; `block "name" { … }` or its contents alone."""
    from lepa.agent.config_file import parse

    raw = parse(read_input(path).decode("utf-8", "replace"), "<stdin>" if path == "-" else path)
    if isinstance(labelled := raw.get(block), dict) and len(raw) == 1:
        name, contents = next(iter(labelled.items()), ("", {}))
        raw = {"name": name, **contents} if isinstance(contents, dict) else labelled
    return _translated(raw, path)


def _translated(raw: Json, path: str) -> Json:
    found: Json = {}
    for key, value in raw.items():
        wanted = SPEC_KEYS.get(key, key if key in SPEC_KEYS.values() else "")
        if not wanted:
            raise invalid(f'{path}: "{key}" is not known; known are {", ".join(sorted(SPEC_KEYS))}')
        found[wanted] = _translated(value, path) if isinstance(value, dict) and wanted != "Meta" else value
    return found


def paged(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a list -filter, -per-page and -page-token, as one argument `query`."""

    @functools.wraps(function)
    def run(*args: Any, filter: str | None, per_page: int | None, page_token: str | None, **values: Any) -> Any:
        query = {"filter": filter, "per_page": per_page, "next_token": page_token}
        return function(*args, query=query, **values)

    run = option("page-token", "Where to begin.", metavar="token")(run)
    run = option("per-page", "How many to show.", kind=int, metavar="count")(run)
    return option("filter", "Only those for which this expression holds.", metavar="expression")(run)


def _next_page(session: Session, token: str) -> None:
    if token:
        session.out.line(f"\nResults have been paginated. To get the next page run:\n\n-page-token {token}")


def _listed(session: Session, shape: Shape, path: str, nothing: str, query: dict[str, Any] | None = None) -> None:
    answer = session.nomad.get(path, query)
    found = answer.value or []
    if shape:
        session.out.line(shape.render(found))
    elif not found:
        session.out.line(nothing)
    else:
        rows = [(each["Name"], each["Description"]) for each in sorted(found, key=lambda each: str(each["Name"]))]
        session.out.line(table(("Name", "Description"), rows))
        _next_page(session, answer.next_token)


def _one(session: Session, list_path: str, path: Callable[[str], str], kind: str, name: str) -> Json:
    """The one thing that is called so, or whose name begins so."""
    names = [each["Name"] for each in session.nomad.get(list_path).value or []]
    matching = [name] if name in names else sorted(each for each in names if each.startswith(name))
    if not matching:
        raise not_found(f'No {kind} with name or prefix "{name}" found')
    if len(matching) > 1:
        raise LepaError("invalid", f"Prefix matched multiple {kind}s\n\n" + "\n".join(matching))
    found: Json = session.nomad.get(path(matching[0])).value
    return found


# Namespaces


def _namespace_path(name: str) -> str:
    return f"/v1/namespace/{segment(name)}"


def _namespace(session: Session, name: str) -> Json:
    return _one(session, "/v1/namespaces", _namespace_path, "namespace", name)


@command()
@shaped
@api
def namespace_list(session: Session, shape: Shape) -> None:
    """List namespaces."""
    _listed(session, shape, "/v1/namespaces", "No namespaces found")


@command()
@argument("name", shown="<namespace>")
@shaped
@api
def namespace_status(session: Session, name: str, shape: Shape) -> None:
    """Show a namespace: its description, its metadata, and what its jobs may use."""
    found = _namespace(session, name)
    if shape:
        session.out.line(shape.render(found))
        return
    capabilities = found.get("Capabilities") or {}
    session.out.line(
        pairs(
            [
                ("Name", found["Name"]),
                ("Description", found["Description"]),
                ("EnabledDrivers", ",".join(capabilities.get("EnabledTaskDrivers") or ("*",))),
                ("DisabledDrivers", ",".join(capabilities.get("DisabledTaskDrivers") or ())),
            ]
        )
    )
    if meta := found.get("Meta"):
        session.out.title("Metadata")
        session.out.line(pairs(sorted(meta.items())))
    if pools := found.get("NodePoolConfiguration"):
        session.out.title("Node Pool Configuration")
        allowed, denied = (",".join(pools.get(key) or ()) for key in ("Allowed", "Denied"))
        session.out.line(pairs([("Default", pools.get("Default", "")), ("Allowed", allowed), ("Denied", denied)]))


@command()
@argument("name", shown="<namespace>")
@option("t", "Print through a Go template.", metavar="template")
@api
def namespace_inspect(session: Session, name: str, t: str | None) -> None:
    """Print a namespace as the servers hold it."""
    session.out.line(Shape(as_json=True, template=t).render(_namespace(session, name)))


@command()
@argument("input", shown="<name|file|->")
@option("description", "What it is for.", metavar="text")
@option("quota", "Its quota.", metavar="name")
@repeated("meta", "Metadata.", metavar="key=value")
@flag("json", "Accepted: a file may be HCL or JSON.", hidden=True)
@api
def namespace_apply(
    session: Session, input: str, description: str | None, quota: str | None, meta: tuple[str, ...], json: bool
) -> None:
    """Create or change a namespace, from its name and flags or from a file.

    What neither the flags nor the file name stays as it was.
    """
    from_file = input == "-" or os.path.isfile(input)
    wanted = _read_spec(input, "namespace") if from_file else {"Name": input}
    if not wanted.get("Name"):
        raise invalid(f"{input}: the namespace has no name")
    answer = session.nomad.find(_namespace_path(wanted["Name"]))
    before: Json = answer.value if answer else {}
    flags: Json = {"Description": description, "Quota": quota, "Meta": _meta(meta) if meta else None}
    given = {key: value for key, value in flags.items() if value is not None}
    session.nomad.put(_namespace_path(wanted["Name"]), {**before, **wanted, **given})
    session.out.line(f'Successfully applied namespace "{wanted["Name"]}"!')


def _meta(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise invalid(f'-meta wants key=value, not "{text}"')
        found[key] = value
    return found


@command()
@argument("name", shown="<namespace>")
@api
def namespace_delete(session: Session, name: str) -> None:
    """Delete a namespace in which nothing runs."""
    session.nomad.delete(_namespace_path(name))
    session.out.line(f'Successfully deleted namespace "{name}"!')


# Node pools


def _pool_path(name: str, *rest: str) -> str:
    return "/".join([f"/v1/node/pool/{segment(name)}", *rest])


def _pool(session: Session, name: str) -> Json:
    return _one(session, "/v1/node/pools", _pool_path, "node pool", name)


@command()
@paged
@shaped
@api
def pool_list(session: Session, shape: Shape, query: dict[str, Any]) -> None:
    """List node pools."""
    _listed(session, shape, "/v1/node/pools", "No node pools found", query)


POOL_EXAMPLE = """\
# A node pool: nodes that are kept for certain jobs. A node says its pool by `client { node_pool = "example" }`.
node_pool "example" {
  description = "Example node pool"

  meta {
    owner = "platform"
  }
}
"""
POOL_EXAMPLE_JSON = {"Name": "example", "Description": "Example node pool", "Meta": {"owner": "platform"}}


@command()
@argument("file", required=False)
@option("out", "hcl or json.", default="hcl", metavar="format")
@flag("quiet", "Say nothing.")
def pool_init(file: str | None, out: str, quiet: bool) -> None:
    """Write an example of a node pool, pool.nomad.hcl unless named otherwise."""
    if out not in ("hcl", "json"):
        raise invalid(f'-out is hcl or json, not "{out}"')
    path = file or f"pool.nomad.{out}"
    text = POOL_EXAMPLE if out == "hcl" else output.pretty_json(POOL_EXAMPLE_JSON) + "\n"
    try:
        with open(path, "x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError as error:
        raise conflict(f"{path} already exists; name another file") from error
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    if not quiet:
        click.echo(f"Example node pool written to {path}\nApply it with: lepa node pool apply {path}")


@command()
@argument("pool", shown="<node pool>")
@shaped
@api
def pool_info(session: Session, pool: str, shape: Shape) -> None:
    """Show a node pool: its description, its metadata and its scheduler configuration."""
    found = _pool(session, pool)
    if shape:
        session.out.line(shape.render(found))
        return
    session.out.line(pairs([("Name", found["Name"]), ("Description", found["Description"])]))
    session.out.title("Metadata")
    session.out.line(pairs(sorted(found["Meta"].items())) if found.get("Meta") else "No metadata")
    session.out.title("Scheduler Configuration")
    config = found.get("SchedulerConfiguration")
    session.out.line(pairs(_scheduler(config)) if config else "No scheduler configuration")


def _scheduler(config: Json) -> list[tuple[str, Any]]:
    oversubscription = config.get("MemoryOversubscriptionEnabled")
    return [
        ("Scheduler Algorithm", config.get("SchedulerAlgorithm", "")),
        ("Memory Oversubscription Enabled", "" if oversubscription is None else oversubscription),
    ]


@command()
@argument("path", shown="<file|->")
@flag("json", "Accepted: a file may be HCL or JSON.", hidden=True)
@api
def pool_apply(session: Session, path: str, json: bool) -> None:
    """Create or change a node pool from a file, HCL or JSON."""
    wanted = _read_spec(path, "node_pool")
    if not wanted.get("Name"):
        raise invalid(f"{path}: the node pool has no name")
    session.nomad.put("/v1/node/pools", wanted)
    session.out.line(f'Successfully applied node pool "{wanted["Name"]}"!')


@command()
@argument("pool", shown="<node pool>")
@api
def pool_delete(session: Session, pool: str) -> None:
    """Delete a node pool that no node and no job is in."""
    session.nomad.delete(_pool_path(pool))
    session.out.line(f'Successfully deleted node pool "{pool}"!')


@command()
@argument("pool", shown="<node pool>")
@flag("verbose", "Whole ids.")
@paged
@shaped
@api
def pool_nodes(session: Session, pool: str, shape: Shape, query: dict[str, Any], verbose: bool) -> None:
    """List the nodes of a node pool."""
    answer = session.nomad.get(_pool_path(_pool(session, pool)["Name"], "nodes"), query)
    nodes = answer.value or []
    if shape:
        session.out.line(shape.render(nodes))
    else:
        session.out.line(node_table(session, nodes, verbose=verbose) if nodes else "No nodes found")
        _next_page(session, answer.next_token)


@command()
@argument("pool", shown="<node pool>")
@paged
@shaped
@api
def pool_jobs(session: Session, pool: str, shape: Shape, query: dict[str, Any]) -> None:
    """List the jobs of a node pool, in all namespaces unless one is named."""
    asked = {**query, "namespace": session.nomad.target.namespace or "*"}
    answer = session.nomad.get(_pool_path(_pool(session, pool)["Name"], "jobs"), asked)
    jobs = answer.value or []
    if shape:
        session.out.line(shape.render(jobs))
        return
    rows = [(job["ID"], job["Namespace"], job["Type"], job["Priority"], job["Status"]) for job in jobs]
    session.out.line(table(("ID", "Namespace", "Type", "Priority", "Status"), rows) if rows else "No jobs found")
    _next_page(session, answer.next_token)
