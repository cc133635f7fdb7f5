"""The few calls to a Docker daemon that a serving cluster needs, over the standard library.

The driver of the same daemon (`lepa.drivers`) lives in an agent's event loop; this is for programs of people, which
wait.
"""

import http.client
import json
import socket
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Any

from lepa.model.errors import Code, LepaError, invalid
from lepa.serving.addresses import parse_address

Json = dict[str, Any]

DEFAULT_ENDPOINT = "unix:///var/run/docker.sock"
TIMEOUT_S = 60.0
LOG_LINES_MAX = 10_000
"""Of each container, the newest."""
LOG_HEAD_BYTES = 8

_CODES: dict[int, Code] = {400: "invalid", 404: "not_found", 409: "conflict"}


class DockerApi:
    """One daemon. endpoint: unix:///PATH, or tcp://HOST:PORT."""

    def __init__(self, endpoint: str = DEFAULT_ENDPOINT) -> None:
        self.endpoint = endpoint
        scheme, _, place = endpoint.partition("://")
        if scheme not in ("unix", "tcp") or not place:
            raise invalid(f'"{endpoint}" is no Docker endpoint: expected unix:///PATH or tcp://HOST:PORT')

    def _connection(self) -> http.client.HTTPConnection:
        scheme, _, place = self.endpoint.partition("://")
        if scheme == "tcp":
            return http.client.HTTPConnection(*parse_address(place), timeout=TIMEOUT_S)
        connection = http.client.HTTPConnection("docker", timeout=TIMEOUT_S)
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(place)
        return connection

    def read(self, method: str, path: str, body: Any = None, **query: str) -> bytes:
        """The answer's bytes. Raises LepaError with the daemon's own sentence."""
        asked = f"{path}?{urllib.parse.urlencode(query)}" if query else path
        payload = None if body is None else json.dumps(body)
        try:
            connection = self._connection()
            try:
                connection.request(method, asked, payload, {"Content-Type": "application/json"})
                response = connection.getresponse()
                answer = response.read()
            finally:
                connection.close()
        except (OSError, http.client.HTTPException) as error:
            raise LepaError("timeout", f"no Docker daemon answers at {self.endpoint}: {error}") from error
        if response.status >= 400:
            raise LepaError(_CODES.get(response.status, "internal"), f"Docker: {_sentence(answer)}")
        return answer

    def call(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """The decoded answer, None for an empty one."""
        return json.loads(self.read(method, path, body, **query) or b"null")

    def containers(self, labels: Mapping[str, str]) -> list[Json]:
        """All containers with these labels, ended ones too, oldest first."""
        wanted = json.dumps({"label": [f"{key}={value}" for key, value in labels.items()]})
        found: list[Json] = self.call("GET", "/containers/json", all="true", filters=wanted)
        return sorted(found, key=lambda each: (each["Created"], each["Names"]))

    def run(self, name: str, body: Json) -> str:
        """Create a container and start it; its id."""
        made: str = self.call("POST", "/containers/create", body, name=name)["Id"]
        try:
            self.read("POST", f"/containers/{made}/start")
        except LepaError:
            self.remove(made)
            raise
        return made

    def inspect(self, container: str) -> Json:
        found: Json = self.call("GET", f"/containers/{container}/json")
        return found

    def remove(self, container: str) -> None:
        """Kill and remove a container; one that is gone is no error."""
        self._unless_gone("DELETE", f"/containers/{container}", force="true")

    def stop(self, container: str, grace_s: int) -> None:
        """Tell a container to stop, kill it after a while, and remove it."""
        self._unless_gone("POST", f"/containers/{container}/stop", t=str(grace_s))
        self.remove(container)

    def _unless_gone(self, method: str, path: str, **query: str) -> None:
        try:
            self.read(method, path, **query)
        except LepaError as error:
            if error.code != "not_found" and "already in progress" not in error.message:
                raise

    def log(self, container: str) -> bytes:
        """What a container has written, standard output and errors in their order."""
        query = {"stdout": "true", "stderr": "true", "tail": str(LOG_LINES_MAX)}
        return b"".join(_written(self.read("GET", f"/containers/{container}/logs", **query)))


def _sentence(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, KeyError, TypeError):
        return answer.decode(errors="replace").strip()


def _written(stream: bytes) -> Sequence[bytes]:
    """The pieces of a log: each has eight bytes before it, the last four of them its length."""
    pieces, at = [], 0
    while at + LOG_HEAD_BYTES <= len(stream):
        end = at + LOG_HEAD_BYTES + int.from_bytes(stream[at + 4 : at + LOG_HEAD_BYTES], "big")
        pieces.append(stream[at + LOG_HEAD_BYTES : end])
        at = end
    return pieces
