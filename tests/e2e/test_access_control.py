"""Access control with a real agent: tasks that show who they are, and variables in their templates."""

import contextlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from tests.browser import Browser, chromium
from tests.e2e.agents import HOST, Agent, eventually, free_ports
from tests.e2e.jobs import shell_job

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
        self.token = agent.request("POST", "/v1/acl/bootstrap").json["SecretID"]

    def ask(self, verb: str, path: str, body: Any = None) -> Any:
        answer = self._agent.request(verb, path, body, headers={"X-Nomad-Token": self.token})
        assert answer.status == 200, answer.text
        return answer.json if answer.body else None

    def write(self, path: str, **items: str) -> None:
        self.ask("PUT", f"/v1/var/{path}", {"Path": path, "Items": items})

    def file(self, alloc: str, path: str) -> str:
        answer = self._agent.request(
            "GET", f"/v1/client/fs/cat/{alloc}?path={path}", headers={"X-Nomad-Token": self.token}
        )
        return answer.text if answer.status == 200 else ""


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Agent]:
    consul = {"enabled": True, "port": free_ports()["dns"]}
    agent = Agent(tmp_path, settings={"acl": {"enabled": True}, "consul_api": consul})

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


def test_consuls_api_takes_the_same_tokens(agent: Agent) -> None:
    operator = Operator(agent)
    port = json.loads(agent.config.read_text())["consul_api"]["port"]
    rules = 'namespace "default" { policy = "read" }'
    operator.ask("PUT", "/v1/acl/policy/read", {"Name": "read", "Rules": rules})
    reader = operator.ask("PUT", "/v1/acl/token", {"Type": "client", "Policies": ["read"]})["SecretID"]

    def status(token: str, verb: str, path: str, body: Any = None) -> int:
        connection = HTTPConnection(HOST, port, timeout=20)
        raw = None if body is None else json.dumps(body)
        connection.request(verb, path, raw, {"X-Consul-Token": token} if token else {})
        return connection.getresponse().status

    service = {"Name": "db", "Port": 1, "Check": {"TTL": "60s", "CheckID": "c"}}
    for verb, path, body, allowed in (
        ("PUT", "/v1/agent/service/register", service, {operator.token}),
        ("PUT", "/v1/agent/check/pass/c", None, {operator.token}),
        ("GET", "/v1/catalog/services", None, {operator.token, reader}),
        ("GET", "/v1/catalog/nodes", None, {operator.token}),
        ("PUT", "/v1/kv/a", "b", {operator.token}),
        ("GET", "/v1/kv/a", None, {operator.token}),
    ):
        for token in ("", "made-up", reader, operator.token):
            assert status(token, verb, path, body) == (200 if token in allowed else 403), (token, verb, path)

    assert eventually(lambda: operator.ask("GET", "/v1/service/db"))[0]["ServiceName"] == "db"


async def test_pages_ask_who_somebody_is_and_keep_that_to_their_tab(
    agent: Agent, tmp_path_factory: pytest.TempPathFactory
) -> None:
    operator = Operator(agent)
    operator.ask("PUT", "/v1/jobs", {"Job": shell_job("secretive")})
    with chromium(tmp_path_factory.mktemp("browser")) as port:
        async with Browser(port) as browser:
            tab = await browser.open(f"{agent.address}/ui/jobs")
            seen = await tab.sees("This cluster asks who you are", "Permission denied")
            assert "secretive" not in seen
            await tab.type("#secret", operator.token)
            await tab.click("form button", "Sign in")
            await tab.sees("secretive", "1/1 running", "Signed in")
            assert operator.token not in await tab.evaluate("document.cookie + JSON.stringify(localStorage)")
            await tab.go(f"{agent.address}/ui/settings/tokens")
            await tab.sees("management", "Accessor")
            await tab.click("button", "Sign out")
            await tab.sees("Sign in", "Signed out.")
            once = operator.ask("POST", "/v1/acl/token/onetime")["OneTimeToken"]["OneTimeSecretID"]
            await tab.go(f"{agent.address}/ui/jobs?ott={once}")
            await tab.sees("secretive")
            assert "ott" not in await tab.evaluate("location.search")
            other = await browser.open(f"{agent.address}/ui/jobs")
            await other.sees("This cluster asks who you are")
            assert (tab.problems, other.problems) == ([], [])
