"""The command line as a person uses it, against a real agent."""

import json
import os
import pty
import select
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import dns.message
import dns.query
import dns.rdatatype
import pytest
from tests.e2e.agents import HOST, LEPA, Agent, eventually, running

TIMEOUT_S = 60.0
SLEEPER = """
job "sleeper" {
  type = "batch"
  group "main" {
    task "main" {
      driver = "raw_exec"
      config {
        command = "/bin/sh"
        args    = ["-c", "echo started; exec sleep 300"]
      }
      resources {
        cpu    = 20
        memory = 16
      }
    }
  }
}
"""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("cli")) as made:
        yield made


@pytest.fixture
def folder(agent: Agent, tmp_path: Path) -> Iterator[Path]:
    """Where commands run; afterwards the agent has no jobs."""
    yield tmp_path
    for stub in agent.get("/v1/jobs"):
        agent.purge(stub["ID"])


def lepa(agent: Agent, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a command and wait for its end."""
    return subprocess.run(
        [LEPA, *words],
        cwd=folder,
        env=agent.environment(),
        input="",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def succeeds(agent: Agent, folder: Path, *words: str) -> str:
    """What a command prints that ends well."""
    done = lepa(agent, folder, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(folder: Path, text: str, name: str = "job.hcl") -> str:
    (folder / name).write_text(text)
    return name


def test_the_example_runs_is_found_and_is_stopped(agent: Agent, folder: Path) -> None:
    assert "Example job file written" in succeeds(agent, folder, "job", "init")
    told = succeeds(agent, folder, "job", "run", "example.nomad.hcl")
    assert 'finished with status "complete"' in told
    assert "Status      = successful" in told
    status = succeeds(agent, folder, "job", "status", "example")
    assert "web         0       0         1" in status
    alloc_id = succeeds(agent, folder, "job", "allocs", "-t", "{{(index . 0).ID}}", "example").strip()

    assert "Serving HTTP on" in succeeds(agent, folder, "alloc", "logs", alloc_id[:6])
    assert succeeds(agent, folder, "alloc", "exec", alloc_id, "echo", "from inside") == "from inside\n"
    assert lepa(agent, folder, "alloc", "exec", alloc_id, "sh", "-c", "exit 7").returncode == 7
    assert '"server" is "running"' in succeeds(agent, folder, "alloc", "status", alloc_id)
    assert "success" in succeeds(agent, folder, "alloc", "checks", alloc_id)
    assert "server/" in succeeds(agent, folder, "alloc", "fs", alloc_id)
    assert "started by client" in succeeds(agent, folder, "status", alloc_id)
    assert "example" in succeeds(agent, folder, "service", "info", "web")

    question = dns.message.make_query("web.service.consul.", dns.rdatatype.SRV)
    answer = dns.query.udp(question, HOST, port=agent.ports["dns"], timeout=5)
    port = answer.answer[0][0].port
    assert f":{port}" in succeeds(agent, folder, "service", "info", "web")

    assert 'finished with status "complete"' in succeeds(agent, folder, "job", "stop", "example")
    assert "dead (stopped)" in succeeds(agent, folder, "job", "status")


def test_what_is_kept_of_a_job_file_gives_the_same_job_again(agent: Agent, folder: Path) -> None:
    """B094, B095: lists, maps and texts of several lines that were given with -var; by the API and as a file."""
    declared = 'variable "dcs" { type = list(string) }\nvariable "labels" { type = map(string) }\nvariable "note" {}\n'
    settings = '"sleeper" {\n  datacenters = var.dcs\n  meta = merge(var.labels, {note = var.note})\n'
    path = write(folder, declared + SLEEPER.replace('"sleeper" {\n', settings, 1))
    note = 'one\n"two" ${three}\n\tfour'
    flags = ('-var=dcs=["dc1","dc2"]', '-var=labels={a = "1", "b.c" = "2"}', f"-var=note={note}")
    succeeds(agent, folder, "run", "-detach", *flags, path)
    job = agent.get("/v1/job/sleeper")
    assert (job["Datacenters"], job["Meta"]) == (["dc1", "dc2"], {"a": "1", "b.c": "2", "note": note})

    kept = agent.get("/v1/job/sleeper/submission", version="0")
    fields = ("Source", "Variables", "VariableFlags")
    again = agent.put("/v1/jobs/parse", dict(zip(("JobHCL", *fields[1:]), map(kept.get, fields), strict=True)))
    agent.put("/v1/jobs", {"Job": again})
    assert agent.get("/v1/job/sleeper")["JobModifyIndex"] == job["JobModifyIndex"]

    source, _, values = succeeds(agent, folder, "inspect", "-hcl", "-with-vars", "sleeper").partition("# Variables\n")
    write(folder, source, "again.hcl")
    write(folder, values, "values.hcl")
    succeeds(agent, folder, "run", "-detach", "-var-file=values.hcl", "again.hcl")
    assert agent.get("/v1/job/sleeper")["JobModifyIndex"] == job["JobModifyIndex"]


def test_a_plan_says_what_running_would_change(agent: Agent, folder: Path) -> None:
    succeeds(agent, folder, "init", "-short")
    path = folder / "example.nomad.hcl"
    new = lepa(agent, folder, "plan", path.name)
    assert (new.returncode, "(1 create)" in new.stdout) == (1, True), new.stdout + new.stderr
    succeeds(agent, folder, "run", path.name)
    same = lepa(agent, folder, "plan", path.name)
    assert (same.returncode, "(1 ignore)" in same.stdout) == (0, True), same.stdout
    text = path.read_text()
    path.write_text(text.replace("memory = 64", "memory = 80"))
    changed = lepa(agent, folder, "plan", path.name)
    assert changed.returncode == 1
    assert '+/- MemoryMB:    "64" => "80"' in changed.stdout
    assert "create/destroy update" in changed.stdout
    index = changed.stdout.split("Job Modify Index: ")[1].split()[0]
    assert lepa(agent, folder, "run", "-check-index", "1", path.name).returncode == 1
    succeeds(agent, folder, "run", "-check-index", index, path.name)
    assert "Version     = 1" in succeeds(agent, folder, "job", "history", "-p", "example")

    path.write_text(text.replace("cpu    = 100", "cpu    = 9000000"))
    unplaced = lepa(agent, folder, "plan", path.name)
    assert 'Dimension "cpu" exhausted on 1 nodes' in unplaced.stdout
    succeeds(agent, folder, "job", "revert", "example", "0")
    succeeds(agent, folder, "job", "scale", "example", "2")
    assert len(agent.running("example", 2)) == 2


def test_what_has_no_room_ends_with_2(agent: Agent, folder: Path) -> None:
    name = write(folder, SLEEPER.replace("cpu    = 20", "cpu    = 9000000"))
    done = lepa(agent, folder, "run", name)
    assert done.returncode == 2, done.stdout + done.stderr
    assert 'Dimension "cpu" exhausted on 1 nodes' in done.stdout
    assert "waiting for additional capacity to place remainder" in done.stdout
    assert "Placement Failure" in succeeds(agent, folder, "job", "status", "sleeper")
    evaluation = succeeds(agent, folder, "eval", "list", "-job=sleeper", "-status=blocked", "-t", "{{(index . 0).ID}}")
    assert "blocked" in succeeds(agent, folder, "eval", "status", evaluation.strip())


def test_room_that_comes_while_waiting_is_success(agent: Agent, folder: Path) -> None:
    """B128."""
    succeeds(agent, folder, "init")
    succeeds(agent, folder, "node", "eligibility", "-disable", "-self")
    waiting = subprocess.Popen(
        [LEPA, "run", "example.nomad.hcl"], cwd=folder, env=agent.environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        eventually(lambda: agent.get("/v1/job/example/evaluations"))
    finally:
        succeeds(agent, folder, "node", "eligibility", "-enable", "-self")
    out, _ = waiting.communicate(timeout=TIMEOUT_S)
    assert waiting.returncode == 0, out


def test_ctrl_c_ends_following_quietly(agent: Agent, folder: Path) -> None:
    succeeds(agent, folder, "run", write(folder, SLEEPER))
    agent.running("sleeper")
    following = subprocess.Popen(
        [LEPA, "alloc", "logs", "-f", "-job", "sleeper"],
        cwd=folder,
        env=agent.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert following.stdout is not None
    assert following.stdout.readline() == "started\n"
    following.send_signal(signal.SIGINT)
    out, error = following.communicate(timeout=TIMEOUT_S)
    assert (following.returncode, out, error.strip()) == (130, "", "")


def read_until(terminal: int, wanted: bytes) -> bytes:
    """What a terminal shows until `wanted` is there, or nothing more comes."""
    seen = b""
    while wanted not in seen and select.select([terminal], [], [], TIMEOUT_S)[0]:
        try:
            seen += os.read(terminal, 4096)
        except OSError:
            break
    return seen


def test_a_terminal_is_passed_through(agent: Agent, folder: Path) -> None:
    succeeds(agent, folder, "run", write(folder, SLEEPER))
    agent.running("sleeper")
    keys, terminal = pty.openpty()
    command = [LEPA, "alloc", "exec", "-job", "sleeper", "sh", "-c", "echo ready; read word; tty; exit $word"]
    process = subprocess.Popen(
        command, cwd=folder, env=agent.environment(), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    assert b"ready" in read_until(keys, b"ready")
    os.write(keys, b"5\r")
    assert b"/dev/pts/" in read_until(keys, b"/dev/pts/")
    assert process.wait(TIMEOUT_S) == 5
    os.close(keys)


def test_mistakes_are_sentences(agent: Agent, folder: Path) -> None:
    broken = write(folder, 'job "x" {\n  group "g" {\n    cuont = 2\n  }\n}\n', "broken.hcl")
    done = lepa(agent, folder, "run", broken)
    assert done.returncode == 1
    assert "3 |     cuont = 2\n  |     ^^^^^" in done.stderr
    assert lepa(agent, folder, "validate", broken).returncode == 1
    for words in (
        ("alloc", "status", "0000"),
        ("job", "status", "nope"),
        ("node", "status", "ffff"),
        ("run", "none.hcl"),
    ):
        done = lepa(agent, folder, *words)
        assert done.returncode == 1
        assert done.stderr.startswith("Error: "), done.stderr
        assert "Traceback" not in done.stderr


def test_the_cluster_is_shown(agent: Agent, folder: Path) -> None:
    assert "ready" in succeeds(agent, folder, "node", "status")
    assert "raw_exec" in succeeds(agent, folder, "node", "status", "-self")
    assert "alive" in succeeds(agent, folder, "server", "members")
    assert "leader" in succeeds(agent, folder, "operator", "raft", "list-peers")
    assert "binpack" in succeeds(agent, folder, "operator", "scheduler", "get-config")
    assert json.loads(succeeds(agent, folder, "operator", "api", "/v1/jobs")) == []
    succeeds(agent, folder, "system", "gc")
    assert "default" in succeeds(agent, folder, "namespace", "list")
    assert "all" in succeeds(agent, folder, "node", "pool", "list")
    succeeds(agent, folder, "node", "meta", "apply", "colour=red")
    assert succeeds(agent, folder, "node", "meta", "read", "-t", "{{.Meta.colour}}") == "red\n"


def test_a_node_is_drained(agent: Agent, folder: Path) -> None:
    succeeds(agent, folder, "run", "-detach", write(folder, SLEEPER.replace('"batch"', '"service"')))
    agent.running("sleeper")
    try:
        assert "Drain complete" in succeeds(agent, folder, "node", "drain", "-enable", "-force", "-yes", "-self")
        assert agent.get("/v1/job/sleeper/allocations")[0]["DesiredStatus"] == "stop"
    finally:
        succeeds(agent, folder, "node", "drain", "-disable", "-self")
    assert len(agent.running("sleeper")) == 1


def test_top_draws_the_cluster_in_a_terminal(agent: Agent, folder: Path) -> None:
    """Looked at as a person does, through tmux."""
    (folder / "sleeper.hcl").write_text(SLEEPER)
    assert lepa(agent, folder, "job", "run", "-detach", "sleeper.hcl").returncode == 0
    agent.running("sleeper")
    socket = folder / "tmux"

    def tmux(*words: str) -> str:
        told = subprocess.run(["tmux", "-S", str(socket), *words], env=environment, capture_output=True, text=True)
        return told.stdout

    def drawn() -> str:
        screen = tmux("capture-pane", "-t", "top", "-p")
        return screen if "sleeper" in screen else ""

    environment = {**agent.environment(), "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
    tmux("-f", "/dev/null", "new-session", "-d", "-s", "top", "-x", "120", "-y", "24", f"{LEPA} top -interval=500ms")
    try:
        screen = eventually(drawn, 40.0)
        assert "1 of 1 nodes ready" in screen
        assert "Alloc" in screen
        tmux("send-keys", "-t", "top", "q")
        eventually(lambda: "top" not in tmux("list-sessions"), 20.0)
    finally:
        tmux("kill-server")
