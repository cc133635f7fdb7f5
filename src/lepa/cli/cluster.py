"""Commands about the cluster as a whole: servers, the scheduler, any request, whatever an id names."""

import contextlib
import os
import shlex
import stat
import sys
from json import loads
from typing import Any

import click

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import Json, pairs, table
from lepa.cli.pages import PAGED, search, with_ui
from lepa.cli.session import Session, Shape, api, job_page, shaped
from lepa.model.errors import LepaError, invalid
from lepa.model.wire import go_name
from lepa.sdk.address import path_with

UNHEALTHY = 429
NEVER_WITH_BODY = frozenset({"GET", "HEAD", "DELETE"})

# Servers


@command()
@flag("verbose", "With protocol versions.")
@flag("detailed", "With all tags.")
@shaped
@api
@with_ui("servers")
def members(session: Session, shape: Shape, verbose: bool, detailed: bool) -> None:
    """List the servers that know each other, and which of them leads."""
    found = session.nomad.get("/v1/agent/members").value
    servers: list[Json] = sorted(found.get("Members") or (), key=lambda each: str(each["Name"]))
    if shape:
        session.out.line(shape.render(servers))
        return
    if detailed:
        rows: list[tuple[object, ...]] = [
            (
                each["Name"],
                each["Addr"],
                each["Port"],
                ",".join(f"{key}={value}" for key, value in sorted((each.get("Tags") or {}).items())),
            )
            for each in servers
        ]
        session.out.line(table(("Name", "Address", "Port", "Tags"), rows))
        return
    header = ["Name", "Address", "Port", "Status", "Leader", "Raft Version", "Build", "Datacenter", "Region"]
    header += ["Protocol"] if verbose else []
    leaders = _leaders(session, {(each.get("Tags") or {}).get("region", "") for each in servers})
    session.out.line(table(header, [_member(each, leaders, verbose) for each in servers]))


def _leaders(session: Session, regions: set[str]) -> set[tuple[str, str]]:
    """Region and internal address of the leaders; a region that does not answer has none to show."""
    found = set()
    for region in sorted(regions):
        with contextlib.suppress(LepaError):
            found.add((region, session.nomad.get("/v1/status/leader", {"region": region or None}).value or ""))
    return found


def _member(member: Json, leaders: set[tuple[str, str]], verbose: bool) -> list[object]:
    tags = member.get("Tags") or {}
    address = f"{tags.get('rpc_addr') or member['Addr']}:{tags.get('port', '')}"
    leads = (tags.get("region", ""), address) in leaders
    row = [member["Name"], member["Addr"], member["Port"], member["Status"], leads]
    row += [tags.get("raft_vsn", ""), tags.get("build", ""), tags.get("dc", ""), tags.get("region", "")]
    return [*row, *([member.get("ProtocolCur")] if verbose else [])]


@command()
@flag("stale", "Any server may answer.")
@api
def list_peers(session: Session, stale: bool) -> None:
    """List the servers that keep the state."""
    found = session.nomad.get("/v1/operator/raft/configuration", {"stale": stale or None}).value
    rows = [
        (
            each["Node"],
            each["ID"],
            each["Address"],
            "leader" if each["Leader"] else "follower",
            each["Voter"],
            each.get("RaftProtocol", ""),
        )
        for each in found["Servers"]
    ]
    session.out.line(table(("Node", "ID", "Address", "State", "Voter", "RaftProtocol"), rows))


@command()
@option("peer-id", "ID of the server, as list-peers shows it.", metavar="id")
@api
def remove_peer(session: Session, peer_id: str | None) -> None:
    """Take a server out for good. Stop it before; if it is started again, it joins anew."""
    if not peer_id:
        raise invalid("-peer-id is missing: `lepa operator raft list-peers` shows the IDs")
    session.nomad.delete("/v1/operator/raft/peer", {"id": peer_id})
    session.out.line(f'Removed peer with ID "{peer_id}"')


@command()
@option("peer-id", "ID of the server that is to lead, as list-peers shows it.", metavar="id")
@option("peer-address", "Or its address.", metavar="address")
@api
def transfer_leadership(session: Session, peer_id: str | None, peer_address: str | None) -> None:
    """Let a certain server lead."""
    if bool(peer_id) == bool(peer_address):
        raise invalid("name the server by -peer-id or by -peer-address: `lepa operator raft list-peers` shows both")
    named = {"id": peer_id} if peer_id else {"address": peer_address}
    found = session.nomad.put("/v1/operator/raft/transfer-leadership", params=named).value
    to = found["To"]["ID"]
    session.out.line(f'"{to}" leads already' if found["Noop"] else f'Leadership transferred to "{to}"')


AUTOPILOT = "/v1/operator/autopilot/configuration"


@command()
@shaped
@api
def autopilot_get_config(session: Session, shape: Shape) -> None:
    """Show how servers look after each other."""
    found = session.nomad.get(AUTOPILOT).value
    if shape:
        session.out.line(shape.render(found))
        return
    session.out.line(pairs([(key, value) for key, value in found.items() if not key.endswith("Index")]))


@command()
@option("cleanup-dead-servers", "true or false.", kind=bool, metavar="bool")
@option("max-trailing-logs", "Entries that a server may be behind.", kind=int, metavar="count")
@option("last-contact-threshold", "Time for which a leader may be silent.", metavar="duration")
@option("server-stabilization-time", "Time after which a new server counts.", metavar="duration")
@option("enable-redundancy-zones", "true or false.", kind=bool, metavar="bool")
@option("disable-upgrade-migration", "true or false.", kind=bool, metavar="bool")
@option("enable-custom-upgrades", "true or false.", kind=bool, metavar="bool")
@option("min-quorum", "Servers that stay in any case.", kind=int, metavar="count")
@api
def autopilot_set_config(session: Session, **given: Any) -> None:
    """Change how servers look after each other. What no flag names stays as it is."""
    config = session.nomad.get(AUTOPILOT).value
    named = {go_name(key): value for key, value in given.items()}
    config |= {key: value for key, value in named.items() if value is not None}
    if not session.nomad.put(AUTOPILOT, config, {"cas": config["ModifyIndex"]}).value:
        raise LepaError("conflict", "Autopilot's configuration was changed meanwhile: look at it again and retry")
    session.out.line("Configuration updated!")


@command()
@flag("json", "Print the API's JSON.")
@api
def autopilot_health(session: Session, json: bool) -> None:
    """Show how the servers do."""
    found = _health(session)
    if json:
        session.out.line(Shape(True, None).render(found))
        return
    session.out.line(f"Healthy: {str(found['Healthy']).lower()}")
    session.out.line(f"FailureTolerance: {found['FailureTolerance']}")
    session.out.line(f"Leader: {found['Leader']}")
    session.out.line(f"Voters: {', '.join(found['Voters'])}")
    header = ("Name", "Address", "SerfStatus", "Version", "Leader", "LastContact", "Healthy", "Voter", "Stable Since")
    keys = [name.replace(" ", "") for name in header]
    session.out.line(table(header, [tuple(each[key] for key in keys) for each in found["Servers"]]))


def _health(session: Session) -> Json:
    """The answer, which is a refusal while something is not well."""
    try:
        found: Json = session.nomad.get("/v1/operator/autopilot/health").value
    except LepaError as error:
        if error.facts.get("status") != UNHEALTHY:
            raise
        found = loads(error.message)
    return found


@command()
@shaped
@api
def agent_info(session: Session, shape: Shape) -> None:
    """Print figures of the asked agent."""
    found = session.nomad.get("/v1/agent/self").value
    if shape:
        session.out.line(shape.render(found))
        return
    for name, figures in sorted(found["stats"].items()):
        session.out.line(name)
        session.out.line(pairs(sorted(figures.items()), indent="  "))


# The scheduler

ALGORITHMS = ("binpack", "spread")
_SWITCHES = {
    "memory-oversubscription": ("MemoryOversubscriptionEnabled",),
    "reject-job-registration": ("RejectJobRegistration",),
    "pause-eval-broker": ("PauseEvalBroker",),
    "preempt-batch-scheduler": ("PreemptionConfig", "BatchSchedulerEnabled"),
    "preempt-service-scheduler": ("PreemptionConfig", "ServiceSchedulerEnabled"),
    "preempt-sysbatch-scheduler": ("PreemptionConfig", "SysBatchSchedulerEnabled"),
    "preempt-system-scheduler": ("PreemptionConfig", "SystemSchedulerEnabled"),
}


@command()
@shaped
@api
def get_config(session: Session, shape: Shape) -> None:
    """Print the scheduler's configuration."""
    answer = session.nomad.get("/v1/operator/scheduler/configuration").value
    if shape:
        session.out.line(shape.render(answer))
        return
    config = answer["SchedulerConfig"]
    preemption = config.get("PreemptionConfig") or {}
    session.out.line(
        pairs(
            [
                ("Scheduler Algorithm", config["SchedulerAlgorithm"]),
                ("Memory Oversubscription", config["MemoryOversubscriptionEnabled"]),
                ("Reject Job Registration", config["RejectJobRegistration"]),
                ("Pause Eval Broker", config["PauseEvalBroker"]),
                ("Node Limit for Feasibility Checks", config.get("NodeLimitForFeasibilityChecks", 0)),
                ("Preemption System Scheduler", preemption.get("SystemSchedulerEnabled", False)),
                ("Preemption Service Scheduler", preemption.get("ServiceSchedulerEnabled", False)),
                ("Preemption Batch Scheduler", preemption.get("BatchSchedulerEnabled", False)),
                ("Preemption SysBatch Scheduler", preemption.get("SysBatchSchedulerEnabled", False)),
                ("Modify Index", config.get("ModifyIndex", 0)),
            ]
        )
    )


@command()
@option("scheduler-algorithm", "binpack fills nodes up, spread keeps them even.", metavar="binpack|spread")
@flag("memory-oversubscription", "Tasks may use more memory than was set aside, up to memory_max.", default=None)
@flag("reject-job-registration", "Take no new jobs, dispatches and counts.", default=None)
@flag("pause-eval-broker", "Hand out no evaluations.", default=None)
@flag("preempt-batch-scheduler", "Batch jobs may evict what has a lower priority.", default=None)
@flag("preempt-service-scheduler", "Service jobs may.", default=None)
@flag("preempt-sysbatch-scheduler", "Sysbatch jobs may.", default=None)
@flag("preempt-system-scheduler", "System jobs may.", default=None)
@option("node-limit-for-feasibility-checks", "Kept for Nomad; every node is looked at.", kind=int, metavar="count")
@option("check-index", "Change it only if it has this modify index.", kind=int, metavar="index")
@api
def set_config(
    session: Session,
    scheduler_algorithm: str | None,
    check_index: int | None,
    node_limit_for_feasibility_checks: int | None,
    **given: bool | None,
) -> None:
    """Change the scheduler's configuration. What no flag names stays as it is."""
    path = "/v1/operator/scheduler/configuration"
    config = session.nomad.get(path).value["SchedulerConfig"]
    if scheduler_algorithm is not None:
        if scheduler_algorithm not in ALGORITHMS:
            raise invalid(f'-scheduler-algorithm is binpack or spread, not "{scheduler_algorithm}"')
        config["SchedulerAlgorithm"] = scheduler_algorithm
    if node_limit_for_feasibility_checks is not None:
        config["NodeLimitForFeasibilityChecks"] = node_limit_for_feasibility_checks
    for name, (*above, key) in _SWITCHES.items():
        value = given[name.replace("-", "_")]
        if value is not None:
            place = config if not above else config.setdefault(above[0], {})
            place[key] = value
    answer = session.nomad.put(path, config, {"cas": check_index}).value
    if not answer["Updated"]:
        raise LepaError("conflict", "Scheduler configuration was changed meanwhile: look at it again and retry")
    session.out.line("Scheduler configuration updated!")


@command()
@api
def collect(session: Session) -> None:
    """Forget ended jobs, evaluations, allocations and nodes at once, instead of after their time."""
    session.nomad.raw("PUT", "/v1/system/gc")


@command()
@api
def summaries(session: Session) -> None:
    """Count the allocations of all jobs again."""
    session.nomad.raw("PUT", "/v1/system/reconcile/summaries")


# Any request


@command()
@argument("path", shown="<path>")
@option("X", "The method: GET, or PUT when there is a body.", metavar="method")
@repeated("H", "Header of the request.", metavar="name:value")
@option("filter", "The filter parameter.", metavar="expression")
@flag("dryrun", "Print the curl command instead.")
@flag("verbose", "With the request and the answer's headers, on standard error.")
@api
def call(
    session: Session, path: str, X: str | None, H: tuple[str, ...], filter: str | None, dryrun: bool, verbose: bool
) -> None:
    """Make any request of the HTTP API and print the answer. A body is read from standard input when it is a pipe or a
    file; then the method is PUT unless -X names another."""
    body = _body() if X is None or X.upper() not in NEVER_WITH_BODY else None
    method = (X or ("PUT" if body else "GET")).upper()
    asked = path if path.startswith("/") else f"/v1/{path}"
    extra = dict(_header(each) for each in H)
    to = session.nomad.target
    if dryrun:
        words = ["curl", "-X", method, *(word for name, value in extra.items() for word in ("-H", f"{name}: {value}"))]
        words += ["-H", "X-Nomad-Token: $LEPA_TOKEN"] if to.token else []
        words += ["--data-binary", "@-"] if body else []
        session.out.line(shlex.join([*words, f"{to.url}{path_with(to, asked, {'filter': filter})}"]))
        return
    response = session.nomad.send(method, asked, {"filter": filter}, body, extra)
    if verbose:
        session.out.error(f"> {method} {path_with(to, asked, {'filter': filter})}")
        session.out.error(f"< {response.status} {response.reason}")
        for name, value in response.headers.items():
            session.out.error(f"< {name}: {value}")
    while chunk := response.read1(65536):
        session.out.write(chunk)


def _body() -> bytes | None:
    """Standard input, when somebody has put something there."""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (OSError, ValueError):
        return None
    return sys.stdin.buffer.read() or None if stat.S_ISREG(mode) or stat.S_ISFIFO(mode) else None


def _header(text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    if not colon:
        raise invalid(f'-H wants name:value, not "{text}"')
    return name.strip(), value.strip()


# Whatever an id names

SHOWN_BY: dict[str, tuple[str, ...]] = {
    "jobs": ("job", "status"),
    "allocs": ("alloc", "status"),
    "nodes": ("node", "status"),
    "evals": ("eval", "status"),
    "deployment": ("deployment", "status"),
    "namespaces": ("namespace", "status"),
    "node_pools": ("node", "pool", "info"),
}


@command()
@argument("identifier", required=False, shown="[id]")
@flag("verbose", "Whole ids.")
@api
@with_ui("jobs")
def status(session: Session, identifier: str | None, verbose: bool) -> Any:
    """Show the job, allocation, node, evaluation or deployment whose id begins so. Without an id, list the jobs."""
    if identifier is None:
        return _show(session, ("job", "status"), [])
    kind, found = search(session, identifier, SHOWN_BY)
    job = {"ID": found, "Namespace": session.nomad.target.namespace}
    session.page = job_page(job) if kind == "jobs" else PAGED.get(kind, "jobs").format(found)
    takes_verbose = kind not in ("namespaces", "node_pools")
    return _show(session, SHOWN_BY[kind], [*(["-verbose"] if verbose and takes_verbose else []), found])


def _show(session: Session, words: tuple[str, ...], arguments: list[str]) -> Any:
    """Run another command with the same agent and namespace."""
    from lepa.cli.main import root

    to = session.nomad.target
    same = [f"-address={to.url}", *([f"-namespace={to.namespace}"] if to.namespace else [])]
    same += [*([f"-region={to.region}"] if to.region else []), *([f"-token={to.token}"] if to.token else [])]
    same += ["-force-color"] if session.out.colour else ["-no-color"]
    chosen: click.Command | None = root()
    context = click.Context(root(), info_name="lepa")
    for word in words:
        assert isinstance(chosen, click.Group)
        chosen = chosen.get_command(context, word)
    assert chosen is not None
    return chosen.main([*same, *arguments], prog_name=f"lepa {' '.join(words)}", standalone_mode=False)
