"""Our health call against a real gRPC server (grpcio)."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.integration.peers import install

from lepa.kit.probes import ask_grpc

SERVER = """
import sys
from concurrent import futures
import grpc
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
if sys.argv[1] == "health":
    servicer = health.HealthServicer()
    servicer.set("", health_pb2.HealthCheckResponse.SERVING)
    servicer.set("sick", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
print(server.add_insecure_port("127.0.0.1:0"), flush=True)
server.start()
sys.stdin.read()
server.stop(0)
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install("grpc-health", tmp_path_factory.getbasetemp())


@pytest.fixture
def port(packages: Path, request: pytest.FixtureRequest) -> Iterator[int]:
    kind = getattr(request, "param", "health")
    command = [sys.executable, "-c", SERVER, kind]
    with subprocess.Popen(
        command, env={"PYTHONPATH": str(packages)}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        yield int(server.stdout.readline())
        assert server.stdin is not None
        server.stdin.close()


async def test_a_server_says_how_it_and_its_services_are(port: int) -> None:
    assert await ask_grpc("127.0.0.1", port) == "SERVING"
    assert await ask_grpc("127.0.0.1", port, "sick") == "NOT_SERVING"
    assert await ask_grpc("127.0.0.1", port, "unheard-of") in ("UNKNOWN", "ERROR")


@pytest.mark.parametrize("port", ["none"], indirect=True)
async def test_a_server_without_the_health_service_is_an_error(port: int) -> None:
    assert await ask_grpc("127.0.0.1", port) == "ERROR"
