"""`lepa service …`: names of running things."""

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, pairs, short, table
from lepa.cli.session import Session, Shape, api, segment, shaped
from lepa.model.errors import LepaError, not_found

HEALTHY = 'Status != "critical"'


@command()
@option("name", "Only names that begin so.", metavar="prefix")
@shaped
@api
def list_all(session: Session, shape: Shape, name: str | None) -> None:
    """List services and their tags."""
    found = session.nomad.get("/v1/services").value or []
    if name:
        found = [_named(each, name) for each in found]
    if shape:
        session.out.line(shape.render(found))
        return
    everywhere = session.nomad.target.namespace == "*"
    rows = [
        [service["ServiceName"], *([each["Namespace"]] if everywhere else []), ",".join(sorted(service["Tags"]))]
        for each in found
        for service in each["Services"]
    ]
    header = ["Service Name", *(["Namespace"] if everywhere else []), "Tags"]
    session.out.line(table(header, [_bare(row) for row in sorted(rows)]) if rows else "No service registrations found")


def _named(each: Json, prefix: str) -> Json:
    services = [service for service in each["Services"] if service["ServiceName"].startswith(prefix)]
    return {**each, "Services": services}


def _bare(row: list[str]) -> list[str]:
    """No tags are an empty list, not nothing known."""
    return [*row[:-1], f"[{row[-1]}]"]


@command()
@argument("name", shown="<service>")
@option("filter", "Only instances for which this expression holds.", metavar="expression")
@option("per-page", "How many to show.", kind=int, metavar="count")
@option("page-token", "Where to begin.", metavar="token")
@flag("healthy", "Only instances that are given to clients.")
@flag("verbose", "Whole ids, and everything that is known.")
@shaped
@api
def info(
    session: Session,
    name: str,
    shape: Shape,
    filter: str | None,
    per_page: int | None,
    page_token: str | None,
    healthy: bool,
    verbose: bool,
) -> None:
    """Show the instances of a service: where they answer and whose they are. The beginning of a name is enough."""
    namespace, found_name = _find(session, name)
    wanted = " and ".join(f"({each})" for each in (filter, HEALTHY if healthy else None) if each) or None
    query = {"namespace": namespace, "filter": wanted, "per_page": per_page, "next_token": page_token}
    answer = session.nomad.get(f"/v1/service/{segment(found_name)}", query)
    instances: list[Json] = answer.value or []
    if shape:
        session.out.line(shape.render(instances))
        return
    if not instances:
        session.out.line("No service registrations found")
        return
    ordered = sorted(instances, key=lambda each: (each["JobID"], each["Address"], each["Port"]))
    if verbose:
        session.out.line("\n\n".join(pairs(_facts(each)) for each in ordered))
    else:
        rows = [
            (
                each["JobID"],
                _address(each),
                f"[{','.join(each['Tags'] or ())}]",
                short(each["NodeID"]),
                short(each["AllocID"]),
            )
            for each in ordered
        ]
        session.out.line(table(("Job ID", "Address", "Tags", "Node ID", "Alloc ID"), rows))
    if answer.next_token:
        session.out.line(f"\nResults have been paginated. To get the next page run:\n\n-page-token {answer.next_token}")


def _find(session: Session, name: str) -> tuple[str, str]:
    """Namespace and name of the one service that is called so, or whose name begins so."""
    listed = session.nomad.get("/v1/services").value or []
    known = [(each["Namespace"], service["ServiceName"]) for each in listed for service in each["Services"]]
    exact = [pair for pair in known if pair[1] == name]
    matching = exact or [pair for pair in known if pair[1].startswith(name)]
    if not matching:
        raise not_found(f'No service with name or prefix "{name}" found; `lepa service list` lists them')
    if len(matching) > 1:
        candidates = table(("Namespace", "Service Name"), sorted(matching))
        raise LepaError("invalid", f"Prefix matched multiple services\n\n{candidates}")
    return matching[0]


def _address(instance: Json) -> str:
    host = f"[{instance['Address']}]" if ":" in instance["Address"] else instance["Address"]
    return f"{host}:{instance['Port']}" if instance["Port"] else host


def _facts(instance: Json) -> list[tuple[str, object]]:
    facts: list[tuple[str, object]] = [
        ("ID", instance["ID"]),
        ("Service Name", instance["ServiceName"]),
        ("Namespace", instance["Namespace"]),
        ("Job ID", instance["JobID"]),
        ("Alloc ID", instance["AllocID"]),
        ("Node ID", instance["NodeID"]),
        ("Datacenter", instance["Datacenter"]),
        ("Address", _address(instance)),
        ("Tags", f"[{','.join(instance['Tags'] or ())}]"),
    ]
    return [*facts, ("Status", instance["Status"])] if instance.get("Status") else facts


@command()
@argument("name", shown="<service>")
@argument("identifier", shown="<id>")
@api
def delete(session: Session, name: str, identifier: str) -> None:
    """Take one instance of a service away. A running allocation registers its own again."""
    session.nomad.delete(f"/v1/service/{segment(name)}/{segment(identifier)}")
    session.out.line("Successfully deleted service registration")
