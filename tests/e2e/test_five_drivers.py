"""One job file with a task of each kind: a container, isolated processes, Java, a virtual machine, a plain process.

They run on one node, and all of them go on when the agent is killed and started again.
"""

import functools
import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests import components, machines
from tests.e2e.agents import LEPA, Agent, eventually, running

pytestmark = [pytest.mark.docker, pytest.mark.oci]

JOB = """
job "five" {
  group "all" {
    network {
      port "guest" {}
    }
    ephemeral_disk { size = 150 }
    update { min_healthy_time = "50ms" }
    restart {
      attempts = 0
      mode     = "fail"
    }
    task "docker" {
      driver = "docker"
      config {
        image   = "IMAGE"
        command = "/bin/sh"
        args = [
          "-ec",
          "cat $NOMAD_TASK_DIR/a $NOMAD_ALLOC_DIR/b; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2; done"
        ]
      }
      template {
        data        = "here "
        destination = "${NOMAD_TASK_DIR}/a"
      }
      template {
        data        = "line 0\\n"
        destination = "${NOMAD_ALLOC_DIR}/b"
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
    task "exec" {
      driver = "exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2; done"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
    task "java" {
      driver = "java"
      artifact {
        source      = "http://ADDRESS/hello.jar"
        destination = "${NOMAD_TASK_DIR}/hello.jar"
        mode        = "file"
      }
      config {
        jar_path    = "local/hello.jar"
        jvm_options = ["-Xmx32m", "-Xshare:auto"]
        args        = ["stay"]
      }
      resources {
        cpu    = 50
        memory = 128
      }
    }
    task "qemu" {
      driver = "qemu"
      artifact {
        source      = "http://ADDRESS/disk.img"
        destination = "${NOMAD_TASK_DIR}/disk.img"
        mode        = "file"
      }
      config {
        image_path        = "local/disk.img"
        graceful_shutdown = true
      }
      resources {
        cpu    = 50
        memory = 32
      }
    }
    task "raw_exec" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2; done"]
      }
      resources {
        cpu    = 20
        memory = 32
      }
    }
  }
}
"""
SAYS = {"docker": "here line 0\nline 1", "exec": "line 2", "java": "heap", "qemu": machines.READY, "raw_exec": "line 2"}


@pytest.fixture
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with components.docker_daemon(tmp_path_factory.getbasetemp()) as endpoint:
        yield endpoint


@pytest.fixture
def files(tmp_path: Path) -> Iterator[str]:
    """The address of a server with the program and the disk."""
    folder = tmp_path / "files"
    folder.mkdir()
    components.java_program(folder)
    machines.boot_disk(folder / "disk.img")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def said(agent: Agent, alloc_id: str) -> bool:
    return all(text in agent.output(alloc_id, task) for task, text in SAYS.items())


def test_tasks_of_five_drivers_go_on_when_the_agent_is_killed(tmp_path: Path, docker: str, files: str) -> None:
    """Destinations of artifacts and templates are said by variables (B199)."""
    components.allow_crun()
    for path in (tmp_path, *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    settings = {"plugin": {"docker": {"config": {"endpoint": docker}}}}
    file = tmp_path / "five.hcl"
    file.write_text(JOB.replace("IMAGE", components.BUSYBOX_IMAGE).replace("ADDRESS", files))
    with running(tmp_path / "agent", dev=False, settings=settings) as agent:
        run = subprocess.run([LEPA, "job", "run", "-detach", file], env=agent.environment(), capture_output=True)
        assert run.returncode == 0, run.stderr
        (stub,) = agent.running("five", within_s=60)
        eventually(functools.partial(said, agent, stub["ID"]), 60)
        lines = agent.output(stub["ID"], "docker").count("\n")

        agent.kill9()
        agent.start()

        (again,) = agent.running("five")
        assert again["ID"] == stub["ID"]
        agent.alloc_until(
            stub["ID"], lambda alloc: {state["State"] for state in alloc["TaskStates"].values()} == {"running"}
        )
        states = agent.get(f"/v1/allocation/{stub['ID']}")["TaskStates"]
        assert {name: (state["State"], state["Restarts"]) for name, state in states.items()} == dict.fromkeys(
            SAYS, ("running", 0)
        )
        for task in ("docker", "exec", "raw_exec"):
            eventually(lambda task=task: agent.output(stub["ID"], task).count("\n") > lines + 5, 30)  # type: ignore[misc]
            printed = [line for line in agent.output(stub["ID"], task).splitlines() if line.startswith("line")]
            numbers = [int(line.split()[1]) for line in printed]
            assert numbers == list(range(1, len(numbers) + 1)), f"{task} lost or doubled a line"

        agent.purge("five")
        states = agent.get(f"/v1/allocation/{stub['ID']}")["TaskStates"]
        assert {name: state["State"] for name, state in states.items()} == dict.fromkeys(SAYS, "dead")
        (end,) = [each for each in states["qemu"]["Events"] if each["Type"] == "Terminated"]
        assert end["Details"]["exit_code"] == "0", "the machine was switched off, not killed"
        (end,) = [each for each in states["java"]["Events"] if each["Type"] == "Terminated"]
        assert "bye" in agent.output(stub["ID"], "java")
