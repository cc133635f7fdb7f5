"""`lepa top`: the cluster live: nodes, jobs and allocations with what they use, drawn by textual (extra `tui`).

A look asks for lists in one page each, and for the use of a bounded number of nodes and allocations, so that it costs
an agent about as much as a status page does. In a pipe, or with -once, one look is printed as tables.
"""

from lepa.cli import top_view as view
from lepa.cli.flags import command, flag, option
from lepa.cli.output import Json
from lepa.cli.session import Session, api
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import LepaError, invalid
from lepa.sdk.address import Params

ROWS_MAX = 1_000
HOSTS_ASKED, USAGES_ASKED = 20, 40
"""Nodes and allocations whose use is asked for in one look."""
INTERVAL_LEAST_S = 0.2


@command()
@option("interval", "Time between two looks.", default="2s", metavar="duration")
@flag("once", "Print one look as tables, and end; so it is in a pipe.")
@api
def top(session: Session, interval: str, once: bool) -> None:
    """Show nodes, jobs and allocations live, with the processors and memory that they use, until q is pressed.

    Tab changes the table, / filters rows by a text, p pauses. Every namespace is shown that the token may read, unless
    -namespace names one.
    """
    try:
        interval_s = parse_duration(interval) / SECOND
    except ValueError as error:
        raise invalid(f"-interval: {error}") from error
    if interval_s < INTERVAL_LEAST_S:
        raise invalid(f"-interval is at least {INTERVAL_LEAST_S}s, not {interval}")
    if once or not session.out.live:
        session.out.line(view.text(look(session)))
        return
    try:
        from lepa.cli.top_app import TopApp
    except ImportError as error:
        raise LepaError(
            "unsupported", "lepa top draws with textual: install lepa[tui], or print one look with -once"
        ) from error
    TopApp(lambda: look(session), interval_s).run()


def look(session: Session) -> view.Look:
    """Ask the agent for everything that is shown."""
    query: Params = {"namespace": session.nomad.target.namespace or "*", "per_page": ROWS_MAX}
    nodes = _list(session, "/v1/nodes", {"resources": True, "per_page": ROWS_MAX})
    jobs = _list(session, "/v1/jobs", query)
    living = 'ClientStatus == "running" or ClientStatus == "pending"'
    allocations = _list(session, "/v1/allocations", {**query, "resources": True, "filter": living, "reverse": True})
    ready = [node["ID"] for node in nodes if node["Status"] == "ready"][:HOSTS_ASKED]
    running = [alloc for alloc in allocations if alloc["ClientStatus"] == "running"][:USAGES_ASKED]
    return view.Look(
        nodes=nodes,
        jobs=jobs,
        allocations=allocations,
        hosts={node: found for node in ready if (found := _use(session, "/v1/client/stats", {"node_id": node}))},
        usages={
            alloc["ID"]: found
            for alloc in running
            if (found := _use(session, f"/v1/client/allocation/{alloc['ID']}/stats", {"namespace": alloc["Namespace"]}))
        },
        leader=session.nomad.get("/v1/status/leader").value or "",
        now_ns=session.now_ns(),
    )


def _list(session: Session, path: str, query: Params) -> list[Json]:
    found: list[Json] = session.nomad.get(path, query).value or []
    return found


def _use(session: Session, path: str, query: Params) -> Json | None:
    """What something uses; None when its node does not answer."""
    try:
        found: Json | None = session.nomad.get(path, query).value
    except LepaError:
        return None
    return found
