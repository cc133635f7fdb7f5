"""`lepa monitor`: an agent's log, as it is written or as its file holds it."""

import time
from collections.abc import Iterator

import msgspec

from lepa.cli.flags import command, flag, option
from lepa.cli.session import Session, api, find_node
from lepa.kit.durations import SECOND, parse_duration, rfc3339
from lepa.model.errors import invalid

LEVELS = ("trace", "debug", "info", "warn", "error")
BUFFER_MAX = 1024 * 1024


@command()
@option("log-level", "Lines of this level and above: trace, debug, info, warn, error.", default="info", metavar="level")
@flag("log-include-location", "Accepted: lines name the part of the program that wrote them.", hidden=True)
@option("node-id", "The agent that is this node, instead of the asked one.", metavar="id")
@option("server-id", 'The server of this name, or "leader", instead of the asked agent.', metavar="name")
@flag("json", "One JSON object a line.")
@api
def follow(
    session: Session, log_level: str, node_id: str | None, server_id: str | None, json: bool, **others: object
) -> None:
    """Follow the log of an agent until Ctrl-C."""
    if log_level.lower() not in LEVELS:
        raise invalid(f'-log-level is one of {", ".join(LEVELS)}, not "{log_level}"')
    query = {
        "log_level": log_level.lower(),
        "log_json": json or None,
        "node_id": find_node(session, node_id)["ID"] if node_id else None,
        "server_id": server_id,
        "plain": True,
    }
    for piece in session.nomad.chunks("/v1/agent/monitor", query):
        session.out.write(piece)


@command()
@option("node-id", "The agent that is this node, instead of the asked one.", metavar="id")
@option("server-id", "Accepted: the asked agent is meant.", metavar="name", hidden=True)
@option("logs-since", "Only lines of this time until now.", default="72h", metavar="duration")
@option("service-name", "A unit of systemd's journal, which is not read here.", metavar="name", hidden=True)
@flag("on-disk", "From the agent's log file.", default=True)
@flag("follow", "Accepted: `lepa monitor` follows.", hidden=True)
@api
def export(session: Session, logs_since: str, service_name: str | None, on_disk: bool, **others: object) -> None:
    """Print the log file of the asked agent, which `log_file` has to name."""
    try:
        since_ns = int(time.time() * SECOND) - parse_duration(logs_since)
    except ValueError as error:
        raise invalid(f"-logs-since: {error}") from error
    query = {"plain": True, "on_disk": on_disk or None, "service_name": service_name}
    wanted = rfc3339(since_ns)
    shown = False
    for line in _lines(session.nomad.chunks("/v1/agent/monitor/export", query)):
        shown = shown or _moment(line) >= wanted
        if shown:
            session.out.write(line)


def _moment(line: bytes) -> str:
    """When a line was written; texts of RFC 3339 sort by time."""
    if line.startswith(b"{"):
        try:
            return str(msgspec.json.decode(line).get("@timestamp", ""))
        except (msgspec.DecodeError, AttributeError):
            return ""
    return line[:24].decode("ascii", "replace") if line[:4].isdigit() else ""


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        yield from (line + b"\n" for line in whole)
        if len(rest) > BUFFER_MAX:
            yield rest
            rest = b""
    if rest:
        yield rest
