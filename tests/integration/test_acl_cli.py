"""The commands about access, variables and keys, against a server: what people type, and what they get back.

They are in `lepa.cli.acl`, `lepa.cli.login`, `lepa.cli.variables`, `lepa.cli.variable_lock`, `lepa.cli.keyring`.
"""

import asyncio
import io
import json
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from tests.integration.acl_world import AclWorld, acl_world
from tests.integration.oidc_provider import CLIENT, SECRET, Provider

from lepa.cli import login as login_module
from lepa.cli.main import main

LEPA = Path(sys.executable).with_name("lepa")
RULES = 'namespace "default" { policy = "read" }\n'


class Done:
    """What a command left."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code, self.out, self.error = code, out, error

    def __getitem__(self, name: str) -> str:
        """The value behind `name = `."""
        found = re.search(rf"^{re.escape(name)} += (.*)$", self.out, re.M)
        assert found, f"{name} is not in:\n{self.out}{self.error}"
        return found[1]


class Typist:
    """Somebody who types commands, with the first token in the environment."""

    def __init__(self, world: AclWorld, patch: pytest.MonkeyPatch, captured: pytest.CaptureFixture[str]) -> None:
        self.world = world
        self._captured = captured
        for name in [name for name in os.environ if name.startswith(("NOMAD_", "LEPA_"))]:
            patch.delenv(name)
        patch.setenv("LEPA_ADDR", world.url)
        patch.setenv("LEPA_TOKEN", world.root)

    async def __call__(self, *words: str, code: int = 0) -> Done:
        self._captured.readouterr()
        found = await asyncio.to_thread(main, words)
        captured = self._captured.readouterr()
        done = Done(found, captured.out, captured.err)
        assert found == code, f"{words}: {found}\n{done.out}{done.error}"
        return done


@pytest.fixture
async def lepa(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> AsyncIterator[Typist]:
    async with acl_world() as world:
        yield Typist(world, monkeypatch, capfd)


@pytest.fixture
def rules(tmp_path: Path) -> str:
    path = tmp_path / "rules.hcl"
    path.write_text(RULES)
    return str(path)


async def test_a_cluster_is_bootstrapped_once(lepa: Typist) -> None:
    done = await lepa("acl", "bootstrap", code=1)
    assert "ACL bootstrap already done (reset index: " in done.error


async def test_policies(lepa: Typist, rules: str) -> None:
    done = await lepa("acl", "policy", "apply", "-description", "Look", "look", rules)
    assert done.out == 'Successfully wrote "look" ACL policy!\n'
    done = await lepa("acl", "policy", "info", "look")
    assert (done["Name"], done["Description"]) == ("look", "Look")
    assert RULES in done.out
    assert (await lepa("acl", "policy", "list")).out.splitlines()[1].split() == ["look", "Look"]
    assert json.loads((await lepa("acl", "policy", "list", "-json")).out)[0]["Name"] == "look"
    done = await lepa("acl", "policy", "apply", "-namespace=default", "-job=web", "-group=g", "-task=t", "mine", rules)
    done = await lepa("acl", "policy", "info", "mine")
    assert [done[name] for name in ("Namespace", "JobID", "Group", "Task")] == ["default", "web", "g", "t"]
    assert "-group needs -job" in (await lepa("acl", "policy", "apply", "-group=g", "x", rules, code=1)).error
    assert (await lepa("acl", "policy", "delete", "mine")).out == "Successfully deleted mine policy!\n"
    token = (await lepa("acl", "token", "create", "-policy=look"))["Secret ID"]
    assert "look" in (await lepa("acl", "policy", "self", "-token", token)).out
    assert "No policies found" in (await lepa("acl", "policy", "self")).out


async def test_tokens(lepa: Typist, rules: str) -> None:
    await lepa("acl", "policy", "apply", "look", rules)
    await lepa("acl", "policy", "apply", "see", rules)
    made = await lepa("acl", "token", "create", "-name", "ada", "-policy", "look", "-ttl", "8h")
    assert (made["Name"], made["Type"], made["Global"], made["Policies"]) == ("ada", "client", "false", "look")
    assert made["Expiry Time"] != "<none>"
    accessor = made["Accessor ID"]
    assert (await lepa("acl", "token", "info", accessor))["Name"] == "ada"
    assert (await lepa("acl", "token", "self", "-token", made["Secret ID"]))["Accessor ID"] == accessor
    changed = await lepa("acl", "token", "update", "-name=bea", "-policy=see", accessor)
    assert (changed["Name"], changed["Policies"], changed["Secret ID"]) == ("bea", "see", made["Secret ID"])
    rows = [line.split() for line in (await lepa("acl", "token", "list")).out.splitlines()]
    assert ["bea", "client", "false", accessor, "false"] in rows
    assert (await lepa("acl", "token", "delete", accessor)).out == f"Token {accessor} successfully deleted\n"
    await lepa("acl", "token", "info", accessor, code=1)
    chief = await lepa("acl", "token", "create", "-type=management", "-global")
    assert (chief["Policies"], chief["Global"]) == ("n/a", "true")
    refused = await lepa("acl", "token", "list", "-token", "made-up", code=1)
    assert "ermission" in refused.error or "token" in refused.error


async def test_roles(lepa: Typist, rules: str) -> None:
    await lepa("acl", "policy", "apply", "look", rules)
    await lepa("acl", "policy", "apply", "see", rules)
    made = await lepa("acl", "role", "create", "-name=dev", "-description=D", "-policy=look")
    role = made["ID"]
    token = await lepa("acl", "token", "create", "-role-name=dev")
    assert token.out.splitlines()[-1].split()[1:] == ["dev"]
    assert (await lepa("acl", "token", "create", f"-role-id={role}")).out.splitlines()[-1].split() == [role, "dev"]
    assert (await lepa("acl", "role", "update", "-policy=see", role))["Policies"] == "look,see"
    only = await lepa("acl", "role", "update", "-no-merge", "-name=ops", "-policy=see", role)
    assert (only["Name"], only["Policies"], only["Description"]) == ("ops", "see", "<none>")
    assert (await lepa("acl", "role", "info", "-by-name", "ops"))["ID"] == role
    assert (await lepa("acl", "role", "info", role))["Name"] == "ops"
    assert role in (await lepa("acl", "role", "list")).out
    await lepa("acl", "role", "create", "-name=x", code=1)
    assert (await lepa("acl", "role", "delete", role)).out == f"ACL role {role} successfully deleted\n"
    assert "No ACL roles found" in (await lepa("acl", "role", "list")).out


async def test_logins_with_a_jwt(lepa: Typist, rules: str, tmp_path: Path) -> None:
    await lepa("acl", "policy", "apply", "web", rules)
    async with Provider() as provider:
        config = {
            "JWKSURL": f"{provider.issuer}/keys",
            "BoundAudiences": [CLIENT],
            "ClaimMappings": {"team": "team"},
        }
        (tmp_path / "ci.json").write_text(json.dumps(config))
        create = ("acl", "auth-method", "create", "-name", "ci", "-type", "JWT", "-token-locality", "local")
        made = await lepa(*create, "-max-token-ttl", "1h", "-config", f"@{tmp_path / 'ci.json'}")
        assert made.out.startswith("Created ACL auth method ci\n")
        assert made["Max Token TTL"] == "1h0m0s"
        bind = ("acl", "binding-rule", "create", "-auth-method", "ci", "-bind-type", "policy")
        rule = await lepa(*bind, "-bind-name", "${value.team}", "-selector", 'value.team == "web"')
        done = await lepa("login", "-method", "ci", "-login-token", provider.sign())
        assert done.out.startswith("Successfully logged in via JWT and ci\n")
        assert done["Policies"] == "web"
        await lepa("login", "-method", "ci", "-login-token", provider.sign(team="other"), code=1)
        assert "no default auth method" in (await lepa("login", "-type=JWT", code=1)).error
        updated = await lepa("acl", "auth-method", "update", "-default", "ci")
        assert updated["Default"] == "true"
        assert (await lepa("login", "-login-token", provider.sign()))["Policies"] == "web"
        assert "-login-token is needed" in (await lepa("login", code=1)).error
    assert (await lepa("acl", "auth-method", "info", "ci"))["BoundAudiences"] == CLIENT
    assert "ci" in (await lepa("acl", "auth-method", "list")).out
    number = rule["ID"]
    assert (await lepa("acl", "binding-rule", "update", "-description=D", number))["Selector"] == 'value.team == "web"'
    bare = await lepa("acl", "binding-rule", "update", "-no-merge", "-bind-type=management", number)
    assert (bare["Bind Type"], bare["Selector"], bare["Bind Name"]) == ("management", "<none>", "<none>")
    assert (await lepa("acl", "binding-rule", "info", number))["Auth Method"] == "ci"
    assert number in (await lepa("acl", "binding-rule", "list")).out
    assert (await lepa("acl", "binding-rule", "delete", number)).out == f"Deleted ACL binding rule {number}\n"
    assert (await lepa("acl", "auth-method", "delete", "ci")).out == "Deleted ACL auth method ci\n"
    assert "No ACL auth methods found" in (await lepa("acl", "auth-method", "list")).out


async def test_a_login_in_the_browser(lepa: Typist, rules: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await lepa("acl", "policy", "apply", "web", rules)
    address = "127.0.0.1:14649"
    async with Provider() as provider:

        def browser(url: str) -> bool:
            came = provider.log_in(url)
            later = f"http://{address}/oidc/callback?state={came['state']}&code={came['code']}"
            loop.call_soon_threadsafe(lambda: loop.run_in_executor(None, lambda: urlopen(later).read()))
            return True

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(login_module.webbrowser, "open", browser)
        config = {
            "OIDCDiscoveryURL": provider.issuer,
            "OIDCClientID": CLIENT,
            "OIDCClientSecret": SECRET,
            "AllowedRedirectURIs": [f"http://{address}/oidc/callback"],
            "ClaimMappings": {"team": "team"},
            "OIDCEnablePKCE": True,
        }
        create = ("acl", "auth-method", "create", "-name=corp", "-type=OIDC", "-token-locality=local", "-default")
        made = await lepa(*create, "-max-token-ttl=8h", "-config", json.dumps(config))
        assert SECRET not in made.out
        bind = ("acl", "binding-rule", "create", "-auth-method=corp", "-bind-type=policy", "-bind-name=web")
        await lepa(*bind)
        done = await lepa("login", f"-oidc-callback-addr={address}")
        assert done["Policies"] == "web"
        assert provider.issuer in done.error
        await lepa("acl", "auth-method", "update", "-max-token-ttl=1h", "corp")
        assert lepa.world.snapshot.auth_method("corp").config.oidc_client_secret == SECRET


async def test_variables(lepa: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "password.txt").write_text("p@ss\n")
    done = await lepa("var", "put", "nomad/jobs/web", "host=h", f"password=@{tmp_path / 'password.txt'}", "at=\\@x")
    assert done.out == 'Successfully created variable "nomad/jobs/web"!\n'
    shown = await lepa("var", "get", "-out", "table", "nomad/jobs/web")
    assert (shown["Path"], shown["host"], shown["at"]) == ("nomad/jobs/web", "h", "@x")
    assert (await lepa("var", "get", "-item=password", "nomad/jobs/web")).out == "p@ss\n"
    found = json.loads((await lepa("var", "get", "nomad/jobs/web")).out)
    assert found["Items"]["password"] == "p@ss\n"
    assert (await lepa("var", "get", "-template={{.Path}}", "nomad/jobs/web")).out == "nomad/jobs/web\n"
    assert "no item" in (await lepa("var", "get", "-item=x", "nomad/jobs/web", code=1)).error
    await lepa("var", "get", "no/such", code=1)

    index = found["ModifyIndex"]
    refused = await lepa("var", "put", "-check-index=0", "nomad/jobs/web", "host=i", code=1)
    assert f"the check-index 0 does not match the variable's index {index}" in refused.error
    put = await lepa("var", "put", "-check-index", str(index), "-out=json", "nomad/jobs/web", "host=i")
    assert json.loads(put.out)["Items"] == {"host": "i"}
    assert "Successfully updated" in put.error
    old = json.dumps(found)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(old.encode())))
    assert "Check-and-Set conflict" in (await lepa("var", "put", "-", "more=1", code=1)).error
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(old.encode())))
    forced = await lepa("var", "put", "-force", "-out=table", "-", "more=1")
    assert (forced["more"], forced["host"]) == ("1", "h")

    await lepa("var", "put", "other", "a=b")
    listed = [line.split() for line in (await lepa("var", "list", "-out=table", "nomad/jobs")).out.splitlines()]
    assert [row[:2] for row in listed] == [["Namespace", "Path"], ["default", "nomad/jobs/web"]]
    assert (await lepa("var", "list", "-out=terse")).out == "nomad/jobs/web\nother\n"
    assert [each["Path"] for each in json.loads((await lepa("var", "list")).out)] == ["nomad/jobs/web", "other"]
    assert "-page-token default.other" in (await lepa("var", "list", "-per-page=1", "-out=terse")).error
    assert "No variables with" in (await lepa("var", "list", "-out=table", "zz")).out
    assert "Check-and-Set conflict" in (await lepa("var", "purge", "-check-index=1", "other", code=1)).error
    assert (await lepa("var", "purge", "other")).out == 'Successfully purged variable "other"!\n'


async def test_specifications_of_variables(lepa: Typist, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert (await lepa("var", "init")).out == "Example variable specification written to spec.nv.hcl\n"
    assert "exists" in (await lepa("var", "init", code=1)).error
    assert (await lepa("var", "init", "-out=json", "-quiet", "mine.json")).out == ""
    for name in ("spec.nv.hcl", "mine.json"):
        await lepa("var", "put", "-force", f"@{name}", "key2=mine")
        items = json.loads((await lepa("var", "get", "path/to/variable")).out)["Items"]
        assert items == {"key1": "value 1", "key2": "mine"}
        await lepa("var", "purge", "path/to/variable")
    await lepa("var", "put", "elsewhere", "@spec.nv.hcl")
    (tmp_path / "again.hcl").write_text((await lepa("var", "get", "-out=hcl", "elsewhere")).out)
    await lepa("var", "put", "@again.hcl", "odd=${x} %{y}")
    (tmp_path / "again.hcl").write_text((await lepa("var", "get", "-out=hcl", "elsewhere")).out)
    await lepa("var", "put", "@again.hcl")
    assert (await lepa("var", "get", "-item=odd", "elsewhere")).out == "${x} %{y}"
    (tmp_path / "bad.hcl").write_text('pth = "x"\n')
    assert '"pth" is not known' in (await lepa("var", "put", "@bad.hcl", code=1)).error
    (tmp_path / "bad.json").write_text("{")
    assert "not JSON" in (await lepa("var", "put", "@bad.json", code=1)).error
    assert "key=value" in (await lepa("var", "put", "x", "y", code=1)).error
    (tmp_path / "nameless.json").write_text('{"Items": {"a": "b"}}')
    assert "no path" in (await lepa("var", "put", "@nameless.json", code=1)).error


async def _lock(*words: str) -> "asyncio.subprocess.Process":
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(LEPA, "var", "lock", *words, stdout=pipe, stderr=pipe)


async def test_a_command_runs_while_a_variable_is_locked(lepa: Typist) -> None:
    assert "a command is needed" in (await lepa("var", "lock", "lock/me", code=1)).error
    await lepa("var", "put", "lock/me", "a=b")
    first = await _lock("-ttl=10s", "-delay=10s", "lock/me", "echo got; sleep 30")
    assert first.stdout is not None
    assert await asyncio.wait_for(first.stdout.readline(), 20) == b"got\n"
    early = await _lock("-early-return", "lock/me", "echo never")
    out, error = await early.communicate()
    assert (early.returncode, out) == (1, b"")
    assert b"is locked" in error
    assert "locked" in (await lepa("var", "put", "lock/me", "a=c", code=1)).error
    second = await _lock("-backoff=100ms", "-shell=false", "lock/me", "/bin/sh", "-c", "echo second; exit 7")
    await asyncio.sleep(1)
    assert second.returncode is None
    first.send_signal(signal.SIGTERM)
    await first.communicate()
    assert first.returncode == 128 + signal.SIGTERM
    assert (await second.communicate())[0] == b"second\n"
    assert second.returncode == 7
    found = json.loads((await lepa("var", "get", "lock/me")).out)
    assert ("Lock" in found, found["Items"]) == (False, {"a": "b"})


async def test_a_command_ends_when_the_lock_is_lost(lepa: Typist) -> None:
    running = await _lock("-v", "-ttl=10s", "gone", "exec sleep 60")
    assert running.stderr is not None
    assert await asyncio.wait_for(running.stderr.readline(), 20) == b"lock on gone acquired\n"
    held = (await lepa.world.ask("GET", "/v1/var/gone", lepa.world.root)).json
    body: Any = {"Path": "gone", "Lock": {"ID": held["Lock"]["ID"]}}
    assert (await lepa.world.ask("PUT", "/v1/var/gone?lock-release", lepa.world.root, body)).status == 200
    _, error = await asyncio.wait_for(running.communicate(), 30)
    assert running.returncode == 1
    assert b"lock lost" in error


async def test_the_keyring(lepa: Typist) -> None:
    await lepa("var", "put", "x", "a=b")
    listed = await lepa("operator", "root", "keyring", "list", "-verbose")
    first = listed.out.splitlines()[1].split()
    assert first[1] == "active"
    rotated = (await lepa("operator", "root", "keyring", "rotate", "-verbose")).out.splitlines()[1].split()
    assert rotated[0] != first[0]
    early = (await lepa("operator", "root", "keyring", "rotate", "-prepublish=1h")).out.splitlines()[1].split()
    assert early[1] == "prepublished"
    assert "excludes" in (await lepa("operator", "root", "keyring", "rotate", "-full", "-prepublish=1h", code=1)).error
    await lepa("operator", "root", "keyring", "remove", first[0], code=1)
    done = await lepa("operator", "root", "keyring", "remove", "-force", first[0], code=0)
    assert done.out == f"Removed encryption key {first[0]}\n"
