"""A small stand-in for an orchestrator's HTTP API that really runs the tasks of submitted jobs, as plain processes.

It knows what the jobs container manager uses: jobs, allocations, services, logs; one task a group, dynamic and static
ports, `${NOMAD_...}` in arguments and environment. Whatever else is asked is a 404.
"""

import json
import os
import re
import socket
import subprocess
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Allocation:
    """One running task."""

    def __init__(self, job: dict[str, Any], group: dict[str, Any], directory: Path) -> None:
        self.id = str(uuid.uuid4())
        self.job_id = job["ID"]
        self.task = group["Tasks"][0]
        self.directory = directory / self.id
        (self.directory / "local").mkdir(parents=True)
        networks = group.get("Networks") or [{}]
        self.ports = {port["Label"]: free_port() for port in networks[0].get("DynamicPorts", ())}
        self.ports |= {port["Label"]: port["Value"] for port in networks[0].get("ReservedPorts", ())}
        self.services = [(service["Name"], self.ports[service["PortLabel"]]) for service in group.get("Services", ())]
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        known = {"NOMAD_ALLOC_DIR": str(self.directory), "NOMAD_TASK_DIR": str(self.directory / "local")}
        for label, port in self.ports.items():
            known |= {f"NOMAD_PORT_{label}": str(port), f"NOMAD_IP_{label}": "127.0.0.1"}

        def fill(text: str) -> str:
            return re.sub(r"\$\{(\w+)\}", lambda match: known[match[1]], text)

        environment = {name: fill(value) for name, value in (self.task.get("Env") or {}).items()}
        with (self.directory / "stderr").open("wb") as log:
            return subprocess.Popen(
                [self.task["Config"]["command"], *map(fill, self.task["Config"]["args"])],
                env={**os.environ, **known, **environment},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)

    def view(self) -> dict[str, Any]:
        status = "running" if self.process.poll() is None else "failed"
        states = {self.task["Name"]: {"Events": [{"DisplayMessage": f"Exit Code: {self.process.returncode}"}]}}
        return {"ID": self.id, "ClientStatus": status, "CreateIndex": 1, "TaskStates": states}


class FakeNomad:
    """Jobs by id, and their allocations."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.jobs: dict[str, dict[str, Any]] = {}
        self.allocations: list[Allocation] = []
        self.submissions: list[str] = []
        self.lock = threading.Lock()

    def submit(self, job: dict[str, Any]) -> None:
        self.submissions.append(job["ID"])
        self.jobs[job["ID"]] = job
        group = job["TaskGroups"][0]
        running = [allocation for allocation in self.allocations if allocation.job_id == job["ID"]]
        for allocation in running[group["Count"] :]:
            allocation.stop()
            self.allocations.remove(allocation)
        for _ in range(len(running), group["Count"]):
            self.allocations.append(Allocation(job, group, self.directory))

    def stop(self, job_id: str) -> None:
        self.jobs.pop(job_id, None)
        for allocation in [a for a in self.allocations if a.job_id == job_id]:
            allocation.stop()
            self.allocations.remove(allocation)

    def of(self, job_id: str) -> list[Allocation]:
        return [allocation for allocation in self.allocations if allocation.job_id == job_id]

    def answer(self, method: str, path: str, query: dict[str, list[str]], body: Any) -> Any:
        parts = path.strip("/").split("/")
        match method, parts:
            case "PUT", ["v1", "jobs"]:
                self.submit(body["Job"])
                return {"EvalID": str(uuid.uuid4())}
            case "GET", ["v1", "jobs"]:
                return [{"ID": job_id} for job_id in self.jobs if job_id.startswith(query["prefix"][0])]
            case "GET", ["v1", "job", job_id]:
                return self.jobs.get(job_id)
            case "DELETE", ["v1", "job", job_id]:
                self.stop(job_id)
                return {"EvalID": ""}
            case "GET", ["v1", "job", job_id, "allocations"]:
                return [allocation.view() for allocation in self.of(job_id)]
            case "GET", ["v1", "service", name]:
                ports = [port for a in self.allocations for service, port in a.services if service == name]
                return [{"Address": "127.0.0.1", "Port": port} for port in ports]
            case "GET", ["v1", "client", "fs", "logs", allocation_id]:
                found = next(a for a in self.allocations if a.id == allocation_id)
                return (found.directory / "stderr").read_text() if query["type"] == ["stderr"] else ""
        return None


def _handler(nomad: FakeNomad) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            url = urlsplit(self.path)
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length) or b"null")
            with nomad.lock:
                answer = nomad.answer(self.command, url.path, parse_qs(url.query), body)
            encoded = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(404 if answer is None else 200)
            self.send_header("Content-Length", str(len(encoded)))
            self.end_headers()
            self.wfile.write(encoded)

        do_GET = do_PUT = do_DELETE = _answer

        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    return Handler


@contextmanager
def fake_nomad(directory: Path) -> Iterator[tuple[FakeNomad, str]]:
    """The stand-in, and its host:port; everything it started has ended afterwards."""
    nomad = FakeNomad(directory)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(nomad))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield nomad, f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        for job_id in list(nomad.jobs):
            nomad.stop(job_id)
