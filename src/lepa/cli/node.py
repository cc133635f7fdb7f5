"""`lepa node …`: the machines."""

from collections.abc import Iterator
from typing import Any

from lepa.cli.alloc_view import allocation_table
from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import Json, moment, pairs, short, size, span, table
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, Shape, api, find_node, find_self, shaped
from lepa.kit.durations import SECOND, parse_duration, rfc3339
from lepa.model.errors import LepaError, invalid

DRAIN_DEADLINE_NS = 3600 * SECOND
DRAIN_POLL_S = 1.0
DRAIN_LOOKS_MAX = 7 * 24 * 3600
EVENTS_SHOWN = 10


# Status


@command()
@argument("node", required=False)
@flag("self", "The node of the asked agent.")
@flag("short", "Only the head and the allocations.")
@flag("allocs", "In the list: with the number of running allocations.")
@flag("stats", "With figures of the host's processors and file systems.")
@flag("verbose", "Whole ids, attributes and metadata.")
@flag("quiet", "In the list: only ids.", short="q")
@flag("os", "In the list: with the operating system.")
@option("filter", "In the list: only nodes for which this expression holds.", metavar="expression")
@option("per-page", "In the list: how many to show.", kind=int, metavar="count")
@option("page-token", "In the list: where to begin.", metavar="token")
@shaped
@api
@with_ui("clients")
def status(session: Session, node: str | None, shape: Shape, **given: Any) -> None:
    """List nodes, or show one with its drivers, its resources and its allocations."""
    if node is None and not given["self"]:
        _list(session, shape, **given)
        return
    found = find_self(session) if given["self"] else find_node(session, node or "")
    if shape:
        session.out.line(shape.render(found))
        return
    _show(session, found, short_form=given["short"], stats=given["stats"], verbose=given["verbose"])


def _list(session: Session, shape: Shape, **given: Any) -> None:
    query = {
        "filter": given["filter"],
        "per_page": given["per_page"],
        "next_token": given["page_token"],
        "os": True if given["os"] else None,
    }
    answer = session.nomad.get("/v1/nodes", query)
    nodes: list[Json] = answer.value or []
    if shape:
        session.out.line(shape.render(nodes))
        return
    if given["quiet"]:
        session.out.line("\n".join(short(node["ID"], given["verbose"]) for node in nodes))
        return
    session.out.line(node_table(session, nodes, **given) if nodes else "No nodes registered")
    if answer.next_token:
        session.out.line(f"\nResults have been paginated. To get the next page run:\n\n-page-token {answer.next_token}")


def node_table(
    session: Session, nodes: list[Json], *, verbose: bool = False, allocs: bool = False, os: bool = False, **_: Any
) -> str:
    """Nodes in columns. allocs: ask each for its allocations, and count the running ones."""
    header = ["ID", "Node Pool", "DC", "Name", "Class", *(["Address", "Version"] if verbose else [])]
    header += [*(["OS"] if os else []), "Drain", "Eligibility", "Status", *(["Running Allocs"] if allocs else [])]
    rows = []
    for node in nodes:
        row: list[object] = [short(node["ID"], verbose), node["NodePool"], node["Datacenter"], node["Name"]]
        row += [node["NodeClass"], *([node["Address"], node["Version"]] if verbose else [])]
        row += [(node.get("Attributes") or {}).get("os.name", "")] if os else []
        row += [node["Drain"], node["SchedulingEligibility"], node["Status"]]
        row += [_running(session, node["ID"])] if allocs else []
        rows.append(row)
    return table(header, rows)


def _running(session: Session, node: str) -> int:
    allocations = session.nomad.get(f"/v1/node/{node}/allocations").value or []
    return sum(each.get("ClientStatus") == "running" for each in allocations)


def _show(session: Session, node: Json, *, short_form: bool, stats: bool, verbose: bool) -> None:
    out = session.out
    figures = _figures(session, node)
    out.line(pairs(_head(node, figures, verbose)))
    allocations = session.nomad.get(f"/v1/node/{node['ID']}/allocations").value or []
    if not short_form:
        _show_drivers(session, node, verbose)
        _show_host(session, node)
        _show_events(session, node)
        _show_allocated(session, node, allocations)
        _show_use(session, figures, stats)
    out.title("Allocations")
    shown = [{**each, "JobVersion": (each.get("Job") or {}).get("Version", 0)} for each in allocations]
    out.line(allocation_table(shown, session.now_ns(), verbose=verbose, with_job=True))
    if verbose:
        for title, values in (("Attributes", node["Attributes"]), ("Meta", node["Meta"])):
            out.title(title)
            out.line(pairs(sorted(values.items())) if values else "None")


def _figures(session: Session, node: Json) -> Json:
    """What the host uses now; nothing where the node cannot be asked."""
    try:
        found: Json = session.nomad.get("/v1/client/stats", {"node_id": node["ID"]}).value or {}
    except LepaError:
        return {}
    return found


def _head(node: Json, figures: Json, verbose: bool) -> Iterator[tuple[str, object]]:
    yield "ID", node["ID"]
    yield "Name", node["Name"]
    yield "Node Pool", node["NodePool"]
    yield "Class", node["NodeClass"]
    yield "DC", node["Datacenter"]
    yield "Drain", _drain(node)
    yield "Eligibility", node["SchedulingEligibility"]
    yield "Status", node["Status"]
    if node.get("StatusDescription"):
        yield "Status Description", node["StatusDescription"]
    if uptime := figures.get("Uptime"):
        yield "Uptime", span(uptime)
    yield "Host Volumes", ",".join(sorted(node.get("HostVolumes") or {}))
    yield "Host Networks", ",".join(sorted(node.get("HostNetworks") or {}))
    if not verbose:
        healthy = sorted(name for name, driver in (node.get("Drivers") or {}).items() if driver["Healthy"])
        yield "Driver Status", ",".join(healthy)


def _drain(node: Json) -> str:
    strategy = node.get("DrainStrategy")
    if not strategy:
        return "false"
    if strategy["Deadline"] < 0:
        return "true; force drain"
    if strategy["Deadline"] == 0:
        return "true; no deadline"
    return f"true; {rfc3339(moment(strategy['ForceDeadline']) // SECOND * SECOND)} deadline"


def _show_drivers(session: Session, node: Json, verbose: bool) -> None:
    if not verbose:
        return
    rows = [
        (name, driver["Detected"], driver["Healthy"], driver["HealthDescription"], session.ago(driver["UpdateTime"]))
        for name, driver in sorted((node.get("Drivers") or {}).items())
    ]
    session.out.title("Drivers")
    session.out.line(table(("Driver", "Detected", "Healthy", "Message", "Time"), rows))


def _show_host(session: Session, node: Json) -> None:
    volumes = node.get("HostVolumes") or {}
    if volumes:
        session.out.title("Host Volumes")
        mounted = [(name, each["ReadOnly"], each["Path"]) for name, each in sorted(volumes.items())]
        session.out.line(table(("Name", "ReadOnly", "Source"), mounted))
    groups = (node.get("NodeResources") or {}).get("Devices") or []
    if groups:
        session.out.title("Devices")
        devices = [
            (f"{group['Vendor']}/{group['Type']}/{group['Name']}", each["ID"], each["Healthy"])
            for group in groups
            for each in group["Instances"] or []
        ]
        session.out.line(table(("Device", "ID", "Healthy"), devices))
    networks = node.get("HostNetworks") or {}
    if networks:
        session.out.title("Host Networks")
        rows = [
            (name, each["CIDR"], each["Interface"], each["ReservedPorts"]) for name, each in sorted(networks.items())
        ]
        session.out.line(table(("Name", "CIDR", "Interface", "ReservedPorts"), rows))


def _show_events(session: Session, node: Json) -> None:
    newest = list(reversed((node.get("Events") or [])[-EVENTS_SHOWN:]))
    if newest:
        session.out.title("Node Events")
        rows = [(session.ago(each["Timestamp"]), each["Subsystem"], each["Message"]) for each in newest]
        session.out.line(table(("Time", "Subsystem", "Message"), rows))


def _show_allocated(session: Session, node: Json, allocations: list[Json]) -> None:
    """What running allocations were given of what there is."""
    resources, reserved = node["NodeResources"], node["ReservedResources"]
    cpu_total = resources["Cpu"]["CpuShares"] - reserved["Cpu"]["CpuShares"]
    memory_total = resources["Memory"]["MemoryMB"] - reserved["Memory"]["MemoryMB"]
    disk_total = resources["Disk"]["DiskMB"] - reserved["Disk"]["DiskMB"]
    live = [each for each in allocations if each.get("ClientStatus") in ("running", "pending")]
    cpu = memory = disk = 0
    for each in live:
        given = each.get("AllocatedResources") or {}
        disk += (given.get("Shared") or {}).get("DiskMB", 0)
        for task in (given.get("Tasks") or {}).values():
            cpu += task["Cpu"]["CpuShares"]
            memory += task["Memory"]["MemoryMB"]
    mib = 1024 * 1024
    row = (
        f"{cpu}/{cpu_total} MHz",
        f"{size(memory * mib)}/{size(memory_total * mib)}",
        f"{size(disk * mib)}/{size(disk_total * mib)}",
        len(live),
    )
    session.out.title("Allocated Resources")
    session.out.line(table(("CPU", "Memory", "Disk", "Alloc Count"), [row]))


def _show_use(session: Session, figures: Json, stats: bool) -> None:
    if not figures:
        session.out.line("\nThe node cannot be asked for its present use.")
        return
    memory = figures.get("Memory") or {}
    disk = figures.get("AllocDirStats") or {}
    used, total = memory.get("Used", 0), memory.get("Total", 0)
    ticks = f"{figures.get('CPUTicksConsumed', figures.get('CpuTicksConsumed', 0)):.0f} MHz"
    session.out.title("Host Resource Utilization")
    row = (ticks, f"{size(used)}/{size(total)}", f"{size(disk.get('Used', 0))}/{size(disk.get('Size', 0))}")
    session.out.line(table(("CPU", "Memory", "Disk"), [row]))
    if not stats:
        return
    session.out.title("CPU Stats")
    rows = [
        (cpu["CPU"], f"{cpu['User']:.1f}%", f"{cpu['System']:.1f}%", f"{cpu['Idle']:.1f}%")
        for cpu in figures.get("CPU") or ()
    ]
    session.out.line(table(("CPU", "User", "System", "Idle"), rows))
    session.out.title("Disk Stats")
    disks = [
        (each["Device"], each["Mountpoint"], size(each["Size"]), size(each["Used"]), f"{each['UsedPercent']:.1f}%")
        for each in figures.get("DiskStats") or ()
    ]
    session.out.line(table(("Device", "MountPoint", "Size", "Used", "Used Percent"), disks))


# Eligibility and drain


@command()
@argument("node", required=False)
@flag("enable", "New allocations may be placed on the node.")
@flag("disable", "None may.")
@flag("self", "The node of the asked agent.")
@api
def eligibility(session: Session, node: str | None, enable: bool, disable: bool, **given: bool) -> None:
    """Say whether a node may get new allocations; those that run there stay."""
    if enable == disable:
        raise invalid("give either -enable or -disable")
    found = _chosen(session, node, given["self"])
    wanted = "eligible" if enable else "ineligible"
    body = {"NodeID": found["ID"], "Eligibility": wanted}
    session.nomad.put(f"/v1/node/{found['ID']}/eligibility", body)
    session.out.line(f'Node "{found["ID"]}" scheduling eligibility set: {wanted} for scheduling')


def _chosen(session: Session, node: str | None, self_: bool) -> Json:
    if (node is None) != self_:
        raise invalid("name one node, or give -self")
    return find_self(session) if self_ else find_node(session, node or "")


@command()
@argument("node", required=False)
@flag("enable", "Begin: move the allocations of the node elsewhere.")
@flag("disable", "End it: the node may get allocations again.")
@flag("self", "The node of the asked agent.")
@option("deadline", "After this long what is still there is stopped at once.", default="1h", metavar="duration")
@flag("force", "Stop everything at once.")
@flag("no-deadline", "Wait as long as it takes.")
@flag("ignore-system", "Leave allocations of system jobs.")
@flag("keep-ineligible", "With -disable: the node gets no new allocations all the same.")
@option("m", "Why, kept with the node.", metavar="message")
@repeated("meta", "Facts kept with the node's last drain.", metavar="key=value")
@flag("detach", "Do not wait until the node is empty.")
@flag("monitor", "Change nothing: only wait until the node is empty.")
@flag("yes", "Accepted: nothing is asked.", hidden=True)
@api
def drain(session: Session, node: str | None, **given: Any) -> int:
    """Move the allocations of a node elsewhere, and keep new ones away.

    Batch jobs may run to their end before the deadline; system jobs are stopped last.
    """
    if [given["enable"], given["disable"], given["monitor"]].count(True) != 1:
        raise invalid("give one of -enable, -disable and -monitor")
    found = _chosen(session, node, given["self"])
    identifier = found["ID"]
    if given["monitor"]:
        if not found.get("DrainStrategy"):
            session.out.line(f'Node "{identifier}" is not being drained; -enable begins it')
            return 0
        return _watch_drain(session, identifier)
    spec = None
    if given["enable"]:
        spec = {"Deadline": _deadline(given), "IgnoreSystemJobs": given["ignore_system"]}
    meta = dict(text.partition("=")[::2] for text in given["meta"])
    if given["m"]:
        meta["message"] = given["m"]
    body = {
        "NodeID": identifier,
        "DrainSpec": spec,
        "MarkEligible": given["disable"] and not given["keep_ineligible"],
        "Meta": meta,
    }
    session.nomad.put(f"/v1/node/{identifier}/drain", body)
    session.out.line(f'Node "{identifier}" drain strategy {"set" if spec else "unset"}')
    return 0 if given["detach"] or spec is None else _watch_drain(session, identifier)


def _deadline(given: dict[str, Any]) -> int:
    """Nanoseconds; 0 is without end, below 0 at once."""
    if given["force"] and given["no_deadline"]:
        raise invalid("-force and -no-deadline exclude each other")
    if given["force"]:
        return -1 * SECOND
    if given["no_deadline"]:
        return 0
    try:
        deadline = parse_duration(given["deadline"])
    except ValueError as error:
        raise invalid(f"-deadline: {error}") from error
    if deadline <= 0:
        raise invalid("-deadline is longer than nothing; -force stops at once, -no-deadline never")
    return deadline


def _watch_drain(session: Session, identifier: str) -> int:
    """Tell what happens on the node until its drain is over."""
    session.out.line(f"{session.clock()}: Ctrl-C to stop monitoring: will not cancel the node drain")
    known: dict[str, str] = {}
    for _ in range(DRAIN_LOOKS_MAX):
        node = session.nomad.get(f"/v1/node/{identifier}").value
        allocations = session.nomad.get(f"/v1/node/{identifier}/allocations").value or []
        for line in _moves(known, allocations):
            session.out.line(f"{session.clock()}: {line}")
        session.out.flush()
        if not node.get("DrainStrategy"):
            session.out.line(f"{session.clock()}: Drain complete for node {identifier}")
            return 0
        session.sleep(DRAIN_POLL_S)
    return 1


def _moves(known: dict[str, str], allocations: list[Json]) -> Iterator[str]:
    for each in allocations:
        transition = each.get("DesiredTransition") or {}
        marked = bool(transition.get("Migrate"))
        now = f"{each.get('ClientStatus')}/{each.get('DesiredStatus')}/{marked}"
        before = known.get(each["ID"])
        known[each["ID"]] = now
        if before is None or before == now:
            continue
        yield f'Alloc "{each["ID"]}" ' + (
            "marked for migration" if marked and before.endswith("False") else f"status {each.get('ClientStatus')}"
        )


# Metadata


@command()
@argument("pairs", many=True, required=False, shown="<key>=<value> ...")
@repeated("unset", "Key to take away; several are parted by commas.", metavar="key")
@option("node-id", "The node; without it, that of the asked agent.", default="", metavar="id")
@api
def meta_apply(session: Session, pairs: tuple[str, ...], unset: tuple[str, ...], node_id: str) -> None:
    """Change the metadata of a node. What is set here lasts as long as the node's data directory."""
    changes: dict[str, str | None] = {key: None for text in unset for key in text.split(",")}
    for text in pairs:
        key, equals, value = text.partition("=")
        if not equals:
            raise invalid(f'metadata is given as key=value, not "{text}"')
        changes[key] = value
    if not changes:
        raise invalid("give key=value pairs, or -unset")
    node = find_node(session, node_id)
    session.nomad.post("/v1/client/metadata", {"NodeID": node["ID"], "Meta": changes}, {"node_id": node["ID"]})


@command()
@option("node-id", "The node; without it, that of the asked agent.", default="", metavar="id")
@shaped
@api
def meta_read(session: Session, shape: Shape, node_id: str) -> None:
    """Print the metadata of a node: all of it, and what was set while it ran."""
    node = find_node(session, node_id)
    answer = session.nomad.get("/v1/client/metadata", {"node_id": node["ID"]}).value
    if shape:
        session.out.line(shape.render(answer))
        return
    for title, key in (("All Meta", "Meta"), ("Dynamic Meta", "Dynamic"), ("Static Meta", "Static")):
        values = answer.get(key) or {}
        session.out.title(title)
        session.out.line(table(("Key", "Value"), sorted(values.items())) if values else "None")
