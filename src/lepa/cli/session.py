"""One command's conversation with an agent: where it is, what its answers look like, which object a prefix means."""

import functools
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn
from urllib.parse import quote

from lepa.cli import output
from lepa.cli.flags import flag, option
from lepa.cli.output import Json
from lepa.cli.terminal import Terminal, terminal
from lepa.kit.tls_settings import ClientTls
from lepa.model.errors import LepaError, invalid, not_found
from lepa.sdk.address import target
from lepa.sdk.connection import Connection

UUID_LENGTH = 36
TLS_FLAGS = ("ca_cert", "ca_path", "client_cert", "client_key", "tls_server_name")
CANDIDATES_MAX = 20
_UUID_START = re.compile(r"[0-9a-fA-F][0-9a-fA-F-]*")


@dataclass
class Session:
    """What a command works with. sleep: seconds between looks at something that changes. page: that of what the
    command is about, below /ui/."""

    nomad: Connection
    out: Terminal
    now_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = field(default=time.sleep)
    page: str = ""

    def ago(self, value: int | str) -> str:
        """How long ago the API says something was."""
        return output.ago(output.moment(value), self.now_ns())

    def clock(self) -> str:
        """The time of day, for lines of a log."""
        local = time.localtime(self.now_ns() / 1e9)
        zone = time.strftime("%z", local)
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', local)}{zone[:3]}:{zone[3:]}"


def open_session(nomad: Connection, out: Terminal) -> Session:
    """A session by the machine's own clock."""
    return Session(nomad, out)


@dataclass(frozen=True)
class Shape:
    """-json and -t: whether an answer is printed as it is, or through a template."""

    as_json: bool
    template: str | None

    def __bool__(self) -> bool:
        return self.as_json or self.template is not None

    def render(self, value: Any) -> str:
        """The text that was asked for."""
        if self.template is None:
            return output.pretty_json(value)
        from lepa.kit.go_template import TemplateError, parse

        try:
            return parse(self.template, {"json": output.pretty_json}).render(value)
        except TemplateError as error:
            raise invalid(f"-t: {error}") from error


def shaped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command -json and -t, as one argument `shape`."""

    @functools.wraps(function)
    def run(*args: Any, json: bool, t: str | None, **values: Any) -> Any:
        if json and t is not None:
            raise invalid("-json and -t exclude each other: give one of them")
        return function(*args, shape=Shape(json, t), **values)

    with_json = flag("json", "Print the API's JSON.")
    with_template = option("t", "Print through a Go template, such as '{{.ID}}'.", metavar="template")
    return with_json(with_template(run))


def api(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the flags that say where the agent is, and a `Session` as its first argument."""

    @functools.wraps(function)
    def run(
        *, address: str, namespace: str, region: str, token: str, no_color: bool, force_color: bool, **values: Any
    ) -> Any:
        env = os.environ
        ca_cert, ca_path, cert, key, name = (values.pop(each) or "" for each in TLS_FLAGS)
        tls = ClientTls(ca_cert, ca_path, cert, key, name, values.pop("tls_skip_verify"))
        places = {"address": address, "token": token, "namespace": namespace, "region": region}
        to = target(env, tls=tls, **{name: text or "" for name, text in places.items()})
        out = terminal(
            no_color=no_color or "NOMAD_CLI_NO_COLOR" in env or "NO_COLOR" in env,
            force_color=force_color or "NOMAD_CLI_FORCE_COLOR" in env,
        )
        with Connection(to) as nomad:
            return function(open_session(nomad, out), **values)

    for name, help, metavar in (
        ("tls-server-name", "Name that the agent's certificate bears. Environment: LEPA_TLS_SERVER_NAME.", "name"),
        ("client-key", "Key of -client-cert. Environment: LEPA_CLIENT_KEY.", "file"),
        ("client-cert", "Certificate to show to the agent. Environment: LEPA_CLIENT_CERT.", "file"),
        ("ca-path", "Directory of authorities to trust. Environment: LEPA_CAPATH.", "directory"),
        ("ca-cert", "Authority to trust. Environment: LEPA_CACERT.", "file"),
        ("token", "Secret of the ACL token to use. Environment: LEPA_TOKEN.", "secret"),
        ("region", "Region to ask. Environment: LEPA_REGION.", "name"),
        ("namespace", "Namespace to look in, * for all. Environment: LEPA_NAMESPACE.", "name"),
        ("address", "The agent's address. Environment: LEPA_ADDR, else NOMAD_ADDR.", "url"),
    ):
        run = option(name, help, metavar=metavar, general=True)(run)
    for name, help in (
        ("tls-skip-verify", "Trust any certificate. Environment: LEPA_SKIP_VERIFY."),
        ("force-color", "Colours in a pipe too."),
        ("no-color", "No colours."),
    ):
        run = flag(name, help, general=True)(run)
    return run


def segment(identifier: str) -> str:
    """An id as part of a path."""
    return quote(identifier, safe="")


def job_path(job: Json, *rest: str) -> tuple[str, dict[str, str]]:
    """The path of something of a job, and the query that says its namespace."""
    return "/".join([f"/v1/job/{segment(job['ID'])}", *rest]), {"namespace": job["Namespace"]}


def job_page(job: Json) -> str:
    """The page of a job, below /ui/."""
    return f"jobs/{segment(job['ID'])}@{segment(job.get('Namespace') or 'default')}"


# Which object is meant


def find_job(session: Session, prefix: str, *, exact: bool = False) -> Json:
    """The one job with this id, or whose id begins with this; as in a list."""
    stubs = session.nomad.get("/v1/jobs", {"prefix": prefix}).value or []
    same = [stub for stub in stubs if stub["ID"] == prefix]
    if len(same) == 1 or exact:
        stubs = same
    if not stubs:
        raise not_found(f'No job(s) with prefix or ID "{prefix}" found; `lepa job status` lists them')
    if len(stubs) > 1:
        _ambiguous("jobs", ("ID", "Namespace", "Type", "Status"), stubs)
    found: Json = stubs[0]
    session.page = job_page(found)
    return found


def find_allocation(session: Session, prefix: str) -> Json:
    """The allocation with this id or prefix, with its job."""
    stub = _find_by_uuid(session, "allocation", "/v1/allocations", prefix, ("ID", "JobID", "TaskGroup", "ClientStatus"))
    session.page = f"allocations/{stub['ID']}"
    return _full(session, f"/v1/allocation/{stub['ID']}", stub)


def find_node(session: Session, prefix: str) -> Json:
    """The node with this id, prefix or name."""
    if not prefix:
        return find_self(session)
    stubs = [] if not _hexadecimal(prefix) else session.nomad.get("/v1/nodes", {"prefix": prefix}).value or []
    if not stubs:
        stubs = [stub for stub in session.nomad.get("/v1/nodes").value or [] if stub["Name"] == prefix]
    stub = _single("node", prefix, stubs, ("ID", "Name", "Datacenter", "Status"))
    session.page = f"clients/{stub['ID']}"
    return _full(session, f"/v1/node/{stub['ID']}", stub)


def find_self(session: Session) -> Json:
    """The node that the asked agent is."""
    stats = session.nomad.get("/v1/agent/self").value["stats"]
    identifier = (stats.get("client") or {}).get("node_id")
    if not identifier:
        raise invalid("the asked agent is no client: name a node")
    session.page = f"clients/{identifier}"
    node: Json = session.nomad.get(f"/v1/node/{identifier}").value
    return node


def find_evaluation(session: Session, prefix: str) -> Json:
    """The evaluation with this id or prefix."""
    stub = _find_by_uuid(session, "evaluation", "/v1/evaluations", prefix, ("ID", "JobID", "TriggeredBy", "Status"))
    return _full(session, f"/v1/evaluation/{stub['ID']}", stub)


def find_deployment(session: Session, prefix: str) -> Json:
    """The deployment with this id or prefix."""
    found = _find_by_uuid(session, "deployment", "/v1/deployments", prefix, ("ID", "JobID", "JobVersion", "Status"))
    session.page = job_page({"ID": found["JobID"], "Namespace": found["Namespace"]})
    return found


def _find_by_uuid(session: Session, kind: str, path: str, prefix: str, columns: tuple[str, ...]) -> Json:
    if not _hexadecimal(prefix):
        raise invalid(f'"{prefix}" is no {kind} id: an id, or its first characters, are digits and letters a to f')
    stubs = session.nomad.get(path, {"prefix": prefix.lower()}).value or []
    return _single(kind, prefix, stubs, columns)


def _hexadecimal(prefix: str) -> bool:
    return len(prefix) <= UUID_LENGTH and _UUID_START.fullmatch(prefix) is not None


def _single(kind: str, prefix: str, stubs: list[Json], columns: tuple[str, ...]) -> Json:
    if not stubs:
        raise not_found(f'No {kind}(s) with prefix or id "{prefix}" found')
    exact = [stub for stub in stubs if stub["ID"] == prefix]
    if len(stubs) > 1 and not exact:
        _ambiguous(f"{kind}s", columns, stubs)
    return exact[0] if exact else stubs[0]


def _ambiguous(kinds: str, columns: tuple[str, ...], stubs: Iterable[Json]) -> NoReturn:
    rows = [[stub.get(column, "") for column in columns] for stub in stubs]
    shown = output.table(columns, rows[:CANDIDATES_MAX])
    more = f"\nand {len(rows) - CANDIDATES_MAX} more" if len(rows) > CANDIDATES_MAX else ""
    raise LepaError("invalid", f"Prefix matched multiple {kinds}\n\n{shown}{more}")


def _full(session: Session, path: str, stub: Json) -> Json:
    found: Json = session.nomad.get(path, {"namespace": stub.get("Namespace")}).value
    return found


def read_input(name: str) -> bytes:
    """A file's bytes, or standard input's for `-`. Raises LepaError."""
    try:
        if name == "-":
            return sys.stdin.buffer.read()
        with open(name, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid(f"cannot read {name}: {error.strerror or error}") from error


def confirmed(question: str) -> bool:
    """Whether a person at a terminal says yes; without one nobody is asked and the answer is no."""
    if not sys.stdin.isatty():
        raise invalid(f"{question} Nobody can be asked here: give -yes")
    return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}
