"""A node with the exec driver: what a task in a root of its own, as nobody, sees of its allocation."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests import components
from tests.builders import make_group, make_job, make_task
from tests.node import Servers, own_supervisor, placed, running_client

from lepa.client import secrets_mount
from lepa.client.client import Client
from lepa.drivers.oci import ExecSettings, OciExec
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.job import VolumeRequest
from lepa.model.node import ClientHostVolumeConfig
from lepa.model.task import Template, VolumeMount

pytestmark = pytest.mark.oci


@pytest.fixture(autouse=True)
def no_mounts_left(tmp_path: Path) -> Iterator[None]:
    yield
    secrets_mount.unmount_below(tmp_path)


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    async with own_supervisor(tmp_path) as found:
        yield found


@pytest.fixture
def exec_client(
    tmp_path: Path, servers: Servers, supervisor: Supervisor
) -> Callable[[], AbstractAsyncContextManager[Client]]:
    components.require_root()
    components.require("crun", components.OCI_PACKAGES)
    components.allow_crun()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)

    @asynccontextmanager
    async def open_client() -> AsyncIterator[Client]:
        driver = OciExec(supervisor, SystemClock(), ExecSettings(), str(tmp_path / "state"))
        volume = ClientHostVolumeConfig(name="srv", path=str(tmp_path / "volume"))
        async with running_client(tmp_path / "node", servers, {"exec": driver}, host_volumes=(volume,)) as client:
            yield client

    return open_client


async def test_secrets_templates_and_volumes_inside(
    exec_client: Callable[[], AbstractAsyncContextManager[Client]], servers: Servers, tmp_path: Path
) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "volume/file").write_text("on the host")
    script = (
        "id -un > /local/out; cat /secrets/hidden /data/file >> /local/out; echo own > /secrets/own;"
        " cat $NOMAD_SECRETS_DIR/own $NOMAD_ALLOC_DIR/data/shared >> /local/out; echo done >> /local/out; sleep 60"
    )
    task = make_task(
        driver="exec",
        config={"command": "/bin/sh", "args": ["-c", script]},
        templates=(
            Template(embedded_tmpl="rendered\n", dest_path="${NOMAD_SECRETS_DIR}/hidden"),
            Template(embedded_tmpl="shared\n", dest_path="/alloc/data/shared"),
        ),
        volume_mounts=(VolumeMount(volume="data", destination="/data", read_only=True),),
    )
    group = make_group(tasks=(task,), volumes={"data": VolumeRequest(name="data", type="host", source="srv")})
    servers.place(alloc := placed(make_job(groups=(group,))))
    async with exec_client() as client:
        out = client.alloc_root / alloc.id / "web/local/out"
        await servers.until(lambda: out.exists() and "done" in out.read_text())
        assert out.read_text() == "nobody\nrendered\non the hostown\nshared\ndone\n"
    async with exec_client() as client:
        await servers.until(lambda: servers.log.count("register") == 2)
        await asyncio.sleep(0.1)
        session = await client.exec(alloc.id, "web", ["/bin/cat", "/secrets/own"], tty=False)
        assert b"".join([data async for _, data in session.output()]) == b"own\n"
        await session.close()
        assert servers.reported[alloc.id].task_states["web"].restarts == 0
        servers.stop(alloc.id)
        await servers.status(alloc.id, "complete")
        await servers.removed(client, alloc.id)
        assert not os.path.exists(client.alloc_root / alloc.id)


async def test_a_volume_that_the_node_does_not_have_fails_the_task(
    exec_client: Callable[[], AbstractAsyncContextManager[Client]], servers: Servers
) -> None:
    task = make_task(
        driver="exec", config={"command": "true"}, volume_mounts=(VolumeMount(volume="data", destination="/data"),)
    )
    group = make_group(tasks=(task,), volumes={"data": VolumeRequest(type="host", source="none")})
    servers.place(alloc := replace(placed(make_job(groups=(group,)))))
    async with exec_client():
        failed = await servers.status(alloc.id, "failed")
    assert 'this node has no volume "none"' in [e.display_message for e in failed.task_states["web"].events]
