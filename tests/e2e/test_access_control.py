"""Access control with a real agent: tasks that show who they are, and variables in their templates."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import Agent, eventually

SCRIPT = """
cat > ask.py <<'PY'
import http.client, os, socket, time
class Task(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        where = os.open(os.path.dirname(os.environ["NOMAD_UNIX_ADDR"][7:]), os.O_RDONLY)
        self.sock.connect(f"/proc/self/fd/{where}/api.sock")
def ask(path, token):
    asked = Task("task")
    asked.request("GET", path, headers={"X-Nomad-Token": token} if token else {})
    answer = asked.getresponse()
    return f"{answer.status} {answer.read().decode()}"
own, other = "/v1/var/nomad/jobs/web", "/v1/var/nomad/jobs/other"
with open(os.environ["NOMAD_SECRETS_DIR"] + "/nomad_token") as file:
    same = file.read() == os.environ["NOMAD_TOKEN"]
found = [ask(own, os.environ["NOMAD_TOKEN"]), ask(other, os.environ["NOMAD_TOKEN"]), ask(own, ""), ask(own, "x"), same]
with open(os.environ["NOMAD_ALLOC_DIR"] + "/data/found", "w") as out:
    out.write("\\n".join(map(str, found)))
PY
python3 ask.py
while :; do sleep 1; done
"""


class Operator:
    """Somebody with the first token."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._token = agent.request("POST", "/v1/acl/bootstrap").json["SecretID"]

    def ask(self, verb: str, path: str, body: Any = None) -> Any:
        answer = self._agent.request(verb, path, body, headers={"X-Nomad-Token": self._token})
        assert answer.status == 200, answer.text
        return answer.json if answer.body else None

    def write(self, path: str, **items: str) -> None:
        self.ask("PUT", f"/v1/var/{path}", {"Path": path, "Items": items})

    def file(self, alloc: str, path: str) -> str:
        answer = self._agent.request(
            "GET", f"/v1/client/fs/cat/{alloc}?path={path}", headers={"X-Nomad-Token": self._token}
        )
        return answer.text if answer.status == 200 else ""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    agent = Agent(tmp_path, settings={"acl": {"enabled": True}})

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return agent.request("GET", "/v1/agent/health").status == 200
        return False

    try:
        agent.spawn()
        eventually(answers)
        yield agent
    finally:
        left = agent.close()
    assert left == [], agent.log()
    assert "Traceback" not in agent.log(), agent.log()


def job(**task: Any) -> dict[str, Any]:
    script = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/sh", "args": ["-c", SCRIPT]}}
    return {"Job": {"ID": "web", "TaskGroups": [{"Name": "g", "Tasks": [script | task]}]}}


def test_a_task_reads_its_own_variables_and_nobody_elses(agent: Agent) -> None:
    operator = Operator(agent)
    operator.write("nomad/jobs/web", user="u")
    operator.write("nomad/jobs/other", user="o")
    text = '{{ with nomadVar "nomad/jobs/web" }}{{ .user }}{{ end }}'
    template = {"EmbeddedTmpl": text, "DestPath": "local/user", "ChangeMode": "noop"}
    operator.ask("PUT", "/v1/jobs", job(Identity={"Env": True, "File": True}, Templates=[template]))

    def running_one() -> Any:
        found = operator.ask("GET", "/v1/job/web/allocations")
        return next((each["ID"] for each in found if each["ClientStatus"] == "running"), None)

    alloc = eventually(running_one)
    found = eventually(lambda: operator.file(alloc, "alloc/data/found")).splitlines()
    assert found[0].startswith("200 ")
    assert '"user":"u"' in found[0]
    assert [line.split()[0] for line in found[1:4]] == ["403", "401", "403"]
    assert found[4] == "True"
    assert operator.file(alloc, "t/local/user") == "u"
    operator.write("nomad/jobs/web", user="w")
    eventually(lambda: operator.file(alloc, "t/local/user") == "w")
    assert "SignedIdentities" not in str(operator.ask("GET", f"/v1/allocation/{alloc}"))
    assert not operator.file(alloc, "t/secrets/nomad_token")
    assert agent.request("GET", "/v1/jobs").status == 403
