"""One server and three nodes on machines of their own: work is spread, reached, named, replaced and moved."""

import re
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cluster.bed import PORTS, ClusterAgent, wait_until
from tests.cluster.cluster import Cluster, cluster
from tests.e2e.agents import eventually
from tests.e2e.jobs import SECOND, quick_update, shell_job

COUNTING = "echo pid $$ on $(hostname); n=0; while :; do n=$((n+1)); echo line $n; sleep 0.1; done"
APART = [{"Operand": "distinct_hosts", "LTarget": "", "RTarget": "true"}]
MOVES = {"Unlimited": True, "Delay": 5 * SECOND, "DelayFunction": "constant"}
PAGE = "exec python3 -m http.server --bind $NOMAD_IP_http $NOMAD_PORT_http"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("nodes")) as made:
        yield made


@pytest.fixture(autouse=True)
def _orderly(here: Cluster) -> Iterator[None]:
    """Each test finds a whole cluster without jobs, and leaves one that is in order."""
    yield
    here.recover()
    here.check_at_rest()
    here.clear()


def on_each_node(job_id: str, script: str = COUNTING, **fields: Any) -> dict[str, Any]:
    """A job with one allocation for each of the three nodes."""
    return shell_job(job_id, script, count=3, Constraints=APART, **fields)


def page_job(job_id: str, **fields: Any) -> dict[str, Any]:
    """A web page on each node, found as the service `job_id` while it answers."""
    check = {"Type": "http", "Path": "/", "Interval": SECOND, "Timeout": SECOND}
    service = {"Name": job_id, "PortLabel": "http", "Provider": "nomad", "Checks": [check]}
    group = {"Networks": [{"DynamicPorts": [{"Label": "http"}]}], "Services": [service]}
    return on_each_node(job_id, PAGE, group=group, Update=quick_update(HealthCheck="checks"), **fields)


def srv(agent: ClusterAgent, name: str) -> set[tuple[str, int]]:
    """Addresses and ports that the DNS of an agent gives for a service."""
    command = ["dig", f"@{agent.host}", "-p", str(PORTS["dns"]), name, "SRV", "+tries=1", "+time=1"]
    text = subprocess.run(command, capture_output=True, text=True).stdout
    hosts = dict(re.findall(r"^(\S+)\s+\d+\s+IN\s+A\s+(\S+)$", text, re.MULTILINE))
    places = re.findall(r"^\S+\s+\d+\s+IN\s+SRV\s+\d+ \d+ (\d+) (\S+)$", text, re.MULTILINE)
    return {(hosts[target], int(port)) for port, target in places}


def instances(agent: ClusterAgent, service: str) -> set[tuple[str, int]]:
    """Addresses and ports of a service's healthy instances, as an agent's API tells them."""
    found = agent.get(f"/v1/service/{service}")
    return {(one["Address"], one["Port"]) for one in found if one["Status"] == "passing"}


def ids(allocations: list[Any]) -> set[str]:
    return {allocation["ID"] for allocation in allocations}


def restarts(agent: ClusterAgent, allocation: Any) -> int:
    return int(agent.get(f"/v1/allocation/{allocation['ID']}")["TaskStates"]["main"]["Restarts"])


# Every node is reached through every agent


def test_work_is_spread_and_every_agent_shows_what_runs_on_the_others(here: Cluster) -> None:
    here.server.run(on_each_node("spread"))
    placed = here.running_by_node("spread", 3)
    assert placed.keys() == here.nodes.keys()
    for asked in (here.server, *here.nodes.values()):
        for name, (allocation,) in placed.items():
            alloc_id = allocation["ID"]
            said = eventually(lambda asked=asked, alloc_id=alloc_id: asked.output(alloc_id, "main"))
            assert re.match(rf"pid \d+ on {name}\nline 1\n", said)
            listed = asked.get(f"/v1/client/fs/ls/{alloc_id}", path="/")
            assert {"alloc", "main"} <= {entry["Name"] for entry in listed}
            used = asked.get(f"/v1/client/allocation/{alloc_id}/stats")
            assert used["Tasks"].keys() == {"main"}
            assert asked.lepa("alloc", "exec", alloc_id, "hostname") == f"{name}\n"
    assert here.server.get("/v1/client/stats", node_id=here.nodes["two"].node_id())["Memory"]["Total"] > 0


def test_a_task_on_another_node_is_followed_signalled_and_restarted_through_the_server(here: Cluster) -> None:
    script = "trap 'echo got USR1' USR1; while :; do sleep 0.05; done"
    here.server.run(on_each_node("told", script))
    for allocation in here.server.running("told", 3):
        alloc_id = allocation["ID"]
        follow = subprocess.Popen(
            here.server.machine.command(
                *("curl", "-sN", "-G", "-d", "task=main", "-d", "type=stdout", "-d", "follow=true", "-d", "plain=true"),
                f"{here.server.address}/v1/client/fs/logs/{alloc_id}",
            ),
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            time.sleep(0.3)
            here.server.put(f"/v1/client/allocation/{alloc_id}/signal", {"Signal": "SIGUSR1", "TaskName": "main"})
            assert follow.stdout is not None
            assert follow.stdout.readline() == "got USR1\n"
        finally:
            follow.terminate()
            follow.wait(10)
            follow.stdout.close()
        here.server.put(f"/v1/client/allocation/{alloc_id}/restart", {"TaskName": "main"})
        wait_until(lambda allocation=allocation: restarts(here.server, allocation) == 1)


def test_dns_of_every_agent_names_the_instances_on_all_nodes(here: Cluster) -> None:
    here.server.run(page_job("page"))
    wait_until(lambda: len(instances(here.server, "page")) == 3)
    places = instances(here.server, "page")
    assert {address for address, _ in places} == {node.host for node in here.nodes.values()}
    for agent in (here.server, *here.nodes.values()):
        wait_until(lambda agent=agent: srv(agent, "page.service.consul") == places, 5.0)
        assert srv(agent, "page.service.lepa") == places

    gone = here.server.running("page", 3)[0]
    here.server.put(f"/v1/allocation/{gone['ID']}/stop")
    wait_until(lambda: instances(here.server, "page") != places and len(instances(here.server, "page")) == 3)
    places = instances(here.server, "page")
    for agent in (here.server, *here.nodes.values()):
        wait_until(lambda agent=agent: srv(agent, "page.service.consul") == places, 5.0)


# Nodes fall silent


def test_work_of_a_node_whose_agent_died_goes_elsewhere_and_ends_there_when_it_is_back(here: Cluster) -> None:
    here.server.run(shell_job("lost", COUNTING, count=3))
    placed = here.running_by_node("lost", 3)
    name = max(placed, key=lambda node: len(placed[node]))
    victim, lost = here.nodes[name], ids(placed[name])
    victim.kill9()
    wait_until(lambda: here.status(victim) == "down")
    wait_until(lambda: name not in here.running_by_node("lost", 3))
    now = ids(here.server.running("lost", 3))
    statuses = {here.server.get(f"/v1/allocation/{alloc_id}")["ClientStatus"] for alloc_id in lost}
    assert statuses == {"lost"}
    assert {alloc_id for node, alloc_id in here.tasks() if node == name} == lost, "tasks outlive the agent"

    victim.start()
    wait_until(lambda: not [node for node, _ in here.tasks() if node == name])
    assert ids(here.server.running("lost", 3)) == now
    assert here.status(victim) == "ready"


def test_names_of_a_silent_node_vanish_and_come_back_with_it(here: Cluster) -> None:
    here.server.run(page_job("named"))
    wait_until(lambda: len(instances(here.server, "named")) == 3)
    here.bed.isolate(here.nodes["two"])
    others = {here.nodes["one"].host, here.nodes["three"].host}
    for agent in (here.server, here.nodes["one"], here.nodes["three"]):
        wait_until(lambda agent=agent: {host for host, _ in srv(agent, "named.service.consul")} == others)
    here.bed.heal()
    everywhere = others | {here.nodes["two"].host}
    for agent in (here.server, *here.nodes.values()):
        wait_until(lambda agent=agent: {host for host, _ in srv(agent, "named.service.consul")} == everywhere)


@pytest.mark.parametrize("direction", ["both ways", "to the server", "from the server"])
def test_a_node_that_is_cut_off_is_down_and_back_when_the_network_heals(here: Cluster, direction: str) -> None:
    here.server.run(shell_job("cut", COUNTING, count=3))
    here.running_by_node("cut", 3)
    node = here.nodes["one"]
    if direction != "from the server":
        here.bed.cut(node, here.server)
    if direction != "to the server":
        here.bed.cut(here.server, node)
    wait_until(lambda: here.status(node) == "down")
    wait_until(lambda: "one" not in here.running_by_node("cut", 3))
    here.bed.heal()
    wait_until(lambda: here.status(node) == "ready", 15.0)


def disconnecting(job_id: str, **disconnect: Any) -> dict[str, Any]:
    """A job whose allocations may outlive a lost connection."""
    return on_each_node(job_id, group={"Disconnect": {"LostAfter": 600 * SECOND, **disconnect}})


def test_an_allocation_that_may_disconnect_goes_on_and_is_kept_without_a_replacement(here: Cluster) -> None:
    here.server.run(disconnecting("patient", Replace=False))
    before = here.running_by_node("patient", 3)
    (allocation,) = before["one"]
    pid = here.first_process(allocation)
    here.bed.isolate(here.nodes["one"])
    wait_until(lambda: here.status(here.nodes["one"]) == "disconnected")
    here.server.alloc_until(allocation["ID"], lambda alloc: alloc["ClientStatus"] == "unknown")
    assert len(here.server.allocations("patient")) == 3
    here.bed.heal()
    here.server.alloc_until(allocation["ID"], lambda alloc: alloc["ClientStatus"] == "running")
    assert here.first_process(allocation) == pid
    assert restarts(here.server, allocation) == 0
    assert len(here.server.allocations("patient")) == 3


@pytest.mark.parametrize(("reconcile", "kept"), [("keep_original", "original"), ("keep_replacement", "replacement")])
def test_reconciling_keeps_one_of_a_returned_allocation_and_its_replacement(
    here: Cluster, reconcile: str, kept: str
) -> None:
    disconnect = {"LostAfter": 600 * SECOND, "Reconcile": reconcile}
    here.server.run(shell_job("chosen", COUNTING, group={"Disconnect": disconnect, "ReschedulePolicy": MOVES}))
    (original,) = here.server.running("chosen")
    here.bed.isolate(here.where(original))
    here.server.alloc_until(original["ID"], lambda alloc: alloc["ClientStatus"] == "unknown")
    (replacement,) = here.server.running("chosen")
    assert replacement["NodeName"] != original["NodeName"]
    here.bed.heal()
    stays, goes = (original, replacement) if kept == "original" else (replacement, original)
    here.server.alloc_until(goes["ID"], lambda alloc: alloc["DesiredStatus"] == "stop", 20.0)
    assert ids(here.server.running("chosen")) == {stays["ID"]}
    wait_until(lambda: here.tasks() == {(stays["NodeName"], stays["ID"])})


def test_a_cut_off_node_ends_what_must_not_go_on_alone(here: Cluster) -> None:
    """B045: all of it, however many groups there are."""
    job = shell_job("lonely", COUNTING, group={"Disconnect": {"StopOnClientAfter": 2 * SECOND}})
    (group,) = job["TaskGroups"]
    here.server.run({**job, "TaskGroups": [{**group, "Name": name} for name in ("a", "b", "c")]})
    placed = here.running_by_node("lonely", 3)
    name = max(placed, key=lambda node: len(placed[node]))
    here.bed.isolate(here.nodes[name])
    wait_until(lambda: not any(here.first_process(allocation) for allocation in placed[name]), 15.0)
    wait_until(lambda: name not in here.running_by_node("lonely", 3))


def test_a_pulled_cable_is_a_silent_node_until_it_is_put_back(here: Cluster) -> None:
    node = here.nodes["three"]
    here.bed.unplug(node)
    wait_until(lambda: here.status(node) == "down")
    here.bed.plug(node)
    wait_until(lambda: here.status(node) == "ready")


def test_nodes_follow_a_server_that_lost_its_power_and_never_closed_a_connection(here: Cluster) -> None:
    """Nobody tells the nodes that what they wait for will not be answered."""
    here.bed.power_off(here.server)
    here.bed.boot(here.server)
    wait_until(lambda: all(here.status(node) == "ready" for node in here.nodes.values()))
    here.server.run(page_job("late"))
    here.running_by_node("late", 3, 30.0)
    for node in here.nodes.values():
        wait_until(lambda node=node: len(srv(node, "late.service.consul")) == 3, 30.0)


def test_work_of_a_machine_that_lost_its_power_is_replaced(here: Cluster) -> None:
    here.server.run(shell_job("dark", COUNTING, count=3, group={"ReschedulePolicy": MOVES}))
    placed = here.running_by_node("dark", 3)
    name = max(placed, key=lambda node: len(placed[node]))
    here.bed.power_off(here.nodes[name])
    wait_until(lambda: name not in here.running_by_node("dark", 3), 30.0)
    here.bed.boot(here.nodes[name])
    here.server.run(on_each_node("after"))
    assert name in here.running_by_node("after", 3)


# Agents come and go


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_a_restarted_agent_of_a_node_finds_its_tasks_again(here: Cluster, end: str) -> None:
    here.server.run(disconnecting("attached", Replace=False))  # however slowly the agent starts
    placed = here.running_by_node("attached", 3)
    (allocation,) = placed["two"]
    pid = here.first_process(allocation)
    getattr(here.nodes["two"], end)()
    here.nodes["two"].start()
    assert here.running_by_node("attached", 3).keys() == placed.keys()
    assert here.first_process(allocation) == pid
    assert restarts(here.server, allocation) == 0
    written = len(here.server.output(allocation["ID"], "main"))
    wait_until(lambda: len(here.server.output(allocation["ID"], "main")) > written)


@pytest.mark.parametrize("end", ["stop", "kill9"])
def test_tasks_and_names_outlive_a_restart_of_the_server(here: Cluster, end: str) -> None:
    here.server.run(page_job("kept"))
    wait_until(lambda: len(instances(here.server, "kept")) == 3)
    places, tasks = instances(here.server, "kept"), here.tasks()
    index = here.server.request("GET", "/v1/nodes").index
    getattr(here.server, end)()
    time.sleep(4.0)
    assert here.tasks() == tasks
    for node in here.nodes.values():
        assert srv(node, "kept.service.consul") == places
    here.server.start()
    wait_until(lambda: all(here.status(node) == "ready" for node in here.nodes.values()))
    time.sleep(6.0)
    assert all(here.status(node) == "ready" for node in here.nodes.values())
    assert here.server.request("GET", "/v1/nodes").index >= index
    assert here.tasks() == tasks
    assert instances(here.server, "kept") == places
    here.server.run(on_each_node("new"))
    here.running_by_node("new", 3)
    for node in here.nodes.values():
        wait_until(lambda node=node: srv(node, "kept.service.consul") == places)


def test_a_drain_moves_work_one_by_one_and_a_drained_node_takes_work_again(here: Cluster) -> None:
    migrate = {"MaxParallel": 1, "HealthCheck": "task_states", "MinHealthyTime": 1, "HealthyDeadline": 20 * SECOND}
    here.server.run(shell_job("moving", COUNTING, count=6, group={"Migrate": migrate}))
    placed = here.running_by_node("moving", 6)
    name = max(placed, key=lambda node: len(placed[node]))
    node_id = here.nodes[name].node_id()
    here.server.lepa("node", "drain", "-enable", "-yes", "-deadline", "30s", node_id)
    moved = here.running_by_node("moving", 6)
    assert name not in moved
    wait_until(lambda: here.server.get(f"/v1/node/{node_id}")["LastDrain"]["Status"] == "complete")
    assert here.server.get(f"/v1/node/{node_id}")["SchedulingEligibility"] == "ineligible"
    here.server.lepa("node", "eligibility", "-enable", node_id)
    here.server.run(on_each_node("again"))
    assert name in here.running_by_node("again", 3)
