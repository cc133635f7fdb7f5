"""What was reported of logs, artifacts, templates and environments elsewhere, tried on a whole agent.

Ids are rows of the list of public bug reports that this project keeps.
"""

import functools
import http.server
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from tests import components
from tests.e2e.agents import LEPA, Agent, eventually, running
from tests.e2e.jobs import SECOND, WAIT, shell_job, shell_task

pytestmark = pytest.mark.oci


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    components.allow_crun()
    folder = tmp_path_factory.mktemp("bugs")
    for path in (folder, *folder.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    with running(folder / "agent", settings={"client": {"meta": {"v": "1.2"}}}) as found:
        yield found


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("files")
    (folder / "1.2").mkdir()
    (folder / "1.2" / "a.sh").write_text("echo fetched\n")
    (folder / "main").mkdir()
    (folder / "main" / "b.sh").write_text("echo by meta\n")

    class Quiet(http.server.SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def run(agent: Agent, job: dict[str, Any]) -> str:
    """The allocation of a job that runs."""
    agent.run(job)
    return str(agent.running(job["ID"])[0]["ID"])


def test_b168_logs_read_again_and_again_are_the_same(agent: Agent) -> None:
    """B168."""
    task = {"LogConfig": {"MaxFiles": 5, "MaxFileSizeMB": 1}}
    alloc = run(agent, shell_job("b168", f"seq 1 170000; echo end; {WAIT}", task=task))
    eventually(lambda: agent.output(alloc, "main").endswith("end\n"))
    texts = {agent.output(alloc, "main") for _ in range(30)}
    assert len(texts) == 1
    assert texts.pop() == "".join(f"{number}\n" for number in range(1, 170_001)) + "end\n"
    agent.purge("b168")


def test_b170_following_without_a_stream_begins_where_following_stdout_does(agent: Agent) -> None:
    """B170. Ten lines of each stream, all of them shown, by `lepa alloc logs -f`."""
    script = f"for i in 1 2 3 4 5 6 7 8 9 10; do echo out $i; echo err $i >&2; done; {WAIT}"
    alloc = run(agent, shell_job("b170", script))
    eventually(lambda: "out 10" in agent.output(alloc, "main"))
    for flags, wanted in ((["-stdout"], {"out"}), (["-stderr"], {"err"}), ([], {"out", "err"})):
        command = [LEPA, "alloc", "logs", "-f", *flags, alloc]
        shown = agent.folder / "shown"
        with shown.open("wb") as file:
            process = subprocess.Popen(command, env=agent.environment(), stdout=file, stderr=file)
        last = [f"{name} 10" for name in wanted]
        eventually(lambda shown=shown, last=last: all(each in shown.read_text() for each in last))  # type: ignore[misc]
        process.terminate()
        process.wait()
        lines = [line for line in shown.read_text().splitlines() if line.split()[0] in wanted]
        assert sorted(lines) == sorted(f"{name} {i}" for name in wanted for i in range(1, 11))
    agent.purge("b170")


def test_b191_and_b194_a_file_by_its_name_from_an_interpolated_source(agent: Agent, files: str) -> None:
    """B191, B194."""
    artifacts = [
        {
            "GetterSource": f"{files}/${{meta.v}}/a.sh",
            "RelativeDest": "local/x/renamed.sh",
            "GetterMode": "file",
        },
        {"GetterSource": f"{files}/${{NOMAD_META_part}}/b.sh", "RelativeDest": "${NOMAD_ALLOC_DIR}/data"},
    ]
    script = f"sh local/x/renamed.sh; sh $NOMAD_ALLOC_DIR/data/b.sh; {WAIT}"
    alloc = run(agent, shell_job("b191", script, task={"Artifacts": artifacts}, Meta={"part": "main"}))
    eventually(lambda: agent.output(alloc, "main") == "fetched\nby meta\n")
    agent.purge("b191")


def test_b195_a_dead_source_of_one_task_does_not_hold_up_another(agent: Agent) -> None:
    """B195."""
    dead = {"GetterSource": "http://127.0.0.1:9/nothing", "RelativeDest": "local/"}
    policy = {"Attempts": 10, "Interval": 60 * SECOND, "Delay": SECOND, "Mode": "fail"}
    tasks = [shell_task("waits", WAIT, Artifacts=[dead]), shell_task("runs", f"echo up; {WAIT}")]
    job = shell_job("b195", group={"Tasks": tasks, "RestartPolicy": policy})
    agent.run(job)
    (stub,) = eventually(lambda: agent.allocations("b195"))
    eventually(lambda: agent.output(stub["ID"], "runs") == "up\n")

    def tried(alloc: Any) -> bool:
        events = alloc["TaskStates"]["waits"]["Events"]
        return [each["Type"] for each in events].count("Failed Artifact Download") >= 2

    agent.alloc_until(stub["ID"], tried)
    agent.purge("b195")


@pytest.mark.parametrize("driver", ["raw_exec", "exec"])
def test_b197_and_b199_destinations_by_variables_for_every_driver(agent: Agent, files: str, driver: str) -> None:
    """B197, B199: for tasks that see the paths of the host, and for those that see paths of their own."""
    templates = [
        {"EmbeddedTmpl": "A=from-template", "DestPath": "${NOMAD_SECRETS_DIR}/x.env", "Envvars": True},
        {"EmbeddedTmpl": "task", "DestPath": "${NOMAD_TASK_DIR}/a"},
        {"EmbeddedTmpl": "alloc", "DestPath": "${NOMAD_ALLOC_DIR}/b"},
    ]
    artifacts = [
        {"GetterSource": f"{files}/main/b.sh", "RelativeDest": "${NOMAD_TASK_DIR}/fetched"},
        {"GetterSource": f"{files}/1.2/a.sh", "RelativeDest": "${NOMAD_ALLOC_DIR}/fetched"},
    ]
    script = "cat $NOMAD_TASK_DIR/a $NOMAD_ALLOC_DIR/b; echo -$A; sh $NOMAD_TASK_DIR/fetched/b.sh; "
    script += f"sh $NOMAD_ALLOC_DIR/fetched/a.sh; {WAIT}"
    config = {"command": "/bin/sh", "args": ["-c", script]}
    task = {"Driver": driver, "Config": config, "Templates": templates, "Artifacts": artifacts}
    alloc = run(agent, shell_job(f"b199-{driver}", task=task))
    eventually(lambda: agent.output(alloc, "main") == "taskalloc-from-template\nby meta\nfetched\n")
    agent.purge(f"b199-{driver}")


def test_b196_a_changed_template_replaces_the_task_whatever_its_change_mode(agent: Agent) -> None:
    """B196."""

    def job(text: str) -> dict[str, Any]:
        template = {"EmbeddedTmpl": text, "DestPath": "local/a", "ChangeMode": "noop"}
        return shell_job("b196", f"cat local/a; {WAIT}", task={"Templates": [template]})

    first = run(agent, job("one\n"))
    eventually(lambda: agent.output(first, "main") == "one\n")
    agent.run(job("two\n"))
    eventually(lambda: len(agent.allocations("b196")) == 2)
    (second,) = agent.running("b196")
    eventually(lambda: agent.output(second["ID"], "main") == "two\n")
    agent.purge("b196")


def test_b212_a_sidecar_that_becomes_none_is_replaced(agent: Agent) -> None:
    """B212."""

    def job(sidecar: bool) -> dict[str, Any]:
        before = shell_task(
            "before", "exit 0" if not sidecar else WAIT, Lifecycle={"Hook": "prestart", "Sidecar": sidecar}
        )
        return shell_job("b212", group={"Tasks": [before, shell_task("main", WAIT)]})

    first = run(agent, job(sidecar=True))
    agent.run(job(sidecar=False))
    eventually(lambda: len(agent.allocations("b212")) == 2)
    (second,) = agent.running("b212")
    assert second["ID"] != first
    agent.purge("b212")


def test_b222_and_b223_meta_and_names_in_the_environment(agent: Agent) -> None:
    env = {"b": "${NOMAD_META_a}"}
    network = {"DynamicPorts": [{"Label": "my-port"}]}
    script = f"echo $b; env | grep -c '^NOMAD_PORT_my_port='; {WAIT}"
    job = shell_job("b222", script, task={"Env": env, "Name": "main"}, group={"Networks": [network]})
    alloc = run(agent, job | {"Meta": {"a": "${NOMAD_DC}-x"}})
    eventually(lambda: agent.output(alloc, "main") == "dc1-x\n1\n")
    agent.purge("b222")


def test_b258_secrets_are_served_under_no_spelling(agent: Agent) -> None:
    """B258, S4: case, dots, encoded slashes, and links out of the allocation."""
    script = (
        f"echo mine > $NOMAD_SECRETS_DIR/key; ln -s /etc/passwd local/link; ln -s ../secrets local/dir; echo up; {WAIT}"
    )
    alloc = run(agent, shell_job("b258", script))
    eventually(lambda: agent.output(alloc, "main") == "up\n")
    spellings = (
        "main/secrets/key",
        "main/SECRETS/key",
        "main/./secrets/key",
        "alloc/../main/secrets/key",
        "alloc/../main/SECRETS/key",
        "alloc/../MAIN/Secrets/key",
        "alloc%2F..%2Fmain%2Fsecrets%2Fkey",
        "alloc%252F..%252Fmain%252Fsecrets%252Fkey",
        "main%2Fsecrets%2Fkey",
        "main/secrets%2fkey",
        "/main//secrets/key",
        "main/local/link",
        "main/local/dir/key",
        "main/local/../secrets/key",
        "../../../../etc/passwd",
        "/etc/passwd",
        "main/local/%2e%2e/secrets/key",
        "main\\secrets\\key",
        "main/secrets\x00/key",
    )
    for spelling in (*spellings, *_traversals()):
        for route in ("cat", "stat", "ls", "readat", "stream"):
            answer = agent.request(
                "GET",
                f"/v1/client/fs/{route}/{alloc}",
                query={"path": spelling, "offset": 0, "limit": 100, "follow": "false"},
            )
            assert answer.status >= 400 or (b"mine" not in answer.body and b"root:" not in answer.body), spelling
            assert route != "cat" or answer.status in (400, 403, 404), (spelling, answer.status)
    for spelling in _traversals():
        for path in ("job/{}", "var/{}", "volume/host/{}", "client/allocation/{}/stats", "job/b258/versions/{}/tag"):
            answer = agent.request("GET", f"/v1/{path.format(quote(spelling, safe=''))}")
            assert 400 <= answer.status < 500, (path, spelling, answer.status)
    agent.purge("b258")


def _traversals() -> list[str]:
    """Ways out of a folder, as people have tried them: dots, separators and depths, one with another."""
    dots = ("..", "%2e%2e", "%252e%252e", "..;", "..\x00", ".%2e", "\u2024\u2024", "\uff0e\uff0e")
    separators = ("/", "%2f", "%252f", "\\", "//", "/./", "\u2215")
    return [separator.join([dot] * 6 + ["etc", "passwd"]) for dot in dots for separator in separators]


def test_b184_every_task_of_many_jobs_has_its_signal_soon(agent: Agent) -> None:
    """B184, on one node: ten jobs of four tasks, stopped together: every task is signalled within five seconds."""
    told = agent.folder / "told"
    told.mkdir()
    script = f"trap 'date +%s.%N > {told}/$NOMAD_ALLOC_ID; exit 0' INT TERM; echo up; while :; do sleep 0.1; done"
    jobs = [f"b184-{number}" for number in range(10)]
    for job in jobs:
        agent.run(shell_job(job, script, count=4, task={"cpu": 5, "memory_mb": 10}))
    for job in jobs:
        for stub in agent.running(job, 4, within_s=60):
            eventually(lambda stub=stub: agent.output(stub["ID"], "main") == "up\n", 60)  # type: ignore[misc]
    started = time.time()
    for job in jobs:
        agent.delete(f"/v1/job/{job}")
    stopped = time.time()
    eventually(lambda: len(os.listdir(told)) == 40 and all(path.stat().st_size for path in told.iterdir()), 30)
    assert max(float(path.read_text()) for path in told.iterdir()) - stopped < 5.0
    assert stopped - started < 20
    for job in jobs:
        agent.purge(job)
