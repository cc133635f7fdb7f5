"""Fixtures of the integration tests: real supervisors, OCI runtimes, a Docker daemon."""

import os
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import components
from tests.etcd import EtcdServer, etcd_servers
from tests.node import own_supervisor

from lepa.drivers.protocol import TaskConfig
from lepa.drivers.supervisor.client import Supervisor
from lepa.model.resources import AllocatedCpuResources, AllocatedMemoryResources, AllocatedTaskResources

MakeTask = Callable[..., TaskConfig]


@pytest.fixture(scope="session")
def docker_endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Docker daemon with the image components.BUSYBOX_IMAGE."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base
    with components.docker_daemon(shared) as endpoint:
        yield endpoint


@pytest.fixture(scope="session")
def etcd_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdServer]:
    """One etcd for all tests that only store in it, each under its own prefix."""
    with etcd_servers(tmp_path_factory.mktemp("etcd")) as (server,):
        yield server


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    """A supervisor of the test's own, ended with all its tasks."""
    async with own_supervisor(tmp_path) as found:
        yield found


@pytest.fixture
def make_task(tmp_path: Path) -> MakeTask:
    """Builds task configurations with directories and log files below the test's own directory."""
    folder = tmp_path / "alloc"
    for path in (folder / "alloc", folder / "task" / "local", folder / "task" / "secrets", folder / "task" / "tmp"):
        path.mkdir(parents=True)
        path.chmod(0o777)
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)

    def make(command: str = "", *args: str, memory_mb: int = 100, name: str = "t", **changes: Any) -> TaskConfig:
        values: dict[str, Any] = {
            "id": f"{name}-{uuid.uuid4().hex[:12]}",
            "alloc_id": uuid.uuid4().hex,
            "task_name": name,
            "config": {"command": command, "args": list(args)},
            "env": {"PATH": "/usr/bin:/bin", "GREETING": "hello"},
            "alloc_dir": str(folder / "alloc"),
            "task_dir": str(folder / "task"),
            "local_dir": str(folder / "task" / "local"),
            "secrets_dir": str(folder / "task" / "secrets"),
            "stdout_path": str(tmp_path / f"{name}.stdout"),
            "stderr_path": str(tmp_path / f"{name}.stderr"),
            "resources": AllocatedTaskResources(
                cpu=AllocatedCpuResources(cpu_shares=100), memory=AllocatedMemoryResources(memory_mb=memory_mb)
            ),
        }
        return TaskConfig(**values | changes)

    return make
