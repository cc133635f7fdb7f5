"""`lepa volume …`: storage that outlives allocations."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import Json, moment, pairs, short, size, table
from lepa.cli.session import Session, Shape, api, read_input, segment, shaped
from lepa.cli.volume_spec import EXAMPLES, REPEATED, body, literal
from lepa.model.errors import LepaError, conflict, invalid, not_found

SECRETS = "X-Nomad-CSI-Secrets"
POLL_S = 0.5
LOOKS_MAX = 600


# Status


@command()
@argument("volume", required=False)
@option("type", "Only volumes of this type: host or csi.", default="", metavar="type")
@option("node", "In the list: only host volumes of this node.", default="", metavar="node id")
@option("node-pool", "In the list: only host volumes of this pool.", default="", metavar="pool")
@flag("short", "Without the allocations.")
@flag("verbose", "With whole ids.")
@shaped
@api
def status(session: Session, volume: str | None, shape: Shape, **given: Any) -> None:
    """List volumes, or show one."""
    kinds = [given["type"]] if given["type"] else ["host", "csi"]
    if any(kind not in ("host", "csi") for kind in kinds):
        raise invalid(f'-type must be "host" or "csi", not "{given["type"]}"')
    if volume is None:
        _list(session, shape, kinds, **given)
        return
    kind, found = _find(session, volume, kinds)
    if shape:
        session.out.line(shape.render(found))
        return
    session.out.line(pairs(_host_head(found, given["verbose"]) if kind == "host" else _csi_head(found)))
    if not given["short"]:
        _allocations(session, found, verbose=given["verbose"])


def _list(session: Session, shape: Shape, kinds: Sequence[str], **given: Any) -> None:
    query = {"node_id": given["node"] or None, "node_pool": given["node_pool"] or None}
    found = {kind: session.nomad.get("/v1/volumes", {"type": kind, **query}).value or [] for kind in kinds}
    if shape:
        session.out.line(shape.render([each for volumes in found.values() for each in volumes]))
        return
    long = given["verbose"]
    if "host" in found:
        rows = [
            (
                short(v["ID"], long),
                v["Name"],
                v["Namespace"],
                v["PluginID"],
                short(v["NodeID"], long),
                v["NodePool"],
                v["State"],
            )
            for v in found["host"]
        ]
        header = ("ID", "Name", "Namespace", "Plugin ID", "Node ID", "Node Pool", "State")
        session.out.title("Dynamic Host Volumes")
        session.out.line(table(header, rows) if rows else "No dynamic host volumes")
    if "csi" in found:
        head = ("ID", "Name", "Namespace", "Plugin ID", "Schedulable", "Access Mode")
        listed = [
            (v["ID"], v["Name"], v["Namespace"], v["PluginID"], v["Schedulable"], v["AccessMode"] or "<none>")
            for v in found["csi"]
        ]
        session.out.title("Container Storage Interface")
        session.out.line(table(head, listed) if listed else "No CSI volumes")


def _find(session: Session, wanted: str, kinds: Sequence[str]) -> tuple[str, Json]:
    """The one volume with this id, this beginning of an id, or this name."""
    matching: list[tuple[str, Json]] = []
    for kind in kinds:
        volumes = session.nomad.get("/v1/volumes", {"type": kind, "prefix": wanted}).value or []
        if kind == "host" and not volumes:
            volumes = [v for v in session.nomad.get("/v1/volumes", {"type": kind}).value or [] if v["Name"] == wanted]
        exact = [each for each in volumes if each["ID"] == wanted]
        matching += [(kind, each) for each in exact or volumes]
    if not matching:
        raise not_found(f'No volume(s) with prefix or ID "{wanted}" found')
    if len(matching) > 1:
        listed = "\n".join(f"{kind} {each['ID']} {each['Name']}" for kind, each in matching)
        raise LepaError("invalid", f"Prefix matched multiple volumes\n\n{listed}")
    kind, stub = matching[0]
    query = {"namespace": stub["Namespace"]}
    return kind, session.nomad.get(f"/v1/volume/{kind}/{segment(stub['ID'])}", query).value


def _host_head(volume: Json, verbose: bool) -> list[tuple[str, object]]:
    capabilities = volume["RequestedCapabilities"] or []
    return [
        ("ID", volume["ID"]),
        ("Name", volume["Name"]),
        ("Namespace", volume["Namespace"]),
        ("Plugin ID", volume["PluginID"] or "<none>"),
        ("Node ID", short(volume["NodeID"], verbose)),
        ("Node Pool", volume["NodePool"]),
        ("Capacity", size(volume["CapacityBytes"])),
        ("State", volume["State"]),
        ("Host Path", volume["HostPath"]),
        ("Capabilities", ", ".join(f"{c['AccessMode']} {c['AttachmentMode']}" for c in capabilities)),
    ]


def _csi_head(volume: Json) -> list[tuple[str, object]]:
    return [
        ("ID", volume["ID"]),
        ("Name", volume["Name"]),
        ("Namespace", volume["Namespace"]),
        ("External ID", volume["ExternalID"]),
        ("Plugin ID", volume["PluginID"]),
        ("Provider", volume["Provider"]),
        ("Version", volume["ProviderVersion"]),
        ("Capacity", size(volume["Capacity"])),
        ("Schedulable", volume["Schedulable"]),
        ("Controllers Healthy", volume["ControllersHealthy"]),
        ("Controllers Expected", volume["ControllersExpected"]),
        ("Nodes Healthy", volume["NodesHealthy"]),
        ("Nodes Expected", volume["NodesExpected"]),
        ("Access Mode", volume["AccessMode"] or "<none>"),
        ("Attachment Mode", volume["AttachmentMode"] or "<none>"),
    ]


def _allocations(session: Session, volume: Json, *, verbose: bool) -> None:
    rows = [
        (
            short(each["ID"], verbose),
            short(each["NodeID"], verbose),
            each["TaskGroup"],
            each["JobID"],
            each["DesiredStatus"],
            each["ClientStatus"],
        )
        for each in volume.get("Allocations") or []
    ]
    session.out.title("Allocations")
    header = ("ID", "Node ID", "Task Group", "Job ID", "Desired", "Status")
    session.out.line(table(header, rows) if rows else "No allocations placed")


# Writing


@command()
@argument("file", required=False)
@flag("json", "As JSON rather than HCL.")
@option("type", "Of what type: host or csi.", default="csi", metavar="type")
def init(file: str | None, type: str, **given: bool) -> None:
    """Write an example volume specification, volume.hcl unless named otherwise."""
    if type not in EXAMPLES:
        raise invalid(f'-type must be "host" or "csi", not "{type}"')
    path = Path(file or ("volume.json" if given["json"] else "volume.hcl"))
    text = EXAMPLES[type]
    if given["json"]:
        import msgspec

        from lepa.agent.config_file import parse

        text = msgspec.json.format(msgspec.json.encode(parse(text, str(path), REPEATED)), indent=2).decode() + "\n"
    try:
        with path.open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError as error:
        raise conflict(f"File '{path}' already exists; name another one: lepa volume init FILE") from error
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    click.echo(f"Example volume specification written to {path}")


def _read(path: str, volume_id: str) -> tuple[str, Json]:
    from lepa.agent.config_file import parse

    text = literal(read_input(path).decode("utf-8", "replace"))
    return body(parse(text, "<stdin>" if path == "-" else path, REPEATED), volume_id)


def _namespace(volume: Json) -> Json:
    return {"namespace": volume["Namespace"]} if volume.get("Namespace") else {}


@command()
@argument("file", shown="<volume specification>")
@flag("detach", "Do not wait until the volume is ready.")
@flag("verbose", "With whole ids.")
@flag("policy-override", "Taken for the sake of scripts; there are no such policies here.", hidden=True)
@option("id", "Of the volume, instead of the one in the file.", default="", metavar="id")
@api
def create(session: Session, file: str, detach: bool, verbose: bool, policy_override: bool, id: str) -> None:
    """Make a volume as a file says, and register it."""
    kind, volume = _read(file, id)
    if kind == "host":
        made = session.nomad.put("/v1/volume/host/create", {"Volume": volume}, _namespace(volume)).value["Volume"]
        session.out.line(f"==> Created host volume {made['Name']} with ID {made['ID']}")
        if not detach:
            _wait_until_ready(session, made, verbose=verbose)
        return
    path = f"/v1/volume/csi/{segment(volume['ID'])}/create"
    for made in session.nomad.put(path, {"Volumes": [volume]}, _namespace(volume)).value["Volumes"] or []:
        session.out.line(f"Created external volume {made['ExternalID']} with ID {made['ID']}")


def _wait_until_ready(session: Session, volume: Json, *, verbose: bool) -> None:
    path, query = f"/v1/volume/host/{segment(volume['ID'])}", {"namespace": volume["Namespace"]}
    for _ in range(LOOKS_MAX):
        found = session.nomad.get(path, query).value
        if found["State"] != "pending":
            session.out.line(f'    Host volume "{short(found["ID"], verbose)}" {found["State"]}')
            session.out.line(pairs(_host_head(found, verbose)))
            return
        session.sleep(POLL_S)
    raise LepaError("timeout", f"volume {volume['ID']} is still pending")


@command()
@argument("file", shown="<volume specification>")
@flag("policy-override", "Taken for the sake of scripts; there are no such policies here.", hidden=True)
@option("id", "Of the volume, instead of the one in the file.", default="", metavar="id")
@api
def register(session: Session, file: str, policy_override: bool, id: str) -> None:
    """Register a volume that is there already."""
    kind, volume = _read(file, id)
    if kind == "host":
        made = session.nomad.put("/v1/volume/host/register", {"Volume": volume}, _namespace(volume)).value["Volume"]
        session.out.line(f"==> Registered host volume {made['Name']} with ID {made['ID']}")
        return
    path = f"/v1/volume/csi/{segment(volume['ID'])}"
    session.nomad.put(path, {"Volumes": [volume]}, _namespace(volume))
    session.out.line(f'Volume "{volume["ID"]}" registered')


def _headers(secrets: Sequence[str]) -> dict[str, str]:
    for each in secrets:
        if "=" not in each:
            raise invalid(f'-secret must be of the form key=value, found "{each}"')
    return {SECRETS: ",".join(secrets)} if secrets else {}


@command()
@argument("volume")
@flag("force", "Though allocations use it.")
@api
def deregister(session: Session, volume: str, force: bool) -> None:
    """Forget a CSI volume; what is stored stays."""
    _, found = _find(session, volume, ["csi"])
    query = {"force": True if force else None, "namespace": found["Namespace"]}
    session.nomad.delete(f"/v1/volume/csi/{segment(found['ID'])}", query)
    session.out.line(f'Successfully deregistered volume "{found["ID"]}"!')


@command()
@argument("volume")
@option("type", "Of what type: host or csi.", default="csi", metavar="type")
@flag("force", "A host volume though its node is gone for good.")
@repeated("secret", "For the plugin, key=value.", metavar="key=value")
@api
def delete(session: Session, volume: str, type: str, force: bool, secret: Sequence[str]) -> None:
    """Remove a volume with what is stored in it."""
    kind, found = _find(session, volume, [type])
    query = {"force": True if force else None, "namespace": found["Namespace"]}
    path = f"/v1/volume/{kind}/{segment(found['ID'])}"
    path = path if kind == "host" else f"{path}/delete"
    session.nomad.send("DELETE", path, query, extra=_headers(secret)).read()
    session.out.line(f'Successfully deleted volume "{found["ID"]}"!')


@command()
@argument("volume")
@argument("node")
@api
def detach(session: Session, volume: str, node: str) -> None:
    """Take a CSI volume off a node."""
    _, found = _find(session, volume, ["csi"])
    query = {"node": node, "namespace": found["Namespace"]}
    session.nomad.delete(f"/v1/volume/csi/{segment(found['ID'])}/detach", query)
    session.out.line(f'Successfully detached volume "{found["ID"]}" from node "{node}"')


# Claims


@command()
@option("job", "Only of this job.", default="", metavar="job id")
@option("group", "Only of this group.", default="", metavar="group")
@option("volume-name", "Only of volumes with this name.", default="", metavar="name")
@flag("verbose", "With whole ids.")
@shaped
@api
def claim_list(session: Session, shape: Shape, job: str, group: str, volume_name: str, verbose: bool) -> None:
    """List the volumes that instances of groups keep."""
    query = {"job_id": job or None, "task_group": group or None, "volume_name": volume_name or None}
    found = session.nomad.get("/v1/volumes/claims", query).value or []
    if shape:
        session.out.line(shape.render(found))
        return
    rows = [
        (
            short(c["ID"], verbose),
            c["Namespace"],
            c["JobID"],
            short(c["AllocID"], verbose),
            c["TaskGroupName"],
            short(c["VolumeID"], verbose),
            c["VolumeName"],
        )
        for c in found
    ]
    header = ("ID", "Namespace", "Job ID", "Alloc ID", "Group", "Volume ID", "Volume")
    session.out.line(table(header, rows) if rows else "No volume claims")


@command()
@argument("claim")
@flag("y", "Without asking.")
@api
def claim_delete(session: Session, claim: str, y: bool) -> None:
    """Let the next instance of a group have any volume of the name."""
    found = session.nomad.get("/v1/volumes/claims", {"prefix": claim}).value or []
    if len(found) != 1:
        raise not_found(f'{len(found)} volume claims with prefix or ID "{claim}" found, wanted one')
    session.nomad.delete(f"/v1/volumes/claim/{segment(found[0]['ID'])}")
    session.out.line(f'Successfully deleted volume claim "{found[0]["ID"]}"!')


# Snapshots


@command()
@argument("volume")
@argument("name", required=False)
@flag("verbose", "With whole ids.")
@repeated("parameter", "For the plugin, key=value.", metavar="key=value")
@repeated("secret", "For the plugin, key=value.", metavar="key=value")
@api
def snapshot_create(
    session: Session, volume: str, name: str | None, verbose: bool, parameter: Sequence[str], secret: Sequence[str]
) -> None:
    """Make a snapshot of a CSI volume."""
    _, found = _find(session, volume, ["csi"])
    wanted = {
        "SourceVolumeID": found["ID"],
        "PluginID": found["PluginID"],
        "Name": name or "",
        "Parameters": dict(each.partition("=")[::2] for each in parameter),
        "Secrets": dict(each.partition("=")[::2] for each in secret),
    }
    query = {"namespace": found["Namespace"]}
    made = session.nomad.put("/v1/volumes/snapshot", {"Snapshots": [wanted]}, query).value["Snapshots"]
    session.out.line(_snapshots(made))


@command()
@argument("plugin")
@argument("snapshot")
@repeated("secret", "For the plugin, key=value.", metavar="key=value")
@api
def snapshot_delete(session: Session, plugin: str, snapshot: str, secret: Sequence[str]) -> None:
    """Remove a snapshot."""
    query = {"plugin_id": plugin, "snapshot_id": snapshot}
    session.nomad.send("DELETE", "/v1/volumes/snapshot", query, extra=_headers(secret)).read()
    session.out.line(f'Successfully deleted snapshot "{snapshot}"!')


@command()
@option("plugin", "Whose snapshots.", metavar="plugin id")
@flag("verbose", "With whole ids.")
@option("per-page", "How many to show.", kind=int, default=30, metavar="count")
@option("page-token", "Where to begin.", default="", metavar="token")
@repeated("secret", "For the plugin, key=value.", metavar="key=value")
@api
def snapshot_list(
    session: Session, plugin: str | None, verbose: bool, per_page: int, page_token: str, secret: Sequence[str]
) -> None:
    """List the snapshots that a plugin knows."""
    if not plugin:
        raise invalid("-plugin has to be given")
    query: dict[str, str | int | None] = {"plugin_id": plugin, "per_page": per_page, "next_token": page_token or None}
    found = json.loads(session.nomad.send("GET", "/v1/volumes/snapshot", query, extra=_headers(secret)).read())
    session.out.line(_snapshots(found["Snapshots"] or []))
    if found.get("NextToken"):
        session.out.line(
            f"\nResults have been paginated. To get the next page run:\n\n-page-token {found['NextToken']}"
        )


def _snapshots(found: Sequence[Json]) -> str:
    rows = [
        (
            each["ID"],
            each["ExternalSourceVolumeID"],
            size(each["SizeBytes"]),
            moment(each["CreateTime"] * 10**9),
            each["IsReady"],
        )
        for each in found
    ]
    return table(("Snapshot ID", "External ID", "Size", "Create Time", "Ready?"), rows) if rows else "No snapshots"
