"""Secrets appear where whoever looks may see them, and nowhere else: answers, events, logs, files, command lines.

Row S9 of the reliability goals: more than fifty of them, of every kind.
"""

import base64
import contextlib
import http.client
import os
import sqlite3
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import LEPA, Agent, eventually
from tests.e2e.test_access_control import Operator

from lepa.api.app import ROUTES
from lepa.client.local_state import SUM_BYTES

STREAMS = ("agent/monitor", "event/stream", "agent/pprof", "agent/trace", "operator/snapshot", "client/")
ITEM, CLIENT_SECRET = "canary-item-5b1f9c", "canary-client-secret-0a77"
POLICY = 'namespace "default" { policy = "read" }'
READS_S = 2.0
GOSSIP_KEY = base64.b64encode(b"canary-gossip-key-of-32-bytes-64").decode()
SETTINGS = {
    "acl": {"enabled": True, "replication_token": "canary-setting-replication"},
    "server": {"encrypt": GOSSIP_KEY},
    "client": {
        "ship_logs": {
            "l": {
                "type": "loki",
                "address": "http://u:canary-setting-url@127.0.0.1:9/push",
                "jobs": ["none"],
                "headers": {"Authorization": "canary-setting-header"},
            }
        }
    },
    "vault": {"token": "canary-setting-vault"},
    "consul": {"token": "canary-setting-consul", "auth": "u:canary-setting-auth"},
    "log_level": "DEBUG",
}
SETTING_NAMES = ("replication", "url", "header", "vault", "consul", "auth")
SHOWN = ("env", "meta", "template", "argument", "payload")
"""Parts of a job, which are for those who may read it."""
EACH = 7


class Canaries:
    """An agent that holds secrets of every kind, by what they are."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        operator = self.operator = Operator(agent)
        operator.write("nomad/jobs/web", item=ITEM)
        operator.write("apart", item=f"{ITEM}-apart")
        operator.ask("PUT", "/v1/acl/policy/read", {"Name": "read", "Rules": POLICY})
        token = operator.ask("PUT", "/v1/acl/token", {"Type": "client", "Policies": ["read"]})
        self.reader, self.accessor = token["SecretID"], token["AccessorID"]
        once = operator.ask("PUT", "/v1/acl/token/onetime")["OneTimeToken"]["OneTimeSecretID"]
        config = {"OIDCDiscoveryURL": "https://127.0.0.1:9", "OIDCClientID": "x", "OIDCClientSecret": CLIENT_SECRET}
        config["AllowedRedirectURIs"] = ["http://localhost:4649/oidc/callback"]  # type: ignore[assignment]
        method = {"Name": "corp", "Type": "OIDC", "TokenLocality": "local", "MaxTokenTTL": "1h", "Config": config}
        operator.ask("PUT", "/v1/acl/auth-method", method)
        operator.ask("PUT", "/v1/jobs", JOB)
        self.alloc = eventually(self._running)
        self.identity = (self._task_folder() / "secrets" / "nomad_token").read_text()
        self.secrets = {
            "item": ITEM,
            "reader's token": self.reader,
            "management token": operator.token,
            "one-time token": once,
            "client secret": CLIENT_SECRET,
            "identity": self.identity,
            "root key": next(agent.data.rglob("root.key")).read_text().split()[0],
            "gossip key": GOSSIP_KEY,
        }
        self.secrets |= {f"setting {name}": f"canary-setting-{name}" for name in SETTING_NAMES}
        for number in range(EACH):
            operator.write(f"many/{number}", item=self._new("variable", number))
            body = {"Type": "client", "Policies": ["read"], "Name": f"t{number}"}
            self.secrets[f"token {number}"] = operator.ask("PUT", "/v1/acl/token", body)["SecretID"]
        self._fill_another_namespace()
        self._show_what_is_no_token()

    def _new(self, kind: str, number: int = 0) -> str:
        """A secret of a kind, which is looked for from now on."""
        self.secrets[f"{kind} {number}"] = f"canary-{kind}-{number}-9e3d"
        return self.secrets[f"{kind} {number}"]

    def _fill_another_namespace(self) -> None:
        """Jobs of which the reader may see nothing."""
        self.operator.ask("PUT", "/v1/namespace/apart", {"Name": "apart"})
        for number in range(EACH):
            made = {kind: self._new(kind, number) for kind in SHOWN}
            task = {
                "Name": "t",
                "Driver": "raw_exec",
                "Config": {"command": "/bin/true", "args": [made["argument"]]},
                "Env": {"PLAIN": made["env"]},
                "Templates": [{"EmbeddedTmpl": made["template"], "DestPath": "local/x"}],
                "DispatchPayload": {"File": "x"},
            }
            nowhere = [{"LTarget": "${attr.kernel.name}", "RTarget": "none", "Operand": "="}]
            job = {"ID": f"apart-{number}", "Namespace": "apart", "Type": "batch", "Constraints": nowhere}
            job |= {"Meta": {"plain": made["meta"]}, "TaskGroups": [{"Name": "g", "Tasks": [task]}]}
            self.operator.ask("PUT", "/v1/jobs?namespace=apart", {"Job": job | {"ParameterizedJob": {}}})
            payload = base64.b64encode(made["payload"].encode()).decode()
            self.operator.ask("PUT", f"/v1/job/apart-{number}/dispatch?namespace=apart", {"Payload": payload})
            self.secrets[f"encoded payload {number}"] = payload

    def _show_what_is_no_token(self) -> None:
        """What somebody sent in error is theirs."""
        for headers in ({"X-Nomad-Token": self._new("header")}, {"Authorization": f"Bearer {self._new('bearer')}"}):
            assert self.agent.request("GET", "/v1/jobs", headers=headers).status == 403
        for path, name in (("acl/token/onetime/exchange", "OneTimeSecretID"), ("acl/login", "LoginToken")):
            self.agent.request("PUT", f"/v1/{path}", {name: self._new(name), "AuthMethodName": "corp"})
        broken = b'{"Job": {"ID": "' + self._new("body").encode()
        self.agent.request("PUT", "/v1/jobs", broken, headers={"X-Nomad-Token": self.operator.token})

    def _running(self) -> Any:
        found = self.operator.ask("GET", "/v1/job/web/allocations")
        return next((each["ID"] for each in found if each["ClientStatus"] == "running"), None)

    def _task_folder(self) -> Path:
        return next(path for path in self.agent.data.rglob("t") if path.parent.name == self.alloc)

    def paths(self) -> Iterator[str]:
        """Every read that can be asked for without knowing more than the job's ids."""
        node = self.operator.ask("GET", "/v1/nodes")[0]["ID"]
        evaluation = self.operator.ask("GET", "/v1/evaluations")[0]["ID"]
        known = {
            "job/": "web", "allocation/": self.alloc, "node/": node, "evaluation/": evaluation,
            "acl/token/": self.accessor, "acl/auth-method/": "corp", "acl/policy/": "read",
        }  # fmt: skip
        for route in ROUTES:
            if "GET" not in route.verbs.split() or route.path.startswith(STREAMS):
                continue
            head, brace, _ = route.path.partition("{")
            if not brace:
                yield f"/v1/{route.path}"
            elif (name := known.get(head)) is not None and route.path.count("{") == 1:
                yield f"/v1/{head}{name}{route.path.partition('}')[2]}"

    def answers(self, token: str) -> Iterator[tuple[str, str]]:
        """What is answered to a token, by path."""
        for path in self.paths():
            headers = {"X-Nomad-Token": token} if token else {}
            yield path, self.agent.request("GET", path, headers=headers).body.decode("utf-8", "replace")
        yield "/v1/event/stream", self._events(token)

    def _events(self, token: str) -> str:
        connection = http.client.HTTPConnection(self.agent.host, self.agent.ports["http"], timeout=READS_S)
        connection.request("GET", "/v1/event/stream?index=1&namespace=*", headers={"X-Nomad-Token": token})
        answer, found = connection.getresponse(), []
        with contextlib.suppress(TimeoutError):
            while line := answer.readline():
                found.append(line)
        connection.close()
        return b"".join(found).decode()

    def found_in(self, text: str) -> set[str]:
        """The kinds of secrets in a text."""
        return {kind for kind, secret in self.secrets.items() if secret in text}


JOB = {
    "Job": {
        "ID": "web",
        "TaskGroups": [
            {
                "Name": "g",
                "Tasks": [
                    {
                        "Name": "t",
                        "Driver": "raw_exec",
                        "Config": {"command": "/bin/sleep", "args": ["300"]},
                        "Identity": {"Env": True, "File": True},
                        "Templates": [
                            {
                                "EmbeddedTmpl": '{{ with nomadVar "nomad/jobs/web" }}ITEM={{ .item }}{{ end }}',
                                "DestPath": "secrets/env",
                                "Envvars": True,
                            }
                        ],
                    }
                ],
            }
        ],
    }
}


@pytest.fixture
def canaries(tmp_path: Path) -> Iterator[Canaries]:
    agent = Agent(tmp_path, dev=False, settings=SETTINGS)

    def answers() -> bool:
        with contextlib.suppress(OSError):
            return agent.request("GET", "/v1/agent/health").status == 200
        return False

    try:
        agent.spawn()
        eventually(answers)
        eventually(lambda: agent.request("GET", "/v1/status/leader").body not in (b"", b'""'))
        yield Canaries(agent)
    finally:
        left = agent.close()
    assert left == [], agent.log()


def test_secrets_are_seen_by_nobody_who_may_not(canaries: Canaries) -> None:
    """B239: identities too, in allocations and events as everywhere."""
    (place,) = [path for path in canaries.agent.data.rglob("*.db") if "client" in path.parts]
    with contextlib.closing(sqlite3.connect(f"file:{place}?mode=ro", uri=True)) as known:
        ((secret,),) = known.execute("select value from facts where name = 'secret_id'")
    canaries.secrets["node's secret"] = secret[:-SUM_BYTES].decode()

    assert len(canaries.secrets) > 50
    # Whoever may do everything sees tokens where tokens are looked up, jobs where jobs are told, and nothing else.
    allowed = {f"/v1/acl/token/{canaries.accessor}": {"reader's token"}, "/v1/acl/token/self": {"management token"}}
    allowed["/v1/agent/keyring/list"] = {"gossip key"}
    jobs = {kind for kind in canaries.secrets if kind.rpartition(" ")[0] in (*SHOWN, "encoded payload")}
    asked = dict(canaries.answers(canaries.operator.token))
    assert len(asked) > 50
    for path, text in asked.items():
        assert canaries.found_in(text) <= allowed.get(path, jobs if path == "/v1/event/stream" else set()), path
    for token in (canaries.reader, "", "made-up"):
        for path, text in canaries.answers(token):
            mine = {"reader's token"} if token == canaries.reader and path in allowed else set()
            assert canaries.found_in(text) <= mine, (path, token)

    # What somebody sends along with a report of a fault.
    command = [LEPA, "operator", "debug", "-duration=1s", "-interval=1s", "-output", canaries.agent.folder]
    environment = canaries.agent.environment() | {"LEPA_TOKEN": canaries.operator.token}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    with tarfile.open(next(canaries.agent.folder.glob("*.tar.gz"))) as archive:
        for member in archive:
            held = archive.extractfile(member)
            assert canaries.found_in(held.read().decode("latin-1") if held else "") == set(), member.name

    # What the agent writes down.
    assert canaries.found_in(canaries.agent.log()) == set()
    for path in canaries.agent.data.rglob("*"):
        if not path.is_file() or path.is_symlink() or f"/{canaries.alloc}/" in str(path):
            continue
        found = canaries.found_in(path.read_bytes().decode("latin-1"))
        if path.name == "root.key":
            assert found == {"root key"}
            assert path.stat().st_mode & 0o777 == 0o600
            continue
        assert not found & {"item", "root key", "identity"}, path
        if found:
            assert path.stat().st_mode & 0o077 == 0, (path, found)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                command = (entry / "cmdline").read_bytes().decode("latin-1")
                assert canaries.found_in(command) == set(), command

    # What stands on the disk is for the agent's user alone, and what is stored encrypted is not found there.
    for path in canaries.agent.data.rglob("*"):
        if not path.is_file() or path.is_symlink():
            continue
        found = canaries.found_in(path.read_bytes().decode("latin-1"))
        opened = [
            each.stat().st_mode & 0o077 for each in (path, *path.parents) if each.is_relative_to(canaries.agent.data)
        ]
        assert not found or 0 in opened, (path, found)
        assert not {kind for kind in found if kind.startswith("variable")}, path

    # What everybody on the machine sees.
    for process in canaries.agent.processes():
        assert canaries.found_in(process) == set()
