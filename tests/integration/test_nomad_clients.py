"""Programs and libraries that people have for Nomad, against one running agent: nomadpy, which mirrors Nomad's own Go
client field for field, and nomad-tools, which follows a job by its events until it has started or ended."""

import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import LEPA, Agent, eventually, running
from tests.e2e.jobs import WAIT, shell_job
from tests.integration.peers import install

WATCH_S = 60.0
"""How long nomad-tools may take to see a job's end; it takes a few seconds."""

BATCH = """
job "%s" {
  type = "batch"
  group "main" {
    reschedule {
      attempts = 0
    }
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "%s"]
      }
    }
  }
}
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("nomad-clients")) as started:
        yield started


# nomadpy


@pytest.fixture(scope="module")
def nomadpy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The module."""
    target = install("nomadpy", tmp_path_factory.getbasetemp())
    sys.path.append(str(target))
    try:
        yield importlib.import_module("nomadpy")
    finally:
        sys.path.remove(str(target))


@pytest.fixture(scope="module")
def client(nomadpy: Any, agent: Agent) -> Any:
    return nomadpy.Client(nomadpy.Config(address=agent.address))


def test_a_job_read_into_types_and_sent_back_is_the_same_job(client: Any, agent: Agent) -> None:
    job = client.jobs.parse_hcl(BATCH % ("typed", "exit 0"), canonicalize=True)
    assert client.jobs.validate(job)[0].validation_errors in (None, [])
    assert client.jobs.plan(job, diff=True)[0].diff.type == "Added"
    registered, _ = client.jobs.register(job, submission={"Source": BATCH, "Format": "hcl2"})
    assert agent.evaluation(registered.eval_id)["Status"] == "complete"
    found, _ = client.jobs.info("typed")
    assert client.jobs.plan(found, diff=True)[0].diff.type == "None"
    assert client.jobs.submission("typed", 0)[0].source == BATCH
    assert client.jobs.deregister("typed", purge=True)[0]


def test_what_is_read_of_a_running_job_fits_the_types(client: Any, agent: Agent) -> None:
    agent.run(shell_job("reads", "echo hello; " + WAIT, count=2))
    alloc = client.allocations.info(agent.running("reads", 2)[0]["ID"])[0]
    assert (alloc.job.id, alloc.task_states["main"].state) == ("reads", "running")
    assert client.jobs.summary("reads")[0].summary["main"].running == 2
    assert [version.version for version in client.jobs.versions("reads")[0]] == [0]
    assert client.jobs.latest_deployment("reads")[0].job_id == "reads"
    assert client.jobs.scale_status("reads")[0].task_groups["main"].desired == 2
    assert client.jobs.evaluations("reads")[0][0].status == "complete"
    node = client.nodes.info(alloc.node_id)[0]
    assert (node.status, client.nodes.stats(node.id).memory.total > 0) == ("ready", True)
    assert client.allocations.stats(alloc.id).tasks.keys() == {"main"}
    assert {file.name for file in client.alloc_fs.list(alloc.id, "/")[0]} == {"alloc", "main"}
    logged = eventually(lambda: b"".join(_frames(client, alloc.id)))
    assert logged == b"hello\n"
    client.jobs.deregister("reads", purge=True)


def _frames(client: Any, alloc_id: str) -> list[bytes]:
    frames = client.alloc_fs.logs(alloc_id, False, "main", "stdout", "start", 0, timeout=20)
    return [frame.data_bytes or b"" for frame in frames]


def test_events_decode_into_their_objects_until_the_job_is_dead(client: Any) -> None:
    client.jobs.register(client.jobs.parse_hcl(BATCH % ("told", "exit 0")))
    seen: list[tuple[str, str]] = []
    stream = client.event_stream.stream({"Job": ["told"], "Allocation": ["told"], "Evaluation": ["told"]}, timeout=20)
    for batch in stream:
        for event in batch.events or []:
            told = event.job() or event.allocation() or event.evaluation()
            seen.append((event.topic, getattr(told, "client_status", None) or told.status))
        if ("Job", "dead") in seen:
            break
    stream.close()
    assert [status for topic, status in seen if topic == "Job"] == ["pending", "running", "dead"]
    assert ("Allocation", "complete") in seen
    client.jobs.deregister("told", purge=True)


def test_small_things_are_written_as_gos_client_writes_them(client: Any, nomadpy: Any) -> None:
    client.node_pools.register(nomadpy.NodePool(name="gpu"))
    assert client.node_pools.info("gpu")[0].node_identity_ttl == 0
    client.node_pools.delete("gpu")
    client.variables.create(nomadpy.Variable(path="app/a", items={"k": "v"}))
    variable = client.variables.read("app/a")[0]
    variable.items["k"] = "w"
    client.variables.checked_update(variable)
    with pytest.raises(importlib.import_module("nomadpy.variables").ErrCASConflict):
        client.variables.checked_update(variable)
    client.variables.delete("app/a")
    assert client.agent.host().host_data.os
    settings, _ = client.operator.scheduler_get_configuration()
    assert client.operator.scheduler_cas_configuration(settings.scheduler_config)[0].updated is True


# nomad-tools


@pytest.fixture(scope="module")
def nomad_tools(tmp_path_factory: pytest.TempPathFactory, agent: Agent) -> dict[str, str]:
    """Its environment, in which `nomad` is this project's command."""
    target = install("nomad-tools", tmp_path_factory.getbasetemp())
    commands = tmp_path_factory.mktemp("commands")
    (commands / "nomad").symlink_to(LEPA)
    path = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PYTHONPATH": str(target), "PATH": path, "NOMAD_ADDR": agent.address}


def watch(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nomad_tools.entry", "watch", "--shutdown-timeout", "0.2", *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=WATCH_S, check=False)


def test_nomad_watch_follows_a_batch_job_to_its_exit_code(nomad_tools: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "job.nomad.hcl"
    file.write_text(BATCH % ("watched", "echo out-line; echo err-line >&2; exit 7"))
    done = watch(nomad_tools, "run", str(file))
    said = done.stdout + done.stderr
    assert done.returncode == 7, said
    for words in ("Task started by client", "out-line", "err-line", "Exit Code: 7"):
        assert words in said
    done = watch(nomad_tools, "--purge", "stop", "watched")
    assert "Job watched#1@default purged with no active allocations" in done.stderr, done.stderr


def test_nomad_watch_waits_until_a_service_has_started(nomad_tools: dict[str, str], agent: Agent) -> None:
    agent.run(shell_job("served", count=2))
    done = watch(nomad_tools, "started", "served")
    assert done.returncode == 0, done.stderr
    assert len(agent.running("served", 2)) == 2
    agent.purge("served")
