"""Jobs on one real agent, through the HTTP API, from registration to the last trace of them."""

import base64
import contextlib
import json
import subprocess
import threading
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.e2e.agents import HOST, Agent, eventually, running
from tests.e2e.jobs import MILLISECOND, SECOND, WAIT, quick_update, shell_job

WEB = "exec python3 -m http.server --bind $NOMAD_IP_http $NOMAD_PORT_http"


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("machine")) as made:
        yield made


@pytest.fixture(autouse=True)
def _purged(agent: Agent) -> Iterator[None]:
    """Each test finds the agent without jobs."""
    yield
    for stub in agent.get("/v1/jobs"):
        agent.purge(stub["ID"])


def events_of(alloc: Any, task: str = "main") -> list[str]:
    return [event["Type"] for event in alloc["TaskStates"][task]["Events"]]


def done(alloc: Any) -> bool:
    return alloc["ClientStatus"] in {"complete", "failed"}


def healthy(deployment: Any) -> bool:
    return bool(deployment["Status"] == "successful")


# Services


def test_service_with_a_check_becomes_healthy_and_is_found_by_name(agent: Agent) -> None:
    service = {
        "Name": "page",
        "PortLabel": "http",
        "Provider": "nomad",
        "Tags": ["first"],
        "Checks": [{"Type": "http", "Path": "/", "Interval": SECOND, "Timeout": SECOND}],
    }
    group = {"Networks": [{"DynamicPorts": [{"Label": "http"}]}], "Services": [service]}
    update = quick_update(HealthCheck="checks")
    agent.run(shell_job("page", WEB, count=2, group=group, Update=update))
    agent.deployment("page", healthy)
    ports = {
        alloc["AllocatedResources"]["Shared"]["Ports"][0]["Value"]
        for alloc in (agent.get(f"/v1/allocation/{stub['ID']}") for stub in agent.running("page", 2))
    }
    assert len(ports) == 2

    def srv(name: str) -> list[str]:
        command = ["dig", f"@{HOST}", "-p", str(agent.ports["dns"]), name, "SRV", "+short", "+tries=1", "+time=2"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    assert {int(line.split()[2]) for line in eventually(lambda: srv("page.service.consul"))} == ports
    assert {int(line.split()[2]) for line in srv("first.page.service.lepa")} == ports
    assert [entry["Services"] for entry in agent.get("/v1/services")] == [[{"ServiceName": "page", "Tags": ["first"]}]]
    instances = agent.get("/v1/service/page")
    assert {(instance["Address"], instance["Port"]) for instance in instances} == {(HOST, port) for port in ports}
    (check,) = agent.get(f"/v1/client/allocation/{instances[0]['AllocID']}/checks").values()
    assert (check["Status"], check["StatusCode"]) == ("success", 200)
    agent.purge("page")
    eventually(lambda: not agent.get("/v1/service/page"))
    eventually(lambda: not srv("page.service.consul"))


def test_destructive_update_replaces_one_after_another(agent: Agent) -> None:
    agent.run(shell_job("rolling", count=3))
    agent.deployment("rolling", healthy)
    before = {alloc["ID"] for alloc in agent.running("rolling", 3)}
    fewest = 3
    agent.run(shell_job("rolling", count=3, task={"Env": {"VERSION": "2"}}))

    def finished() -> bool:
        nonlocal fewest
        allocations = agent.allocations("rolling")
        runs = [a for a in allocations if a["DesiredStatus"] == "run" and a["ClientStatus"] in {"pending", "running"}]
        fewest = min(fewest, len(runs))
        found = agent.get("/v1/job/rolling/deployment")
        return bool(found["JobVersion"] == 1 and found["Status"] == "successful")

    eventually(finished, 30)
    after = agent.running("rolling", 3)
    assert fewest >= 2
    assert not before & {alloc["ID"] for alloc in after}
    assert {alloc["JobVersion"] for alloc in after} == {1}
    assert [job["Stable"] for job in agent.get("/v1/job/rolling/versions")["Versions"]] == [True, True]


def test_update_in_place_keeps_the_process(agent: Agent) -> None:
    agent.run(shell_job("inplace", "echo $$; " + WAIT))
    agent.deployment("inplace", healthy)
    (before,) = agent.running("inplace")
    agent.run(shell_job("inplace", "echo $$; " + WAIT, Priority=60, task={"KillTimeout": 3 * SECOND}))
    agent.deployment("inplace", lambda found: found["JobVersion"] == 1 and healthy(found))
    (after,) = agent.running("inplace")
    assert after["ID"] == before["ID"]
    assert after["JobVersion"] == 1
    assert len(agent.output(after["ID"], "main").split()) == 1


def test_canary_waits_for_its_promotion(agent: Agent) -> None:
    update = quick_update(Canary=1, MaxParallel=2)
    agent.run(shell_job("canary", count=2, Update=update))
    agent.deployment("canary", healthy)
    before = {alloc["ID"] for alloc in agent.running("canary", 2)}
    agent.run(shell_job("canary", count=2, Update=update, task={"Env": {"VERSION": "2"}}))
    waits = agent.deployment("canary", lambda found: found["TaskGroups"]["main"]["HealthyAllocs"] == 1)
    state = waits["TaskGroups"]["main"]
    assert (state["DesiredCanaries"], state["Promoted"], waits["Status"]) == (1, False, "running")
    assert before < {alloc["ID"] for alloc in agent.running("canary", 3)}
    refused = agent.request(
        "PUT", f"/v1/deployment/promote/{waits['ID']}", {"DeploymentID": waits["ID"], "Groups": ["other"]}
    )
    assert refused.status in {400, 500}
    agent.put(f"/v1/deployment/promote/{waits['ID']}", {"DeploymentID": waits["ID"], "All": True})
    agent.deployment("canary", healthy)
    assert not before & {alloc["ID"] for alloc in agent.running("canary", 2)}


def test_group_is_scaled_and_the_event_is_kept(agent: Agent) -> None:
    scaling = {"Min": 1, "Max": 4, "Enabled": True}
    agent.run(shell_job("scaled", group={"Scaling": scaling}))
    agent.running("scaled")
    agent.deployment("scaled", healthy)
    target = {"Target": {"Group": "main"}, "Message": "more visitors"}
    agent.put("/v1/job/scaled/scale", {"Count": 3, **target})
    agent.running("scaled", 3)
    status = agent.get("/v1/job/scaled/scale")["TaskGroups"]["main"]
    assert status["Desired"] == 3
    assert (status["Events"][0]["Message"], status["Events"][0]["PreviousCount"]) == ("more visitors", 1)
    refused = agent.request("PUT", "/v1/job/scaled/scale", {"Count": 5, **target})
    assert refused.status == 400
    assert "greater than scaling policy maximum" in refused.text
    agent.deployment("scaled", healthy)
    agent.put("/v1/job/scaled/scale", {"Count": 1, **target})
    agent.running("scaled", 1)


# Batch jobs


def test_batch_job_completes(agent: Agent) -> None:
    eval_id = agent.run(shell_job("sum", "echo $((1 + 2)); echo odd >&2", kind="batch", count=2))
    assert agent.evaluation(eval_id)["Status"] == "complete"
    for stub in agent.allocations("sum"):
        alloc = agent.alloc_until(stub["ID"], done)
        assert (alloc["ClientStatus"], alloc["TaskStates"]["main"]["Failed"]) == ("complete", False)
        assert events_of(alloc) == ["Received", "Task Setup", "Started", "Terminated"]
        assert alloc["TaskStates"]["main"]["Events"][-1]["Details"]["exit_code"] == "0"
        assert agent.output(alloc["ID"], "main") == "3\n"
        assert agent.output(alloc["ID"], "main", "stderr") == "odd\n"
    assert eventually(lambda: agent.get("/v1/job/sum")["Status"] == "dead")
    assert agent.get("/v1/job/sum/summary")["Summary"]["main"]["Complete"] == 2


def test_failing_job_restarts_then_fails_and_says_why(agent: Agent) -> None:
    policy = {"Attempts": 2, "Interval": 60 * SECOND, "Delay": 20 * MILLISECOND, "Mode": "fail"}
    agent.run(shell_job("broken", "exit 7", kind="batch", group={"RestartPolicy": policy}))
    (stub,) = eventually(lambda: agent.allocations("broken"))
    alloc = agent.alloc_until(stub["ID"], done)
    state = alloc["TaskStates"]["main"]
    assert (alloc["ClientStatus"], state["Failed"], state["Restarts"]) == ("failed", True, 2)
    types = events_of(alloc)
    assert [types.count(kind) for kind in ("Started", "Terminated", "Restarting", "Not Restarting")] == [3, 3, 2, 1]
    ends = [event for event in state["Events"] if event["Type"] == "Terminated"]
    assert {event["Details"]["exit_code"] for event in ends} == {"7"}
    assert "Exceeded allowed attempts" in state["Events"][-1]["DisplayMessage"]


def test_command_that_does_not_exist_fails_with_the_drivers_reason(agent: Agent) -> None:
    agent.run(shell_job("missing", kind="batch", task={"Config": {"command": "/no/such/program"}}))
    (stub,) = eventually(lambda: agent.allocations("missing"))
    alloc = agent.alloc_until(stub["ID"], done)
    failures = [event for event in alloc["TaskStates"]["main"]["Events"] if event["Type"] == "Driver Failure"]
    assert "/no/such/program" in failures[-1]["DisplayMessage"]


def test_parameterized_job_is_dispatched_with_payload_and_meta(agent: Agent) -> None:
    job = shell_job(
        "letters",
        'echo "$NOMAD_META_TO: $(cat local/letter)"',
        kind="batch",
        task={"DispatchPayload": {"File": "letter"}},
        ParameterizedJob={"Payload": "required", "MetaRequired": ["to"]},
    )
    assert agent.run(job) == ""
    assert agent.get("/v1/job/letters")["Status"] == "running"
    refused = agent.request("PUT", "/v1/job/letters/dispatch", {"Meta": {"to": "Ada"}})
    assert refused.status in {400, 500}
    body = {"Payload": base64.b64encode(b"hello").decode(), "Meta": {"to": "Ada"}}
    child = agent.put("/v1/job/letters/dispatch", body)["DispatchedJobID"]
    assert child.startswith("letters/dispatch-")
    (stub,) = eventually(lambda: agent.allocations(child))
    agent.alloc_until(stub["ID"], done)
    assert agent.output(stub["ID"], "main") == "Ada: hello\n"
    assert agent.put("/v1/job/letters/dispatch", body, idempotency_token="one")["DispatchedJobID"] != child
    again = agent.put("/v1/job/letters/dispatch", body, idempotency_token="one")["DispatchedJobID"]
    assert [job["ID"] for job in agent.get("/v1/jobs", prefix="letters/") if job["ID"] == again] == [again]
    assert agent.get("/v1/job/letters/summary")["Children"]["Dead"] >= 1


def test_periodic_job_is_forced_and_its_child_runs_once(agent: Agent) -> None:
    periodic = {"Enabled": True, "Specs": ["0 3 1 1 *"], "SpecType": "cron"}
    assert agent.run(shell_job("yearly", "echo now", kind="batch", Periodic=periodic)) == ""
    assert agent.put("/v1/job/yearly/periodic/force")["EvalID"]
    (child,) = agent.get("/v1/jobs", prefix="yearly/periodic-")
    assert child["ParentID"] == "yearly"
    (stub,) = eventually(lambda: agent.allocations(child["ID"]))
    assert agent.alloc_until(stub["ID"], done)["ClientStatus"] == "complete"
    refused = agent.request("PUT", "/v1/job/yearly/evaluate")
    assert (refused.status, refused.text) == (400, "can't evaluate periodic job")


# Stopping


def test_stopped_job_is_kept_and_started_again_and_a_purged_one_is_forgotten(agent: Agent) -> None:
    agent.run(shell_job("halted", "trap 'exit 3' INT; while :; do sleep 0.05; done"))
    (stub,) = agent.running("halted")
    agent.deployment("halted", healthy)
    answer = agent.delete("/v1/job/halted")
    assert agent.evaluation(answer["EvalID"])["TriggeredBy"] == "job-deregister"
    alloc = agent.alloc_until(stub["ID"], lambda found: found["ClientStatus"] == "complete")
    assert (alloc["DesiredStatus"], events_of(alloc)[-2:]) == ("stop", ["Terminated", "Killed"])
    assert alloc["TaskStates"]["main"]["Events"][-2]["Details"]["exit_code"] == "3"
    job = agent.get("/v1/job/halted")
    assert (job["Stop"], job["Status"]) == (True, "dead")
    agent.run(job | {"Stop": False})
    agent.running("halted")
    agent.purge("halted")
    gone = agent.request("GET", "/v1/job/halted")
    assert (gone.status, gone.text) == (404, "job not found")
    assert agent.delete("/v1/job/halted")["JobModifyIndex"] == 0


def test_task_that_ignores_its_signal_is_killed_after_its_timeout(agent: Agent) -> None:
    stubborn = "trap '' INT TERM; sleep 1000 & while :; do sleep 0.05; done"
    agent.run(shell_job("stubborn", stubborn, task={"KillTimeout": 300 * MILLISECOND}))
    (stub,) = agent.running("stubborn")
    assert len(_processes_of(agent, stub["ID"])) >= 2
    agent.purge("stubborn")
    assert _processes_of(agent, stub["ID"]) == []


def _processes_of(agent: Agent, alloc_id: str) -> list[str]:
    """Processes whose environment says that they belong to an allocation."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdigit() and f"NOMAD_ALLOC_ID={alloc_id}\0".encode() in (entry / "environ").read_bytes():
                found.append(entry.name)
    return found


# Allocations


def test_allocation_is_restarted_signalled_and_stopped(agent: Agent) -> None:
    script = "trap 'echo hup' HUP; trap 'exit 0' INT; echo up; while :; do sleep 0.05; done"
    agent.run(shell_job("handled", script))
    agent.deployment("handled", healthy)
    (stub,) = agent.running("handled")
    path = f"/v1/client/allocation/{stub['ID']}"
    eventually(lambda: agent.output(stub["ID"], "main") == "up\n")
    agent.put(f"{path}/signal", {"Signal": "SIGHUP", "Task": "main"})
    eventually(lambda: agent.output(stub["ID"], "main") == "up\nhup\n")
    agent.put(f"{path}/restart", {"TaskName": "main"})
    alloc = agent.alloc_until(stub["ID"], lambda found: events_of(found).count("Started") == 2)
    assert {"Signaling", "Restart Signaled", "Restarting"} <= set(events_of(alloc))
    eventually(lambda: agent.output(stub["ID"], "main") == "up\nhup\nup\n")
    usage = agent.get(f"{path}/stats")
    assert usage["Tasks"]["main"]["ResourceUsage"]["MemoryStats"]["RSS"] > 0
    refused = agent.request("PUT", f"{path}/signal", {"Signal": "SIGNONE", "Task": "main"})
    assert 400 <= refused.status < 600
    assert "SIGNONE" in refused.text
    answer = agent.put(f"/v1/allocation/{stub['ID']}/stop")
    assert agent.evaluation(answer["EvalID"])["TriggeredBy"] == "alloc-stop"
    (other,) = eventually(lambda: [alloc for alloc in agent.running("handled") if alloc["ID"] != stub["ID"]] or None)
    assert agent.alloc_until(stub["ID"], done)["NextAllocation"] == other["ID"]


def test_logs_are_followed_while_they_are_written(agent: Agent) -> None:
    agent.run(shell_job("talker", "for n in 1 2 3 4 5 6; do echo line $n; sleep 0.2; done; " + WAIT))
    (stub,) = agent.running("talker")
    path = f"/v1/client/fs/logs/{stub['ID']}?task=main&type=stdout&follow=true"
    assert _read_until(agent, path + "&plain=true", b"line 6\n") == b"".join(b"line %d\n" % n for n in range(1, 7))
    text = b""
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=20)
    connection.request("GET", path)
    decoder, pending = json.JSONDecoder(), ""
    response = connection.getresponse()
    while b"line 6\n" not in text:
        pending += response.read1(65536).decode()
        while pending:
            frame, end = decoder.raw_decode(pending)
            pending = pending[end:].lstrip()
            text += base64.b64decode(frame.get("Data", ""))
            assert not frame.get("Data") or frame["File"] == "alloc/logs/main.stdout.0"
    connection.close()
    end = agent.request("GET", path.replace("follow=true", "origin=end&offset=7&plain=true"))
    assert end.text == "line 6\n"


def _read_until(agent: Agent, path: str, wanted: bytes) -> bytes:
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=20)
    connection.request("GET", path)
    response = connection.getresponse()
    found = b""
    while wanted not in found:
        piece = response.read1(65536)
        assert piece, f"ended after {found!r}"
        found += piece
    connection.close()
    return found


def test_files_of_an_allocation_are_listed_and_read(agent: Agent) -> None:
    agent.run(shell_job("files", "printf 0123456789 > local/digits; echo done; " + WAIT))
    (stub,) = agent.running("files")
    eventually(lambda: agent.output(stub["ID"], "main") == "done\n")
    fs = "/v1/client/fs"
    assert {entry["Name"] for entry in agent.get(f"{fs}/ls/{stub['ID']}")} >= {"alloc", "main"}
    (entry,) = agent.get(f"{fs}/ls/{stub['ID']}", path="/main/local")
    assert (entry["Name"], entry["Size"], entry["IsDir"]) == ("digits", 10, False)
    assert agent.get(f"{fs}/stat/{stub['ID']}", path="main/local/digits")["Size"] == 10
    assert agent.request("GET", f"{fs}/cat/{stub['ID']}?path=main/local/digits").text == "0123456789"
    assert agent.request("GET", f"{fs}/readat/{stub['ID']}?path=main/local/digits&offset=3&limit=4").text == "3456"
    frames = _read_until(agent, f"{fs}/stream/{stub['ID']}?path=main/local/digits&offset=8&follow=false", b"}")
    assert base64.b64decode(json.loads(frames.partition(b"}")[0] + b"}")["Data"]) == b"89"
    assert agent.request("GET", f"{fs}/stat/{stub['ID']}?path=nothing").status == 404
    for path in ("../../..", "/main/secrets", "main/../main/private", "/etc/passwd"):
        answer = agent.request("GET", f"{fs}/ls/{stub['ID']}?path={path}")
        assert 400 <= answer.status < 500, (path, answer.status, answer.text)


async def test_command_runs_in_a_task_over_a_websocket(agent: Agent) -> None:
    agent.run(shell_job("shell", task={"Env": {"COLOR": "green"}}))
    (stub,) = agent.running("shell")
    url = f"{agent.address}/v1/client/allocation/{stub['ID']}/exec"
    script = 'read line; echo "$line $COLOR"; echo problem >&2; head -c 3000000 /dev/zero; exit 9'
    async with aiohttp.ClientSession() as session:
        query = {"task": "main", "command": json.dumps(["/bin/sh", "-c", script]), "tty": "false"}
        async with session.ws_connect(url, params=query, max_msg_size=0) as socket:
            await socket.send_json({"stdin": {"data": base64.b64encode(b"paint it\n").decode()}})
            await socket.send_json({"stdin": {"close": True}})
            written, result = await _everything(socket)
    assert written["stdout"] == b"paint it green\n" + bytes(3_000_000)
    assert written["stderr"] == b"problem\n"
    assert result == {"exit_code": 9}


async def test_action_of_a_job_runs_in_its_task(agent: Agent) -> None:
    words = {"Name": "greet", "Command": "/bin/echo", "Args": ["hello", "${NOMAD_TASK_NAME}"]}
    agent.run(shell_job("acting", task={"Actions": [words]}))
    (stub,) = agent.running("acting")
    query = {"action": "greet", "allocID": stub["ID"], "task": "main", "tty": "false"}
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(f"{agent.address}/v1/job/acting/action", params=query) as socket:
            written, result = await _everything(socket)
    assert (written["stdout"], result) == (b"hello main\n", {"exit_code": 0})


async def test_terminal_of_a_command_has_the_size_that_was_told(agent: Agent) -> None:
    agent.run(shell_job("terminal"))
    (stub,) = agent.running("terminal")
    url = f"{agent.address}/v1/client/allocation/{stub['ID']}/exec"
    async with aiohttp.ClientSession() as session:
        query = {"task": "main", "command": json.dumps(["/bin/sh", "-c", "read line; stty size"]), "tty": "true"}
        async with session.ws_connect(url, params=query) as socket:
            await socket.send_json({"tty_size": {"height": 33, "width": 99}})
            await socket.send_json({"stdin": {"data": base64.b64encode(b"\n").decode()}})
            written, result = await _everything(socket)
    assert b"33 99" in written["stdout"]
    assert result == {"exit_code": 0}


async def _everything(socket: aiohttp.ClientWebSocketResponse) -> tuple[dict[str, bytes], Any]:
    """What a command wrote by stream, and its result."""
    written = {"stdout": b"", "stderr": b""}
    result = None
    async for message in socket:
        frame = json.loads(message.data)
        for stream in written:
            written[stream] += base64.b64decode((frame.get(stream) or {}).get("data", ""))
        if frame.get("exited"):
            result = frame["result"]
    return written, result


# Nodes and placement


def test_drained_node_sheds_its_jobs_and_takes_them_back(agent: Agent) -> None:
    agent.run(shell_job("moved"))
    (stub,) = agent.running("moved")
    agent.deployment("moved", healthy)
    (node,) = agent.get("/v1/nodes")
    path = f"/v1/node/{node['ID']}"
    agent.put(f"{path}/drain", {"DrainSpec": {"Deadline": 20 * SECOND}, "Meta": {"why": "test"}})
    assert agent.get(path)["SchedulingEligibility"] == "ineligible"
    refused = agent.request("PUT", f"{path}/eligibility", {"Eligibility": "eligible"})
    assert "while it is draining" in refused.text
    agent.alloc_until(stub["ID"], lambda alloc: alloc["ClientStatus"] == "complete")
    eventually(lambda: agent.get(path)["DrainStrategy"] is None)
    assert agent.get(path)["LastDrain"]["Status"] == "complete"
    assert [e["Message"] for e in agent.get(path)["Events"] if e["Subsystem"] == "Drain"][-1:] == [
        "Node drain complete"
    ]
    (blocked,) = [e for e in agent.get("/v1/job/moved/evaluations") if e["Status"] == "blocked"]
    assert blocked["TriggeredBy"] == "queued-allocs"
    agent.put(f"{path}/eligibility", {"Eligibility": "eligible"})
    agent.running("moved")
    assert agent.get(f"/v1/evaluation/{blocked['ID']}")["Status"] == "complete"


def test_ineligible_node_keeps_what_it_has_and_gets_nothing_new(agent: Agent) -> None:
    agent.run(shell_job("old"))
    agent.running("old")
    (node,) = agent.get("/v1/nodes")
    agent.put(f"/v1/node/{node['ID']}/eligibility", {"Eligibility": "ineligible"})
    evaluation = agent.evaluation(agent.run(shell_job("new")))
    assert evaluation["QueuedAllocations"] == {"main": 1}
    agent.running("old")
    agent.put(f"/v1/node/{node['ID']}/eligibility", {"Eligibility": "eligible"})
    agent.running("new")


def test_blocked_evaluation_goes_on_when_capacity_appears(agent: Agent) -> None:
    (node,) = agent.get("/v1/nodes")
    memory = agent.get(f"/v1/node/{node['ID']}")["NodeResources"]["Memory"]["MemoryMB"]
    agent.run(shell_job("large", task={"memory_mb": memory * 2 // 3}))
    agent.running("large")
    evaluation = agent.evaluation(agent.run(shell_job("waiting", task={"memory_mb": memory * 2 // 3})))
    assert evaluation["FailedTGAllocs"]["main"]["DimensionExhausted"] == {"memory": 1}
    blocked = agent.get(f"/v1/evaluation/{evaluation['BlockedEval']}")
    assert blocked["Status"] == "blocked"
    assert agent.get("/v1/job/waiting")["Status"] == "pending"
    agent.purge("large")
    agent.running("waiting")


def test_system_job_runs_on_the_node(agent: Agent) -> None:
    agent.run(shell_job("everywhere", kind="system", group={"ReschedulePolicy": None}))
    (stub,) = agent.running("everywhere")
    assert stub["JobType"] == "system"


# Plans and versions


def test_plan_tells_what_would_change_and_changes_nothing(agent: Agent) -> None:
    job = shell_job("planned", count=2)
    fresh = agent.put("/v1/job/planned/plan", {"Job": job, "Diff": True})
    assert (fresh["JobModifyIndex"], fresh["Diff"]["Type"]) == (0, "Added")
    assert fresh["Annotations"]["DesiredTGUpdates"]["main"]["Place"] == 2
    assert agent.request("GET", "/v1/job/planned").status == 404
    agent.run(job)
    agent.deployment("planned", healthy)
    changed = shell_job("planned", count=2, task={"Env": {"COLOR": "red"}})
    plan = agent.put("/v1/job/planned/plan", {"Job": changed, "Diff": True})
    updates = plan["Annotations"]["DesiredTGUpdates"]["main"]
    assert (updates["DestructiveUpdate"], updates["Ignore"]) == (1, 1)
    (group,) = plan["Diff"]["TaskGroups"]
    assert (plan["Diff"]["Type"], group["Type"], group["Updates"]["create/destroy update"]) == ("Edited", "Edited", 1)
    assert plan["JobModifyIndex"] == agent.get("/v1/job/planned")["JobModifyIndex"]
    wrong = agent.request("PUT", "/v1/jobs", {"Job": changed, "EnforceIndex": True, "JobModifyIndex": 1})
    assert "Enforcing job modify index 1: job exists with conflicting job modify index" in wrong.text
    agent.put("/v1/jobs", {"Job": changed, "EnforceIndex": True, "JobModifyIndex": plan["JobModifyIndex"]})
    huge = shell_job("planned", task={"memory_mb": 10_000_000})
    failed = agent.put("/v1/job/planned/plan", {"Job": huge})["FailedTGAllocs"]
    assert failed["main"]["DimensionExhausted"] == {"memory": 1}


def test_versions_are_kept_compared_and_reverted_to(agent: Agent) -> None:
    for color in ("red", "green"):
        agent.run(shell_job("painted", task={"Env": {"COLOR": color}}))
    agent.run(shell_job("painted", task={"Env": {"COLOR": "green"}}))
    found = agent.get("/v1/job/painted/versions", diffs="true")
    assert [job["Version"] for job in found["Versions"]] == [1, 0]
    assert [diff["Type"] for diff in found["Diffs"]] == ["Edited"]
    refused = agent.request("PUT", "/v1/job/painted/revert", {"JobID": "painted", "JobVersion": 1})
    assert (refused.status, refused.text) == (400, "can't revert to current version")
    agent.put("/v1/job/painted/revert", {"JobID": "painted", "JobVersion": 0})
    job = agent.get("/v1/job/painted")
    assert (job["Version"], job["TaskGroups"][0]["Tasks"][0]["Env"]) == (2, {"COLOR": "red"})


# Watching


def test_event_stream_tells_the_life_of_a_job_in_order(agent: Agent) -> None:
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=20)
    since = agent.request("GET", "/v1/jobs").index
    topics = "topic=Job:watched&topic=Allocation:watched&topic=Evaluation:watched&topic=Deployment:watched"
    connection.request("GET", f"/v1/event/stream?{topics}&index={since}")
    response = connection.getresponse()
    assert json.loads(response.readline()) == {}
    agent.run(shell_job("watched"))
    seen: list[Any] = []

    def follow() -> None:
        while not any(event["Topic"] == "Job" and event["Type"] == "JobDeregistered" for event in seen):
            line = json.loads(response.readline())
            assert all(event["Index"] == line["Index"] for event in line.get("Events", ()))
            seen.extend(line.get("Events", ()))

    reader = threading.Thread(target=follow)
    reader.start()
    agent.deployment("watched", healthy)
    agent.purge("watched")
    reader.join(20)
    connection.close()
    assert not reader.is_alive()
    indexes = [event["Index"] for event in seen]
    assert indexes == sorted(indexes)
    assert seen[0]["Topic"] in {"Job", "Evaluation"}
    assert {event["Topic"] for event in seen} == {"Job", "Allocation", "Evaluation", "Deployment"}
    allocation = [event for event in seen if event["Topic"] == "Allocation"]
    assert allocation[0]["Payload"]["Allocation"]["ClientStatus"] == "pending"
    assert all("Job" not in event["Payload"]["Allocation"] for event in allocation)
    assert all(event["Key"] == "watched" for event in seen if event["Topic"] == "Job")


def test_search_finds_by_prefix_and_by_part_of_a_name(agent: Agent) -> None:
    agent.run(shell_job("needle-in-hay"))
    (stub,) = agent.running("needle-in-hay")
    for length in (1, 7, 8, 9, 20, 36):
        found = agent.put("/v1/search", {"Prefix": stub["ID"][:length], "Context": "allocs"})
        assert stub["ID"] in found["Matches"]["allocs"], length
    assert agent.put("/v1/search", {"Prefix": "needle", "Context": "all"})["Matches"]["jobs"] == ["needle-in-hay"]
    assert agent.put("/v1/search", {"Prefix": "n" * 40, "Context": "all"})["Matches"].get("jobs", []) == []
    fuzzy = agent.put("/v1/search/fuzzy", {"Text": "in-hay", "Context": "jobs"})["Matches"]["jobs"]
    assert fuzzy == [{"ID": "needle-in-hay", "Scope": ["default", "needle-in-hay"]}]


def test_garbage_collection_forgets_ended_things_and_their_files(agent: Agent) -> None:
    """B155."""
    agent.run(shell_job("spent", "true", kind="batch"))
    agent.run(shell_job("alive"))
    (kept,) = agent.running("alive")
    (stub,) = eventually(lambda: agent.allocations("spent"))
    agent.alloc_until(stub["ID"], done)
    agent.delete("/v1/job/spent")
    eventually(lambda: agent.get("/v1/job/spent")["Status"] == "dead")
    eventually(lambda: all(e["Status"] == "complete" for e in agent.get("/v1/job/spent/evaluations")))
    agent.put("/v1/system/gc")
    eventually(lambda: agent.request("GET", f"/v1/allocation/{stub['ID']}").status == 404)
    eventually(lambda: agent.request("GET", "/v1/job/spent").status == 404)
    eventually(lambda: not (agent.data / "alloc" / stub["ID"]).exists())
    assert agent.request("GET", f"/v1/client/fs/ls/{stub['ID']}").status == 404
    query = {"task": "main", "type": "stdout"}
    eventually(lambda: agent.request("GET", f"/v1/client/fs/logs/{stub['ID']}", query=query).status == 404)
    assert (agent.data / "alloc" / kept["ID"]).exists()
    agent.running("alive")


def test_metrics_are_shown_as_json_and_for_prometheus(agent: Agent) -> None:
    agent.run(shell_job("counted"))
    agent.running("counted")
    (node,) = agent.get("/v1/nodes")
    summary = agent.get("/v1/metrics")
    gauges = {gauge["Name"]: gauge for gauge in summary["Gauges"]}
    assert gauges["nomad.client.allocations.running"]["Value"] == 1
    assert gauges["nomad.client.allocations.running"]["Labels"]["node_id"] == node["ID"]
    assert set(summary) == {"Timestamp", "Gauges", "Points", "Counters", "Samples"}
    answer = agent.request("GET", "/v1/metrics?format=prometheus")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    assert families["nomad_client_allocations_running"].samples[0].value == 1
    assert families["nomad_http_request"].type == "summary"


def test_agents_log_is_followed(agent: Agent) -> None:
    connection = HTTPConnection(HOST, agent.ports["http"], timeout=20)
    connection.request("GET", "/v1/agent/monitor?plain=true")
    response = connection.getresponse()
    agent.run(shell_job("logged"))
    deployment = agent.deployment("logged", healthy)
    lines = b""
    while deployment["ID"].encode() not in lines:
        lines += response.read1(65536)
    connection.close()
    assert b"[INFO]" in lines
