"""What containers share: a group's network, credentials, images that go, containers nobody knows.

Modules: lepa.drivers.docker_network, lepa.drivers.docker_leftovers, lepa.drivers.docker_images,
lepa.drivers.docker_settings, lepa.drivers.container_driver, lepa.drivers.docker_session.
"""

import asyncio
import base64
import json
import os
import subprocess
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests import receivers
from tests.components import BUSYBOX_IMAGE
from tests.e2e.agents import eventually
from tests.integration.conftest import MakeTask
from tests.integration.test_docker_driver import Host, container

from lepa.drivers.docker_api import DockerError
from lepa.drivers.docker_config import container_name
from lepa.drivers.docker_images import ask_helper, from_config, registry_of
from lepa.drivers.docker_network import infra_name
from lepa.drivers.docker_settings import (
    AuthSettings,
    DanglingSettings,
    DockerSettings,
    GcSettings,
    TlsSettings,
    tls_context,
)
from lepa.drivers.docker_settings import rules as rules_of
from lepa.drivers.protocol import DeviceNode, DriverError, TaskConfig, TaskHandle
from lepa.model.errors import LepaError
from lepa.model.resources import AllocatedCpuResources, AllocatedTaskResources, DNSConfig

pytestmark = pytest.mark.docker


@pytest.fixture
async def host(docker_endpoint: str, tmp_path: Path) -> AsyncIterator[Host]:
    async with Host(docker_endpoint, tmp_path / "state") as found:
        yield found


@pytest.fixture
def namespace() -> Iterator[str]:
    """A network namespace with an address on its loopback that nothing else has."""
    name = f"lepa-t-{uuid.uuid4().hex[:8]}"
    subprocess.run(["ip", "netns", "add", name], check=True)
    subprocess.run(["ip", "-n", name, "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "-n", name, "address", "add", "10.123.45.6/32", "dev", "lo"], check=True)
    yield f"/run/netns/{name}"
    subprocess.run(["ip", "netns", "delete", name], check=True)


async def exists(host: Host, name: str) -> bool:
    try:
        await host.api.inspect(name)
    except DockerError as error:
        return error.status != 404
    return True


async def test_tasks_of_a_group_join_its_network_and_take_it_up_again(
    host: Host, make_task: MakeTask, namespace: str, tmp_path: Path
) -> None:
    """Two tasks meet on loopback; the standing container goes with the last of them."""
    alloc = uuid.uuid4().hex
    same = {"network_namespace": namespace, "alloc_id": alloc, "hostname": "box", "dns": DNSConfig(("10.0.0.1",))}
    serve = "echo hi > /tmp/index.html; exec httpd -f -p 10.123.45.6:8080 -h /tmp"
    server = replace(container(make_task, serve, extra_hosts=["x:10.0.0.1"]), **same)
    server = replace(server, dns=DNSConfig(servers=("10.0.0.1",), searches=("x.test",)))
    started = await host.start(server)
    session = await host.driver.exec(server.id, ["sh", "-c", "hostname; cat /etc/resolv.conf"], tty=False)
    said = b"".join([data async for _, data in session.output()])
    await session.close()
    assert said == b"box\nnameserver 10.0.0.1\nsearch x.test\n"
    ask = "for i in 1 2 3 4 5 6 7 8 9; do wget -qO- http://10.123.45.6:8080/ && exit 0; sleep 0.3; done; exit 1"
    asker = replace(make_task(name="asker", config=container(make_task, ask).config), **same)
    assert (await host.run(asker)).successful
    assert (tmp_path / "asker.stdout.0").read_text() == "hi\n"
    await host.driver.destroy(asker.id)
    assert await exists(host, infra_name(alloc))
    await host.driver.close()
    host.driver = host.new_driver()
    await host.driver.recover(server, started.handle)
    await host.driver.destroy(server.id)
    assert not await exists(host, infra_name(alloc))


async def test_a_network_that_cannot_be_entered_fails_the_start_and_leaves_nothing(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    alloc = uuid.uuid4().hex
    nothing = tmp_path / "no-namespace"
    nothing.touch()
    with pytest.raises(DriverError):
        await host.driver.start(replace(container(make_task, "true"), network_namespace=str(nothing), alloc_id=alloc))
    assert not await exists(host, infra_name(alloc))


async def test_a_container_is_taken_up_by_its_name_only_when_it_ran_for_this_start(
    host: Host, make_task: MakeTask
) -> None:
    """What an agent leaves that dies between a start and its note of it (R5)."""
    task = container(make_task, "sleep 100")
    nothing = TaskHandle(driver="docker", task_id=task.id)
    with pytest.raises(LepaError, match="is gone"):
        await host.driver.recover(task, nothing)
    await host.driver.make(task, container_name(task))
    with pytest.raises(LepaError, match="never started"):
        await host.driver.recover(task, nothing)
    await host.start(task)
    other = replace(task, id="another-start")
    await host.driver.close()
    host.driver = host.new_driver()
    with pytest.raises(LepaError, match="never started"):
        await host.driver.recover(other, replace(nothing, task_id=other.id))
    await host.driver.recover(task, nothing)
    assert (await host.driver.stats(task.id)).resource_usage is not None


async def test_given_devices_appear_in_the_container(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    given = DeviceNode(host_path="/dev/null", task_path="/dev/fake0", permissions="rw")
    task = replace(container(make_task, "test -c /dev/fake0 && test -c /dev/full"), devices=(given,))
    assert (await host.run(task)).successful


async def test_containers_of_no_task_are_removed_once_they_are_old_enough(host: Host, make_task: MakeTask) -> None:
    task = container(make_task, "sleep 100")
    await host.start(task)
    number = await host.number(task)
    assert await host.driver._leftovers.look() == []
    await host.driver.close()
    host.driver = host.new_driver()
    assert await host.driver._leftovers.look() == [], "it is younger than the grace"
    await host.driver.close()
    old = DanglingSettings(creation_grace="0s", dry_run=True)
    host.driver = host.new_driver(gc=GcSettings(dangling_containers=old))
    assert await host.driver._leftovers.look() == [number]
    assert await exists(host, number)
    await host.driver.close()
    host.driver = host.new_driver(gc=GcSettings(dangling_containers=DanglingSettings(creation_grace="0s")))
    assert await host.driver._leftovers.look() == [number]
    assert not await exists(host, number)


async def test_a_loaded_image_goes_after_its_last_task_and_one_made_here_stays(
    host: Host, make_task: MakeTask, tmp_path: Path
) -> None:
    name = f"lepa-test/loaded-{uuid.uuid4().hex[:8]}:1"
    docker = ["docker", "-H", host.endpoint]
    subprocess.run([*docker, "tag", BUSYBOX_IMAGE, name], check=True)
    archive = tmp_path / "alloc/task/local/image.tar"
    subprocess.run([*docker, "save", "-o", archive, name], check=True)
    subprocess.run([*docker, "rmi", name], check=True, capture_output=True)
    await host.driver.close()
    host.driver = host.new_driver(gc=GcSettings(image_delay="10ms"))
    task = make_task(config={"image": name, "load": "local/image.tar", "command": "/bin/true"})
    assert (await host.run(task)).successful
    assert await host.api.has_image(name)
    await host.driver.destroy(task.id)
    async with asyncio.timeout(20):
        while await host.api.has_image(name):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    plain = container(make_task, "true")
    assert (await host.run(plain)).successful
    await host.driver.destroy(plain.id)
    await asyncio.sleep(0.1)
    assert await host.api.has_image(BUSYBOX_IMAGE)


async def test_ended_containers_stay_when_the_operator_wants_to_see_them(host: Host, make_task: MakeTask) -> None:
    await host.driver.close()
    host.driver = host.new_driver(gc=GcSettings(container=False))
    task = container(make_task, "exit 3")
    await host.run(task)
    number = await host.number(task)
    await host.driver.destroy(task.id)
    assert (await host.api.inspect(number))["State"]["ExitCode"] == 3
    await host.api.remove(number)


async def test_rsyslog_gets_what_a_container_writes(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    """Docker's syslog driver, as the job says."""
    with receivers.rsyslog(tmp_path) as found:
        options = {"syslog-address": f"udp://127.0.0.1:{found.ports[0]}", "tag": "mine", "syslog-facility": "local3"}
        logging = {"type": "syslog", "config": [options | {"syslog-format": "rfc5424"}]}
        await host.run(container(make_task, "echo to the receiver", logging=logging))
        (line,) = await asyncio.to_thread(eventually, found.lines)
    assert (line[0], line[2], line[-1].strip()) == (str(19 * 8 + 6), "mine", "to the receiver")


async def test_fluentds_receiver_gets_what_a_container_writes(host: Host, make_task: MakeTask, tmp_path: Path) -> None:
    """Docker's fluentd driver, as the job says."""
    with receivers.fluentd(tmp_path) as found:
        logging = {"type": "fluentd", "config": [{"fluentd-address": found.address, "tag": "lepa.{{.Name}}"}]}
        task = container(make_task, "echo to fluentd", logging=logging)
        await host.run(task)
        ((tag, record),) = await asyncio.to_thread(eventually, found.entries)
    assert tag == f"lepa.t-{task.alloc_id}"
    assert (record["log"], record["source"]) == ("to fluentd", "stdout")


async def test_containers_without_cores_keep_off_those_of_others(host: Host, make_task: MakeTask) -> None:
    """Those that run already too, and only until the cores are free again."""
    owner = AllocatedTaskResources(cpu=AllocatedCpuResources(cpu_shares=100, reserved_cores=(0,)))
    owns = replace(container(make_task, "sleep 600"), resources=owner)
    before, after = container(make_task, "sleep 600"), container(make_task, "sleep 600")

    async def cores(task: TaskConfig) -> str:
        state = await host.api.inspect(container_name(task))
        return str(state["HostConfig"]["CpusetCpus"])

    await host.start(owns)
    await host.start(before)
    await host.driver.share_cores((1,))
    await host.start(after)
    assert [await cores(task) for task in (owns, before, after)] == ["0", "1", "1"]
    await host.driver.share_cores((0, 1))
    assert [await cores(task) for task in (owns, before, after)] == ["0", "0,1", "0,1"]


def test_credentials_come_from_dockers_file(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    auth = base64.b64encode(b"me:secret").decode()
    path.write_text(json.dumps({"auths": {"reg.example:5000": {"auth": auth}, "https://other": {"auth": "x"}}}))
    assert from_config(str(path), "reg.example:5000") == {"auth": auth, "serveraddress": "reg.example:5000"}
    assert from_config(str(path), "other") == {"auth": "x", "serveraddress": "other"}
    assert from_config(str(path), "third") is None
    path.write_text("{")
    with pytest.raises(DriverError, match="cannot be read"):
        from_config(str(path), "x")


async def test_credentials_come_from_a_helper(
    host: Host, make_task: MakeTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helper = tmp_path / "docker-credential-mine"
    helper.write_text(
        "#!/bin/sh\nread server\ncase $server in\n"
        'reg:5000) echo \'{"ServerURL":"reg","Username":"u","Secret":"s"}\';;\n'
        'tok:5000) echo \'{"Username":"<token>","Secret":"t"}\';;\n'
        "bad:5000) echo nonsense;;\n*) exit 1;; esac\n"
    )
    helper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert await ask_helper("mine", "reg:5000") == {"username": "u", "password": "s", "serveraddress": "reg:5000"}
    assert await ask_helper("mine", "tok:5000") == {"identitytoken": "t", "serveraddress": "tok:5000"}
    assert await ask_helper("mine", "other") is None
    with pytest.raises(DriverError, match="not Docker's"):
        await ask_helper("mine", "bad:5000")
    with pytest.raises(DriverError, match="was not found"):
        await ask_helper("nothing", "x")
    await host.driver.close()
    host.driver = host.new_driver(auth=AuthSettings(helper="mine"))
    images = host.driver._images
    assert (await images.credentials(make_task(config={}), "reg:5000/web:1") or {})["username"] == "u"
    with pytest.raises(DriverError):
        await images.credentials(make_task(config={}), "bad:5000/web:1")
    soft = make_task(config={"auth_soft_fail": True})
    assert await images.credentials(soft, "bad:5000/web:1") is None
    given = make_task(config={"auth": [{"username": "a", "password": "b"}]})
    assert (await images.credentials(given, "reg:5000/web:1") or {})["username"] == "a"


def test_the_registry_is_the_first_part_that_looks_like_a_host() -> None:
    assert registry_of("reg:5000/a/b:1") == "reg:5000"
    assert registry_of("localhost/a") == "localhost"
    assert registry_of("library/redis:7") == registry_of("redis") == "index.docker.io/v1/"


def test_settings_become_rules(tmp_path: Path) -> None:
    made = rules_of(DockerSettings(pids_limit=7, oom_score_adj=3), 1000.0)
    assert (made.pids_limit, made.oom_score_adj, made.core_mhz) == (7, 3, 1000.0)
    assert tls_context(TlsSettings()) is None
    with pytest.raises(OSError):
        tls_context(TlsSettings(cert=str(tmp_path / "none")))
