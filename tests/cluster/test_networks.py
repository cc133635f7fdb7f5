"""Networks of groups on real machines: the node's bridge by CNI plugins, and overlays that join two machines.

Whole paths through lepa.client.network.overlays, lepa.rpc.overlay_requests, lepa.server.endpoints.overlays and
lepa.cli.overlay.
"""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.bed import SERVER, Bed, ClusterAgent, node_of, wait_until
from tests.components import BUSYBOX_IMAGE, DOCKER_PACKAGES, allow_crun, import_busybox, require, start_docker
from tests.e2e.agents import eventually
from tests.e2e.jobs import SECOND, shell_job

pytestmark = [pytest.mark.docker, pytest.mark.oci]

PAGE = (
    "mkdir -p $NOMAD_TASK_DIR/w; hostname > $NOMAD_TASK_DIR/w/index.html; "
    "exec python3 -m http.server -d $NOMAD_TASK_DIR/w 8080"
)
ASKING = "while :; do curl -s -m 3 http://web.service.consul:8080/ || echo not yet; sleep 0.3; done"
CHECK = {"Type": "http", "Path": "/", "Interval": SECOND, "Timeout": SECOND}
POOL = "10.88.0.0/16"


@pytest.fixture(scope="module")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    allow_crun()
    require("nsenter", "util-linux")
    require("wireguard-go", "wireguard-go wireguard-tools")
    require("dockerd", DOCKER_PACKAGES)
    with Bed(tmp_path_factory.mktemp("networks")) as made:
        server = made.agent("server", SERVER)
        overlays = {"plain": {"pool": POOL}, "secret": {"pool": "10.99.0.0/16", "encrypted": True, "port": 4790}}
        for name in ("one", "two"):
            node = made.agent(name, node_of(server, overlay=overlays), start=False)
            with_docker(node)
            node.machine.run("mkdir", "-p", "/var/run/wireguard")
            node.machine.run("mount", "-t", "tmpfs", "none", "/var/run/wireguard")
            node.start()
        yield made


def with_docker(node: ClusterAgent) -> None:
    """A Docker daemon of the machine's own, which ends with it."""
    home = node.machine.folder / "docker"
    socket_path = f"{home}/sock"
    start_docker(home, socket_path, *node.machine.command())
    import_busybox(socket_path)
    settings = json.loads(node.config.read_text())
    docker = {"docker": {"config": {"endpoint": f"unix://{socket_path}", "volumes": {"enabled": True}}}}
    node.configure({**settings, "plugin": {**settings["plugin"], **docker}})


@pytest.fixture
def server(bed: Bed) -> Iterator[ClusterAgent]:
    yield bed.agents["server"]
    for job in bed.agents["server"].get("/v1/jobs"):
        bed.agents["server"].delete(f"/v1/job/{job['ID']}", purge="true")
    for name in ("one", "two"):
        wait_until(lambda n=name: not networks_left(bed.agents[n]))


def networks_left(node: ClusterAgent) -> list[str]:
    """What is left of allocations' networks on a machine: namespaces, and rules for their addresses and ports."""
    found = [str(path) for path in (node.data / "client" / "netns").glob("*")]
    rules = node.machine.run("iptables-save")
    return found + re.findall(r"^-A CNI-(?:FORWARD -[sd]|DN-).*$", rules, re.MULTILINE)


def group(mode: str, *services: Any, ports: Any = (), **network: Any) -> dict[str, Any]:
    """A group with a network of its own."""
    return {"Networks": [{"Mode": mode, "DynamicPorts": list(ports), **network}], "Services": list(services)}


def isolated_job(job_id: str, script: str, node: str, group: dict[str, Any], driver: str = "exec") -> dict[str, Any]:
    pinned = [{"LTarget": "${node.unique.name}", "RTarget": node, "Operand": "="}]
    task = {"Driver": driver, "Resources": {"CPU": 50, "MemoryMB": 64}}
    return shell_job(job_id, script, task=task, group=group, Constraints=pinned)


def output(node: ClusterAgent, alloc_id: str) -> str:
    return node.lepa("alloc", "logs", alloc_id)


@pytest.mark.parametrize("driver", ["exec", "raw_exec"])
def test_a_bridged_group_is_reached_by_its_mapped_port_and_checked_inside(
    bed: Bed, server: ClusterAgent, driver: str
) -> None:
    node = bed.agents["one"]
    service = {"Name": "web", "PortLabel": "http", "Provider": "nomad", "AddressMode": "alloc", "Checks": [CHECK]}
    service["Checks"] = [CHECK | {"AddressMode": "alloc"}]
    wanted = group("bridge", service, ports=[{"Label": "http", "To": 8080}])
    server.run(isolated_job("web", f"env; {PAGE}", "one", wanted, driver))
    (alloc,) = server.running("web")
    alloc = server.get(f"/v1/allocation/{alloc['ID']}")
    address = alloc["NetworkStatus"]["Address"]
    (port,) = alloc["AllocatedResources"]["Shared"]["Ports"]
    assert address.startswith("172.26.")
    assert eventually(lambda: node.machine.attempt("curl", "-sf", f"http://{node.host}:{port['Value']}/").stdout)
    assert node.machine.run("curl", "-sf", f"http://127.0.0.1:{port['Value']}/")
    assert server.machine.run("curl", "-sf", f"http://{node.host}:{port['Value']}/")
    wait_until(lambda: [each["Status"] for each in server.get("/v1/service/web")] == ["passing"])
    (instance,) = server.get("/v1/service/web")
    assert (instance["Address"], instance["Port"]) == (address, 8080)
    told = output(node, alloc["ID"])
    for line in (
        f"NOMAD_ALLOC_ADDR_http={address}:8080",
        f"NOMAD_HOST_ADDR_http={node.host}:{port['Value']}",
        "NOMAD_PORT_http=8080",
        "NOMAD_ALLOC_INTERFACE_http=eth0",
    ):
        assert line in told


def test_a_network_outlives_its_agent(bed: Bed, server: ClusterAgent) -> None:
    node = bed.agents["one"]
    server.run(isolated_job("web", PAGE, "one", group("bridge", ports=[{"Label": "http", "To": 8080}])))
    (stub,) = server.running("web")
    before = server.get(f"/v1/allocation/{stub['ID']}")
    url = f"http://{node.host}:{before['AllocatedResources']['Shared']['Ports'][0]['Value']}/"
    assert eventually(lambda: server.machine.attempt("curl", "-sf", url).stdout)
    node.kill9()
    assert server.machine.run("curl", "-sf", url)
    node.start()
    assert server.machine.run("curl", "-sf", url)
    after = server.get(f"/v1/allocation/{stub['ID']}")
    assert after["NetworkStatus"] == before["NetworkStatus"]
    assert after["TaskStates"]["main"]["Restarts"] == 0


def test_a_group_without_a_network_reaches_nothing(bed: Bed, server: ClusterAgent) -> None:
    script = "cat /sys/class/net/lo/address /proc/net/dev; sleep 600"
    server.run(isolated_job("alone", script, "one", group("none")))
    (alloc,) = server.running("alone")
    told = eventually(lambda: output(bed.agents["one"], alloc["ID"]))
    assert "lo:" in told
    assert "eth0" not in told


def test_hostname_and_dns_are_the_groups(bed: Bed, server: ClusterAgent) -> None:
    script = "hostname; getent hosts box; cat /etc/resolv.conf; sleep 600"
    dns = {"Servers": ["192.0.2.53"], "Searches": ["a.test"], "Options": ["ndots:2"]}
    server.run(isolated_job("named", script, "one", group("bridge", Hostname="box", DNS=dns)))
    (alloc,) = server.running("named")
    eventually(lambda: "ndots" in output(bed.agents["one"], alloc["ID"]))
    told = output(bed.agents["one"], alloc["ID"])
    assert told.startswith("box\n172.26.")
    assert "nameserver 192.0.2.53\nsearch a.test\noptions ndots:2" in told


def test_a_network_of_the_operators_own_is_there_after_a_reload(bed: Bed, server: ClusterAgent, tmp_path: Path) -> None:
    node = bed.agents["two"]
    configs = tmp_path / "cni"
    configs.mkdir()
    ipam = {"type": "host-local", "dataDir": f"{tmp_path}/data", "ranges": [[{"subnet": "10.44.0.0/24"}]]}
    network = {"cniVersion": "0.4.0", "name": "own", "plugins": [{"type": "ptp", "ipam": ipam}]}
    settings = json.loads(node.config.read_text())
    node.stop()
    node.configure({**settings, "client": {**settings["client"], "cni_config_dir": str(configs)}})
    node.start()
    (configs / "own.conflist").write_text(json.dumps(network))
    os.kill(node.pid, signal.SIGHUP)
    node_id = node.node_id()
    modes = lambda: [each["Mode"] for each in server.get(f"/v1/node/{node_id}")["NodeResources"]["Networks"]]  # noqa: E731
    wait_until(lambda: "cni/own" in modes())
    try:
        server.run(isolated_job("own", "cat /etc/hosts; sleep 600", "two", group("cni/own")))
        (alloc,) = server.running("own")
        assert server.get(f"/v1/allocation/{alloc['ID']}")["NetworkStatus"]["Address"].startswith("10.44.0.")
    finally:
        server.delete("/v1/job/own", purge="true")
        wait_until(lambda: not networks_left(node))
        node.stop()
        node.configure(settings)
        node.start()


@pytest.mark.parametrize("overlay", ["plain", "secret"])
def test_two_machines_talk_over_an_overlay_by_name(bed: Bed, server: ClusterAgent, overlay: str) -> None:
    one, two = bed.agents["one"], bed.agents["two"]
    service = {"Name": "web", "PortLabel": "8080", "Provider": "nomad", "Checks": [CHECK]}
    server.run(isolated_job("web", PAGE, "one", group(f"overlay/{overlay}", service, Hostname="page")))
    server.run(isolated_job("ask", ASKING, "two", group(f"overlay/{overlay}")))
    (web,) = server.running("web")
    (ask,) = server.running("ask")
    eventually(lambda: "page" in output(two, ask["ID"]), 30.0)
    address = server.get(f"/v1/allocation/{web['ID']}")["NetworkStatus"]["Address"]
    shares = {lease["NodeName"]: lease for lease in server.get(f"/v1/overlay/{overlay}")}
    assert address.startswith(shares["one"]["Subnet"].rpartition(".")[0])
    assert shares["one"]["Subnet"] != shares["two"]["Subnet"]
    assert "overlay" in one.lepa("overlay", "status").lower()
    one.kill9()
    one.start()
    before = output(two, ask["ID"]).count("page")
    eventually(lambda: output(two, ask["ID"]).count("page") > before + 3)


def test_docker_containers_on_two_machines_talk_over_an_overlay_by_name(bed: Bed, server: ClusterAgent) -> None:
    """Each machine has a Docker daemon of its own, which knows nothing of the other."""

    def containers(job_id: str, script: str, node: str, wanted: dict[str, Any]) -> dict[str, Any]:
        job = isolated_job(job_id, "", node, wanted, "docker")
        (task,) = job["TaskGroups"][0]["Tasks"]
        task["Config"] = {
            "image": BUSYBOX_IMAGE,
            "command": "/bin/sh",
            "args": ["-c", f"PATH=$PATH:/usr/bin; {script}"],
            "volumes": [f"{os.path.realpath(folder)}:{folder}:ro" for folder in ("/usr", "/lib", "/lib64")],
        }
        return job

    page = "mkdir /w; echo a container on $(hostname) > /w/index.html; exec httpd -f -p 8080 -h /w"
    service = {"Name": "web", "PortLabel": "8080", "Provider": "nomad", "Checks": [CHECK]}
    server.run(containers("web", page, "one", group("overlay/plain", service, Hostname="page")))
    server.run(containers("ask", ASKING, "two", group("overlay/plain")))
    (ask,) = server.running("ask")
    eventually(lambda: "a container on page" in output(bed.agents["two"], ask["ID"]), 30.0)
    subnets = {lease["Subnet"] for lease in server.get("/v1/overlay/plain")}
    assert len(subnets) == 2


def test_overlays_do_not_reach_each_other(bed: Bed, server: ClusterAgent) -> None:
    server.run(isolated_job("web", PAGE, "one", group("overlay/plain")))
    (web,) = server.running("web")
    address = server.get(f"/v1/allocation/{web['ID']}")["NetworkStatus"]["Address"]
    script = f"curl -s -m 2 http://{address}:8080/ && echo reached || echo refused; sleep 600"
    server.run(isolated_job("near", f"until {script}; do :; done", "one", group("overlay/plain")))
    server.run(isolated_job("far", script, "one", group("overlay/secret")))
    (near,) = server.running("near")
    (far,) = server.running("far")
    eventually(lambda: "reached" in output(bed.agents["one"], near["ID"]), 30.0)
    eventually(lambda: "refused" in output(bed.agents["one"], far["ID"]), 30.0)
