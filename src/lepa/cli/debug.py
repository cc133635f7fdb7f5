"""`lepa operator debug`: an archive of what helps to find a fault, to be looked at elsewhere.

    lepa-debug-TIME/
      index.json                  when, how long, of which agent, and what could not be had
      cluster/                    members, regions, leader, scheduler configuration, servers that hold the state
      state/NNNN/                 at each look: jobs, allocations, evaluations, deployments, nodes, services, metrics
      node/ID/                    what the node says of its host
      agent/                      configuration (secrets replaced), health, its log meanwhile, a profile if allowed
      events.json                 the event stream meanwhile, when topics were named

Jobs are taken as lists show them, without environments, templates and payloads, and every text under a key that sounds
like a secret is replaced, so that the archive may be handed on.
"""

import io
import json
import os
import tarfile
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from lepa.cli.flags import command, flag, option, repeated
from lepa.cli.output import Json, pretty_json
from lepa.cli.session import Session, api, segment
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import LepaError, invalid
from lepa.sdk.connection import Connection

SECRETS = ("secret", "token", "password", "passwd", "encrypt", "private", "credential", "payload", "apikey", "api_key")
REDACTED = "<redacted>"
LIST_MAX = 5_000
"""Rows of one list; a page of a longer one is taken."""
LOG_BYTES_MAX = 64 * 1024 * 1024
EVENT_BYTES_MAX = 64 * 1024 * 1024
LOOKS_MAX = 1_000

LISTS = {
    "jobs": "/v1/jobs",
    "allocations": "/v1/allocations",
    "evaluations": "/v1/evaluations",
    "deployments": "/v1/deployments",
    "nodes": "/v1/nodes",
    "services": "/v1/services",
    "metrics": "/v1/metrics",
}
CLUSTER = {
    "members": "/v1/agent/members",
    "regions": "/v1/regions",
    "leader": "/v1/status/leader",
    "peers": "/v1/status/peers",
    "scheduler-configuration": "/v1/operator/scheduler/configuration",
    "raft-configuration": "/v1/operator/raft/configuration",
    "namespaces": "/v1/namespaces",
    "node-pools": "/v1/node/pools",
}
AGENT = {"self": "/v1/agent/self", "health": "/v1/agent/health", "host": "/v1/agent/host"}
OTHERS = (
    "consul-http-addr", "consul-auth", "consul-token", "consul-token-file", "consul-client-cert", "consul-client-key",
    "consul-ca-cert", "consul-ca-path", "vault-address", "vault-token", "vault-ca-cert", "vault-ca-path",
    "vault-client-cert", "vault-client-key", "log-lookback", "server-id",
)  # fmt: skip


def _for_others(function: Callable[..., Any]) -> Callable[..., Any]:
    """Flags of Nomad's command about programs that are not needed here."""
    for name in OTHERS:
        function = option(name, "Accepted, and without effect.", metavar="value", hidden=True)(function)
    for name in ("log-include-location", "log-file-export", "stale", "verbose"):
        function = flag(name, "Accepted, and without effect.", hidden=True)(function)
    return function


@command()
@option("duration", "How long to look.", default="5m", metavar="duration")
@option("interval", "Pause between two looks at the state.", default="30s", metavar="duration")
@option("log-level", "Of the agent's log meanwhile; none for no log.", default="debug", metavar="level")
@option("node-id", "Nodes to ask: ids or prefixes parted by commas, all, or none.", default="all", metavar="ids")
@option("node-class", "Only nodes of this class.", default="", metavar="class")
@option("max-nodes", "Ask at most so many nodes.", kind=int, default=10, metavar="count")
@repeated("event-topic", "Take the event stream of this topic along; none for none.", metavar="topic")
@option("event-index", "Where in the stream to begin.", kind=int, default=0, metavar="index")
@option("pprof-duration", "How long the agent is profiled, where it allows that.", default="1s", metavar="duration")
@option("pprof-interval", "Accepted: one profile is taken.", default="30s", metavar="duration", hidden=True)
@option("output", "Directory in which the archive is written.", default=".", metavar="path")
@_for_others
@api
def debug(session: Session, **given: Any) -> int:
    """Collect what helps to find a fault into one archive, without secrets."""
    duration_s = _seconds("duration", given["duration"])
    interval_s = _seconds("interval", given["interval"])
    if interval_s <= 0 or duration_s / interval_s > LOOKS_MAX:
        raise invalid(f"-interval: at most {LOOKS_MAX} looks are taken; make it longer, or -duration shorter")
    stamp = time.strftime("%Y-%m-%d-%H%M%SZ", time.gmtime(session.now_ns() / 1e9))
    bundle = Bundle(f"lepa-debug-{stamp}")
    Collector(session, bundle).run(duration_s, interval_s, given)
    path = os.path.join(given["output"], f"{bundle.name}.tar.gz")
    try:
        with open(path, "xb") as file:
            os.fchmod(file.fileno(), 0o600)
            file.write(bundle.archive(session.now_ns()))
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    session.out.line(f"Created debug archive: {path}")
    return 0


class Bundle:
    """Files by name, and how they become an archive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.files: dict[str, bytes] = {}
        self.missing: dict[str, str] = {}

    def put_json(self, name: str, value: Any) -> None:
        """Keep a value, its secrets replaced."""
        self.files[f"{name}.json"] = pretty_json(redacted(value)).encode() + b"\n"

    def archive(self, now_ns: int) -> bytes:
        """The files as a gzip-compressed tar."""
        written = io.BytesIO()
        with tarfile.open(fileobj=written, mode="w:gz") as tar:
            for name, data in sorted(self.files.items()):
                entry = tarfile.TarInfo(f"{self.name}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), now_ns // SECOND, 0o600
                tar.addfile(entry, io.BytesIO(data))
        return written.getvalue()


def redacted(value: Any) -> Any:
    """The same with every text under a key that sounds like a secret replaced."""
    if isinstance(value, dict):
        return {
            key: REDACTED if item and isinstance(item, str) and _secret(str(key)) else redacted(item)
            for key, item in value.items()
        }
    return [redacted(item) for item in value] if isinstance(value, list) else value


def _secret(key: str) -> bool:
    return any(word in key.lower() for word in SECRETS)


class Collector:
    """Asks the agent, again and again. What it does not answer is noted in the index."""

    def __init__(self, session: Session, bundle: Bundle) -> None:
        self._session = session
        self._bundle = bundle

    def run(self, duration_s: float, interval_s: float, given: Json) -> None:
        """Fill the bundle."""
        self._session.out.line("Starting debugger...")
        begun = self._session.now_ns()
        streams = [Stream(self._session, path, query, most) for path, query, most in _streams(given)]
        for name, path in CLUSTER.items():
            self._take(f"cluster/{name}", path)
        for name, path in AGENT.items():
            self._take(f"agent/{name}", path)
        self._nodes(given)
        self._profile(_seconds("pprof-duration", given["pprof_duration"]))
        looks = max(1, int(duration_s / interval_s))
        for look in range(looks):
            for name, path in LISTS.items():
                query = None if name == "metrics" else {"namespace": "*", "per_page": LIST_MAX}
                self._take(f"state/{look:04d}/{name}", path, query)
            self._session.sleep(min(interval_s, duration_s))
        for stream in streams:
            self._bundle.files[stream.name] = stream.end()
        facts = {
            "began_ns": begun,
            "duration": given["duration"],
            "interval": given["interval"],
            "agent": self._session.nomad.target.url,
            "looks": looks,
            "missing": self._bundle.missing,
        }
        self._bundle.put_json("index", facts)

    def _take(self, name: str, path: str, query: Any = None) -> Any:
        try:
            value = self._session.nomad.get(path, query).value
        except LepaError as error:
            self._bundle.missing[name] = error.message
            return None
        self._bundle.put_json(name, value)
        return value

    def _nodes(self, given: Json) -> None:
        if given["node_id"] == "none":
            return
        wanted = () if given["node_id"] == "all" else tuple(given["node_id"].split(","))
        nodes = [
            node
            for node in self._session.nomad.get("/v1/nodes").value or []
            if given["node_class"] in ("", node["NodeClass"]) and (not wanted or node["ID"].startswith(wanted))
        ]
        for node in nodes[: given["max_nodes"]]:
            self._take(f"node/{node['ID']}/node", f"/v1/node/{segment(node['ID'])}")
            self._take(f"node/{node['ID']}/stats", "/v1/client/stats", {"node_id": node["ID"]})

    def _profile(self, seconds: float) -> None:
        if seconds <= 0:
            return
        for kind, query in (("profile", {"seconds": max(1, int(seconds))}), ("goroutine", None)):
            try:
                self._bundle.files[f"agent/{kind}.txt"] = self._session.nomad.raw(
                    "GET", f"/v1/agent/pprof/{kind}", query
                )
            except LepaError as error:
                self._bundle.missing[f"agent/{kind}"] = error.message


def _streams(given: Json) -> Iterator[tuple[str, Json, int]]:
    if given["log_level"].lower() != "none":
        yield "/v1/agent/monitor", {"log_level": given["log_level"].lower(), "plain": True}, LOG_BYTES_MAX
    topics = [topic for topic in given["event_topic"] if topic.lower() != "none"]
    if topics:
        query = {"topic": topics[0], "index": given["event_index"] or None, "namespace": "*"}
        yield "/v1/event/stream", query, EVENT_BYTES_MAX


class Stream:
    """An answer that does not end, read beside everything else until `end`."""

    def __init__(self, session: Session, path: str, query: Json, bytes_max: int) -> None:
        self.name = "agent/monitor.log" if path.endswith("monitor") else "events.json"
        self._pieces: list[bytes] = []
        self._left = bytes_max
        self._ended = threading.Event()
        self._connection = Connection(session.nomad.target)
        thread = threading.Thread(target=self._read, args=(path, query), daemon=True, name="debug")
        thread.start()

    def _read(self, path: str, query: Json) -> None:
        try:
            for piece in self._connection.chunks(path, query):
                if self._ended.is_set() or self._left <= 0:
                    return
                self._pieces.append(piece[: self._left])
                self._left -= len(piece)
        except LepaError as error:
            self._pieces.append(f"\nthe stream ended: {error.message}\n".encode())

    def end(self) -> bytes:
        """What came; events with their secrets replaced."""
        self._ended.set()
        text = b"".join(self._pieces)
        return text if self.name.endswith(".log") else b"".join(_redacted_lines(text))


def _redacted_lines(text: bytes) -> Iterator[bytes]:
    """Lines of JSON without the specifications of jobs, and without secrets; a last half line is left out."""
    for line in text.split(b"\n")[:-1]:
        value = json.loads(line or b"{}")
        for event in value.get("Events") or ():
            payload = event.get("Payload") or {}
            if "Job" in payload:
                payload["Job"] = {key: payload["Job"].get(key) for key in ("ID", "Namespace", "Version", "Status")}
        yield json.dumps(redacted(value)).encode() + b"\n"


def _seconds(name: str, text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid(f"-{name}: {error}") from error
