"""Jobs of small web servers that say which allocation answers, for tests of whoever sends requests to them."""

import sys
from typing import Any

from tests.e2e.jobs import MILLISECOND, SECOND, quick_update, shell_task

SERVER = """
import http.server, os, signal, sys, threading
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = os.environ["NOMAD_ALLOC_ID"].encode() + b" " + self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
server = http.server.ThreadingHTTPServer((os.environ["NOMAD_IP_http"], int(os.environ["NOMAD_PORT_http"])), Handler)
signal.signal(signal.SIGINT, lambda *_: threading.Thread(target=server.shutdown).start())
server.serve_forever()
"""


def web_job(
    job_id: str, service: str, *, count: int = 1, tags: tuple[str, ...] = (), version: str = "1", delay_s: float = 0.0
) -> dict[str, Any]:
    """A service of `count` web servers with a check. delay_s: between deregistration and the end of a server."""
    check = {"Type": "http", "Path": "/health", "Interval": 1 * SECOND, "Timeout": 1 * SECOND}
    task = shell_task("web", "", cpu=20, memory_mb=32) | {
        "Config": {"command": sys.executable, "args": ["-u", "-c", SERVER]},
        "Env": {"VERSION": version},
        "ShutdownDelay": int(delay_s * SECOND),
    }
    group = {
        "Name": "main",
        "Count": count,
        "Networks": [{"DynamicPorts": [{"Label": "http"}]}],
        "Services": [
            {"Name": service, "PortLabel": "http", "Provider": "nomad", "Tags": list(tags), "Checks": [check]}
        ],
        "Tasks": [task],
        "EphemeralDisk": {"SizeMB": 20},
        "RestartPolicy": {"Attempts": 0, "Interval": 60 * SECOND, "Delay": 50 * MILLISECOND, "Mode": "fail"},
    }
    return {"ID": job_id, "Type": "service", "TaskGroups": [group], "Update": quick_update(HealthCheck="checks")}
