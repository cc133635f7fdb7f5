"""Access control as people use it: tokens, policies, roles, logins, identities, the keyring, variables.

Covers lepa.server.endpoints.acl, lepa.server.endpoints.variables, lepa.server.endpoints.keyring, lepa.server.keyring,
lepa.server.keyring_care, lepa.server.key_file, lepa.server.acl.logins, lepa.server.acl.introduced, lepa.api.acl,
lepa.api.variables, lepa.api.keyring and lepa.rpc.acl_requests. Row S12 of the reliability goals.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task
from tests.integration.acl_world import AclWorld, acl_world
from tests.integration.oidc_provider import CLIENT, SECRET, Provider
from tests.integration.server_cluster import FakeNode, cluster

from lepa.kit.durations import HOUR
from lepa.kit.sources import SystemClock
from lepa.model.acl import JobAcl
from lepa.model.errors import LepaError
from lepa.model.identity import WorkloadIdentity
from lepa.rpc import acl_requests as a
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.acl.introduced import Introduced
from lepa.server.key_file import NAME, load_or_make
from lepa.server.keyring_care import KeyringCare
from lepa.server.settings import AclSettings, ServerSettings
from lepa.serving.records import Registry
from lepa.serving.selection import ArmState, SelectionState
from lepa.serving.selection_memory import Learned
from lepa.serving.variables_store import VariablesRegistryStore
from lepa.state import keys
from lepa.state.tables import Watch
from lepa.store.memory import MemoryStore

READ_ALL = 'namespace "*" {\n  policy = "read"\n}\nnode {\n  policy = "read"\n}'
ALL_VARIABLES = """namespace "default" {
  variables {
    path "*" {
      capabilities = ["list", "read", "write", "destroy"]
    }
  }
}"""


@pytest.fixture
async def world() -> AsyncIterator[AclWorld]:
    async with acl_world() as made:
        yield made


# Tokens and policies


async def test_a_token_lives_from_creation_to_expiry(world: AclWorld) -> None:
    await world.policy("reads", READ_ALL)
    made = await world.ask(
        "PUT",
        "/v1/acl/token",
        world.root,
        {"Name": "t", "Type": "client", "Policies": ["reads"], "ExpirationTTL": "8h"},
    )
    token = made.json
    assert (token["ExpirationTTL"], token["Type"]) == ("8h0m0s", "client")
    own = (await world.ask("GET", "/v1/acl/token/self", token["SecretID"])).json
    assert own == token
    assert (await world.ask("GET", "/v1/jobs", token["SecretID"])).status == 200
    accessor = token["AccessorID"]
    changed = {"AccessorID": accessor, "Name": "new", "Type": "client", "Policies": ["reads"]}
    assert (await world.ask("PUT", f"/v1/acl/token/{accessor}", world.root, changed)).json["Name"] == "new"
    wrong = await world.ask("PUT", f"/v1/acl/token/{accessor}", world.root, changed | {"AccessorID": "x"})
    assert (wrong.status, wrong.text) == (400, "ACL token accessor does not match request path")
    listed = (await world.ask("GET", "/v1/acl/tokens", world.root)).json
    assert [one["Name"] for one in listed] == ["Bootstrap Token", "new"]
    assert all("SecretID" not in one for one in listed)
    assert (await world.ask("DELETE", f"/v1/acl/token/{accessor}", world.root)).status == 200
    gone = await world.ask("GET", "/v1/jobs", token["SecretID"])
    assert (gone.status, gone.text) == (403, "ACL token not found")
    assert (await world.ask("GET", f"/v1/acl/token/{accessor}", world.root)).text == "ACL token not found"


async def test_bearer_works_like_the_header(world: AclWorld) -> None:
    headers = {"Authorization": f"bearer {world.root}"}
    async with world.session.get(f"{world.url}/v1/jobs", headers=headers) as answer:
        assert answer.status == 200


async def test_bootstrap_happens_once_and_again_with_the_reset_file(tmp_path: Path) -> None:
    async with acl_world(directory=str(tmp_path)) as world:
        refused = await world.ask("PUT", "/v1/acl/bootstrap")
        assert refused.status == 400
        index = refused.text.removeprefix("ACL bootstrap already done (reset index: ").rstrip(")")
        (tmp_path / "acl-bootstrap-reset").write_text("7\n")
        wrong = await world.ask("PUT", "/v1/acl/bootstrap")
        assert wrong.text == f"Invalid bootstrap reset index (specified 7, reset index: {index})"
        (tmp_path / "acl-bootstrap-reset").write_text(f"{index}\n")
        secret = "11111111-2222-3333-4444-555555555555"
        again = await world.ask("PUT", "/v1/acl/bootstrap", "", {"BootstrapSecret": secret})
        assert (again.status, again.json["SecretID"]) == (200, secret)
        assert not (tmp_path / "acl-bootstrap-reset").exists()
        assert (await world.ask("PUT", "/v1/acl/bootstrap")).status == 400


async def test_the_anonymous_policy_is_for_whoever_shows_nothing(world: AclWorld) -> None:
    assert (await world.ask("GET", "/v1/jobs")).status == 403
    await world.policy("anonymous", READ_ALL)
    assert (await world.ask("GET", "/v1/jobs")).status == 200
    assert (await world.ask("GET", "/v1/acl/token/self")).json["AccessorID"] == "anonymous"
    assert (await world.ask("GET", "/v1/jobs", "99999999-9999-4999-8999-999999999999")).status == 403
    await world.ask("DELETE", "/v1/acl/policy/anonymous", world.root)
    assert (await world.ask("GET", "/v1/jobs")).status == 403


async def test_a_role_gives_its_policies_for_as_long_as_it_has_them(world: AclWorld) -> None:
    await world.policy("reads", READ_ALL)
    await world.policy("nothing", 'agent {\n  policy = "read"\n}')
    role = (await world.ask("PUT", "/v1/acl/role", world.root, {"Name": "r", "Policies": [{"Name": "reads"}]})).json
    made = await world.ask(
        "PUT", "/v1/acl/token", world.root, {"Name": "t", "Type": "client", "Roles": [{"Name": "r"}]}
    )
    assert made.json["Roles"] == [{"ID": role["ID"], "Name": "r"}]
    secret = made.json["SecretID"]
    assert (await world.ask("GET", "/v1/jobs", secret)).status == 200
    assert [one["Name"] for one in (await world.ask("GET", "/v1/acl/policies", secret)).json] == ["reads"]
    assert [one["Name"] for one in (await world.ask("GET", "/v1/acl/roles", secret)).json] == ["r"]
    assert (await world.ask("GET", "/v1/acl/role/name/r", secret)).json["ID"] == role["ID"]
    changed = {"ID": role["ID"], "Name": "r", "Policies": [{"Name": "nothing"}]}
    assert (await world.ask("PUT", f"/v1/acl/role/{role['ID']}", world.root, changed)).status == 200
    assert (await world.ask("GET", "/v1/jobs", secret)).status == 403
    assert (await world.ask("DELETE", f"/v1/acl/role/{role['ID']}", world.root)).status == 200
    assert (await world.ask("GET", "/v1/acl/role/none", world.root)).text == "ACL role not found"


async def test_a_read_that_waits_ends_with_the_rights(world: AclWorld) -> None:
    secret = await world.token('namespace "*" {\n  policy = "read"\n}', "watcher")
    index = world.snapshot.index_of(Watch("jobs"))
    waiting = asyncio.ensure_future(world.ask("GET", f"/v1/jobs?index={max(1, index)}&wait=20s", secret))
    await asyncio.sleep(0.05)
    await world.policy("watcher", 'agent {\n  policy = "read"\n}')
    async with FakeNode(world.caller, make_node("n-1")):
        await world.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=make_job("secret"), auth_token=world.root))
    answer = await waiting
    assert (answer.status, answer.text) == (403, "Permission denied")


async def test_a_one_time_token_is_exchanged_by_anybody_once(world: AclWorld) -> None:
    made = (await world.ask("PUT", "/v1/acl/token/onetime", world.root)).json["OneTimeToken"]
    body = {"OneTimeSecretID": made["OneTimeSecretID"]}
    exchanged = await world.ask("PUT", "/v1/acl/token/onetime/exchange", "", body)
    assert exchanged.json["Token"]["SecretID"] == world.root
    assert (await world.ask("PUT", "/v1/acl/token/onetime/exchange", "", body)).status == 403


async def test_policies_are_checked_when_they_are_written(world: AclWorld) -> None:
    for rules in ('namespace {\n  policy = "write"\n}', "namespace"):
        refused = await world.ask("PUT", "/v1/acl/policy/bad", world.root, {"Name": "bad", "Rules": rules})
        assert refused.status == 400
    assert (await world.ask("GET", "/v1/acl/policy/bad", world.root)).text == "ACL policy not found"
    refused = await world.ask("PUT", "/v1/acl/policy/a", world.root, {"Name": "b", "Rules": ""})
    assert refused.text == "ACL policy name does not match request path"


async def test_without_access_control_its_routes_say_so() -> None:
    async with cluster() as plain:
        for method in (m.ACL_TOKEN_LIST, m.ACL_POLICY_LIST, m.ACL_BOOTSTRAP, m.ACL_LOGIN):
            with pytest.raises(LepaError, match="ACL support disabled"):
                await plain.caller.call(method, method.request())
        door = a.AuthorizeRequest(door="Task.Api")
        with pytest.raises(LepaError) as refused:
            await plain.caller.call(m.ACL_AUTHORIZE, door)
        assert refused.value.code == "denied"


# Variables


async def test_variables_over_http(world: AclWorld) -> None:
    secret = await world.token(ALL_VARIABLES, "vars")
    put = await world.ask("PUT", "/v1/var/app/db", secret, {"Items": {"user": "u", "pass word": "p.q"}})
    assert (put.status, put.json["Items"]) == (200, {"user": "u", "pass word": "p.q"})
    index = put.json["ModifyIndex"]
    same = await world.ask("PUT", "/v1/var/app/db", secret, {"Items": {"user": "u", "pass word": "p.q"}})
    assert same.json["ModifyIndex"] == index
    stale = await world.ask("PUT", "/v1/var/app/db?cas=1", secret, {"Items": {"user": "v"}})
    assert (stale.status, stale.json["Items"]["user"], stale.json["ModifyIndex"]) == (409, "u", index)
    fresh = await world.ask("PUT", f"/v1/var/app/db?cas={index}", secret, {"Items": {"user": "v"}})
    assert (fresh.status, fresh.json["CreateIndex"]) == (200, put.json["CreateIndex"])
    for path in ("app/a", "app/c", "b"):
        await world.ask("PUT", f"/v1/var/{path}", secret, {"Items": {"k": path}})
    first = await world.ask("GET", "/v1/vars?prefix=app/&per_page=2", secret)
    assert [one["Path"] for one in first.json] == ["app/a", "app/c"]
    assert all("Items" not in one for one in first.json)
    token = first.headers["X-Nomad-NextToken"]
    assert [
        one["Path"] for one in (await world.ask("GET", f"/v1/vars?prefix=app/&next_token={token}", secret)).json
    ] == ["app/db"]
    found = await world.ask("GET", '/v1/vars?filter=Path+matches+"^b"', secret)
    assert [one["Path"] for one in found.json] == ["b"]
    assert (await world.ask("DELETE", "/v1/var/b?cas=1", secret)).status == 409
    assert (await world.ask("DELETE", "/v1/var/b", secret)).status == 204
    missing = await world.ask("GET", "/v1/var/b", secret)
    assert (missing.status, missing.text) == (404, "variable not found")


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("", {"Items": {"a": "b"}}, 400, "missing variable path"),
        ("a", {}, 400, "variable missing required Items object"),
        ("a", {"Items": {"a": 7}}, 400, 'Items: the value of "a" has to be a text'),
        ("a?cas=x", {"Items": {"a": "b"}}, 400, 'can not parse cas: "x" is not a number'),
        ("a?lock-acquire&cas=1", {"Lock": {}}, 400, "CAS can't be used with lock operations"),
        ("a?lock-acquire&lock-renew", {"Lock": {}}, 400, "multiple lock operations"),
        pytest.param("a?namespace=ghost", {"Items": {"a": "b"}}, 400, "nonexistent namespace", id="B162"),
        pytest.param("a?namespace=*", {"Items": {"a": "b"}}, 400, "wildcard", id="B163"),
        ("nomad/secret", {"Items": {"a": "b"}}, 400, "only paths at"),
        ("a%20b", {"Items": {"a": "b"}}, 400, "invalid path"),
        ("a", {"Items": {"a": "x" * 70_000}}, 400, "limited to 64KiB"),
        ("a?lock-renew", {"Lock": {"ID": "x"}}, 404, "variable doesn't exist"),
        ("a?lock-acquire", {"Lock": {"TTL": "1s"}, "Items": {"a": "b"}}, 400, "invalid TTL 1s"),
    ],
)
async def test_what_a_variable_cannot_be(world: AclWorld, path: str, body: Any, status: int, text: str) -> None:
    answer = await world.ask("PUT", f"/v1/var/{path}", world.root, body)
    assert (answer.status, text in answer.text) == (status, True), answer.text


async def test_a_lock_is_held_renewed_and_released(world: AclWorld) -> None:
    body = {"Items": {"a": "b"}, "Lock": {"TTL": "20s", "LockDelay": "10s"}}
    taken = (await world.ask("PUT", "/v1/var/l?lock-acquire", world.root, body)).json
    assert taken["Lock"] == {"ID": taken["Lock"]["ID"], "TTL": "20s", "LockDelay": "10s"}
    mine = {"Lock": {"ID": taken["Lock"]["ID"]}}
    other = await world.ask("PUT", "/v1/var/l?lock-acquire", world.root, body)
    assert (other.status, "ID" in other.json["Lock"]) == (409, False)
    refused = await world.ask("PUT", "/v1/var/l", world.root, {"Items": {"a": "c"}})
    assert (refused.status, refused.text) == (409, "attempting to modify locked variable")
    written = await world.ask("PUT", "/v1/var/l", world.root, {"Items": {"a": "c"}, **mine})
    assert written.json["Items"] == {"a": "c"}
    renewed = await world.ask("PUT", "/v1/var/l?lock-renew", world.root, mine)
    assert (renewed.status, renewed.json["ModifyIndex"]) == (200, written.json["ModifyIndex"])
    released = await world.ask("PUT", "/v1/var/l?lock-release", world.root, mine)
    assert "Lock" not in released.json
    assert (await world.ask("PUT", "/v1/var/l?lock-release", world.root, mine)).status == 409
    listed = (await world.ask("GET", "/v1/vars", world.root)).json
    assert "Lock" not in listed[0]


async def test_who_may_not_read_sees_no_items(world: AclWorld) -> None:
    writer = await world.token(
        'namespace "default" {\n  variables {\n    path "*" {\n      capabilities = ["write"]\n    }\n  }\n}', "writes"
    )
    await world.ask("PUT", "/v1/var/a", world.root, {"Items": {"secret": "hush"}})
    assert (await world.ask("GET", "/v1/var/a", writer)).status == 403
    conflict = await world.ask("PUT", "/v1/var/a?cas=1", writer, {"Items": {"k": "v"}})
    assert (conflict.status, "hush" in conflict.text) == (409, False)
    assert (await world.ask("DELETE", "/v1/var/a", writer)).status == 403
    assert (await world.ask("GET", "/v1/vars", writer)).json == []


async def test_a_namespace_with_variables_is_not_deleted(world: AclWorld) -> None:
    await world.namespace("apart")
    await world.ask("PUT", "/v1/var/a?namespace=apart", world.root, {"Items": {"k": "v"}})
    refused = await world.ask("DELETE", "/v1/namespace/apart", world.root)
    assert (refused.status, "variables" in refused.text) == (409, True)


async def test_a_registry_in_variables_wants_a_token_that_may_write_there(
    world: AclWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rules(capabilities: str) -> str:
        path = f'path "serving/shop/*" {{\n capabilities = [{capabilities}]\n }}'
        return f'namespace "default" {{\n variables {{\n {path}\n }}\n }}'

    def store(token: str, path: str = "serving/shop") -> VariablesRegistryStore:
        monkeypatch.setenv("NOMAD_TOKEN", token)
        return VariablesRegistryStore(f"{world.url.replace('http', 'vars')}/{path}")

    writer = await world.token(rules('"list", "read", "write", "destroy"'), "registry")
    reader = await world.token(rules('"list", "read"'), "onlooker")
    learned = SelectionState("app", "", {"m:1": ArmState(1.0, 2.0, 0.5)}, 3)
    kept = store(writer)
    for revision in (1, 2):
        await asyncio.to_thread(kept.save, Registry(revision=revision))
    await asyncio.to_thread(kept.save_learned, Learned([learned], []))
    assert (await asyncio.to_thread(store(reader).load)).revision == 2
    assert await asyncio.to_thread(store(reader).load_states) == [learned]
    await asyncio.to_thread(store(writer).forget_states, "app")
    assert await asyncio.to_thread(store(reader).load_states) == []
    for refused in (store(reader).save, store(writer, "serving/other").save, store("").save):
        with pytest.raises(LepaError, match="Permission denied") as denied:
            await asyncio.to_thread(refused, Registry(revision=3))
        assert denied.value.code == "denied"
    with pytest.raises(LepaError, match="Permission denied"):
        await asyncio.to_thread(store("").load)


# The keyring


async def test_nothing_secret_is_readable_in_the_store() -> None:
    store = MemoryStore(SystemClock())
    async with acl_world(store) as world:
        await world.ask("PUT", "/v1/var/a", world.root, {"Items": {"key": "canary-41c9"}})
        raw = b"".join(entry.key.encode() + entry.value for entry in (await store.read("")).entries)
        assert b"canary-41c9" not in raw
        assert b"PRIVATE KEY" not in raw
    await store.close()


async def test_a_full_rotation_encrypts_everything_anew(world: AclWorld) -> None:
    for number in range(5):
        await world.ask("PUT", f"/v1/var/v{number}", world.root, {"Items": {"k": str(number)}})
    (old,) = (await world.ask("GET", "/v1/operator/keyring/keys", world.root)).json
    made = (await world.ask("PUT", "/v1/operator/keyring/rotate?full", world.root)).json["Key"]
    await world.cluster.until(
        lambda: {one.key_id for one in world.snapshot.variables()} == {made["KeyID"]}, "everything encrypted anew"
    )
    await world.cluster.until(lambda: world.snapshot.root_key(old["KeyID"]).state == "inactive", "the old key at rest")
    assert (await world.ask("GET", "/v1/var/v3", world.root)).json["Items"] == {"k": "3"}
    assert (await world.ask("DELETE", f"/v1/operator/keyring/key/{old['KeyID']}", world.root)).status == 200
    active = await world.ask("DELETE", f"/v1/operator/keyring/key/{made['KeyID']}", world.root)
    assert (active.status, "active root key" in active.text) == (400, True)
    assert (await world.ask("DELETE", "/v1/operator/keyring/key/x?force=maybe", world.root)).status == 422
    assert [key["kid"] for key in (await world.ask("GET", "/.well-known/jwks.json")).json["keys"]] == [made["KeyID"]]


async def test_a_prepublished_key_is_shown_before_it_signs(world: AclWorld) -> None:
    await world.ask("PUT", "/v1/var/a", world.root, {"Items": {"k": "v"}})
    soon = time.time_ns() + 400_000_000
    made = (await world.ask("PUT", f"/v1/operator/keyring/rotate?publish_time={soon}", world.root)).json["Key"]
    assert made["State"] == "prepublished"
    kids = [key["kid"] for key in (await world.ask("GET", "/.well-known/jwks.json")).json["keys"]]
    assert made["KeyID"] in kids
    care = KeyringCare(
        world.cluster.server.replica, world.cluster.writer, world.keyring, SystemClock(), AclSettings(enabled=True)
    )
    await asyncio.sleep(0.45)
    await care.look()
    assert world.snapshot.root_key(made["KeyID"]).state == "active"


async def test_variables_are_read_after_a_restart_only_with_the_key_file(tmp_path: Path) -> None:
    store = MemoryStore(SystemClock())
    ring = {"keyring_directory": str(tmp_path / "keyring")}
    async with acl_world(store, **ring) as world:
        root = world.root
        await world.ask("PUT", "/v1/var/a", root, {"Items": {"k": "v"}})
    file = tmp_path / "keyring" / NAME
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700

    async def read(directory: Path) -> Any:
        settings = ServerSettings(acl=AclSettings(enabled=True, keyring_directory=str(directory)))
        async with cluster(store, settings) as again:
            return (await again.caller.call(m.VARIABLE_GET, r.ReadRequest(id="a", auth_token=root))).value

    assert (await read(tmp_path / "keyring")).items == {"k": "v"}
    with pytest.raises(LepaError, match=r"copy keyring/root\.key from a server"):
        await read(tmp_path / "other")
    await store.close()


def test_servers_that_share_a_gossip_key_make_the_same_key(tmp_path: Path) -> None:
    one, two = load_or_make(tmp_path / "1", "shared"), load_or_make(tmp_path / "2", "shared")
    assert one.key == two.key
    assert load_or_make(tmp_path / "3").key != load_or_make(tmp_path / "4").key
    assert load_or_make(tmp_path / "1", "another").key == one.key
    assert len({one.id, one.server_token, one.guest_token}) == 3
    (tmp_path / "1" / NAME).write_text("broken")
    with pytest.raises(LepaError, match="does not hold a key"):
        load_or_make(tmp_path / "1")


async def test_only_servers_may_hand_in_plans(world: AclWorld) -> None:
    """What servers ask of each other shows what only they can know."""

    class Seen:
        async def ask(self, address: str, method: Any, request: Any, timeout_s: float) -> Any:
            return request

    token = world.cluster.server.server_token
    shown: Any = await Introduced(Seen(), token).ask("x", m.SERVER_PULSE, m.SERVER_PULSE.request(), 1.0)  # type: ignore[arg-type]
    assert shown.auth_token == token
    other: Any = await Introduced(Seen(), token).ask("x", m.JOB_LIST, r.JobListRequest(auth_token="u"), 1.0)  # type: ignore[arg-type]
    assert other.auth_token == "u"
    for secret in ("", world.root):
        with pytest.raises(LepaError) as refused:
            await world.caller.call(m.SERVER_PULSE, m.SERVER_PULSE.request(auth_token=secret))
        assert refused.value.code == "denied"
    assert (await world.caller.call(m.SERVER_PULSE, m.SERVER_PULSE.request(auth_token=token))).value is not None


# Identities


NODE = "n-1"


async def placed(world: AclWorld, identity: WorkloadIdentity, job_id: str = "web", **fields: Any) -> Any:
    """An allocation of a job whose task "server" has an identity, on a node that is registered."""
    named = {"identity": identity} if identity.name == "default" else {"identities": (identity,)}
    task = make_task("server", **named)
    job = make_job(job_id, groups=(make_group("front", tasks=(task,)),), **fields)
    node = replace(make_node(NODE), secret_id=f"secret-{NODE}")
    await world.caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=node))
    await world.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job, auth_token=world.root))
    stored = world.snapshot.job("default", job_id)
    alloc = make_alloc(f"alloc-of-{job_id}", job=stored, node_id=NODE, client_status="running")
    await world.cluster.writer.write(lambda draft: draft.put_allocation(alloc))
    return alloc


async def signed(world: AclWorld, alloc: Any, **fields: Any) -> a.SignedIdentity:
    wanted = a.IdentityWanted(**{"alloc_id": alloc.id, "task": "server", "identity": "default"} | fields)
    request = a.SignIdentitiesRequest(node_id=NODE, secret_id=f"secret-{NODE}", wanted=(wanted,))
    return (await world.caller.call(m.IDENTITY_SIGN, request)).value[0]


DEFAULT = WorkloadIdentity(name="default", audience=("nomadproject.io",))
BRIEF = WorkloadIdentity(name="brief", audience=("nomadproject.io",), ttl=HOUR)


async def test_an_identity_says_whose_it_is(world: AclWorld) -> None:
    alloc = await placed(world, BRIEF)
    found = await signed(world, alloc, identity="brief")
    published = jwt.PyJWKSet.from_dict((await world.ask("GET", "/.well-known/jwks.json")).json)
    kid = jwt.get_unverified_header(found.jwt)["kid"]
    claims = jwt.decode(found.jwt, published[kid].key, ["RS256"], audience="nomadproject.io")
    assert claims["sub"] == "global:default:web:front:server:brief"
    assert claims["exp"] - claims["iat"] == 3600
    named = {key: value for key, value in claims.items() if key.startswith("nomad_")}
    assert named == {
        "nomad_namespace": "default",
        "nomad_job_id": "web",
        "nomad_allocation_id": alloc.id,
        "nomad_task": "server",
    }


async def test_an_identity_opens_its_own_paths_until_the_allocation_ends(world: AclWorld) -> None:
    """B233, B235, B255."""
    alloc = await placed(world, DEFAULT)
    token = (await signed(world, alloc)).jwt
    for path in ("nomad/jobs/web", "nomad/jobs/web/front/server", "nomad/jobs/other", "app/db"):
        await world.ask("PUT", f"/v1/var/{path}", world.root, {"Items": {"k": path}})
    assert (await world.ask("GET", "/v1/var/nomad/jobs/web", token)).json["Items"] == {"k": "nomad/jobs/web"}
    listed = (await world.ask("GET", "/v1/vars?prefix=nomad/jobs", token)).json
    assert [one["Path"] for one in listed] == ["nomad/jobs/web", "nomad/jobs/web/front/server"]
    for path in ("var/nomad/jobs/other", "var/app/db", "jobs", "acl/tokens", "node/n-1", "allocations"):
        assert (await world.ask("GET", f"/v1/{path}", token)).status == 403, path
    assert (await world.ask("PUT", "/v1/var/nomad/jobs/web", token, {"Items": {"k": "v"}})).status == 403
    assert (await world.ask("GET", "/v1/services", token)).status == 200
    await world.policy("for-web", ALL_VARIABLES, job_acl=JobAcl(job_id="web", group="front"))
    await world.policy("for-others", READ_ALL, job_acl=JobAcl(job_id="we"))
    assert (await world.ask("GET", "/v1/var/app/db", token)).status == 200
    assert (await world.ask("GET", "/v1/jobs", token)).status == 403
    assert [one["Name"] for one in (await world.ask("GET", "/v1/acl/policies", token)).json] == ["for-web"]
    assert (await world.ask("GET", "/v1/acl/policy/for-web", token)).json["Name"] == "for-web"
    assert (await world.ask("GET", "/v1/acl/policy/for-others", token)).status == 403
    ended = replace(alloc, client_status="complete")
    await world.cluster.writer.write(
        lambda draft: draft.put_allocation(
            replace(ended, create_index=draft.snapshot.allocation(alloc.id).create_index)
        )
    )
    after = await world.ask("GET", "/v1/var/nomad/jobs/web", token)
    assert (after.status, "not running any more" in after.text) == (403, True)
    assert (await signed(world, alloc)).error == "the allocation has ended"


async def test_false_identities_are_refused(world: AclWorld) -> None:
    alloc = await placed(world, BRIEF)
    token = (await signed(world, alloc, identity="brief")).jwt
    head, body, signature = token.split(".")
    claims = jwt.decode(token, options={"verify_signature": False})
    kid = jwt.get_unverified_header(token)["kid"]
    keyring = world.keyring
    key = keyring.open(world.snapshot, kid).signing
    public = world.snapshot.root_key(kid).public
    now = int(time.time())

    def forged(changes: dict[str, Any], **header: Any) -> str:
        return jwt.encode(claims | changes, key, "RS256", {"kid": kid} | header)

    none_head = base64.urlsafe_b64encode(json.dumps({"alg": "none", "kid": kid}).encode()).rstrip(b"=").decode()
    confused_head = base64.urlsafe_b64encode(json.dumps({"alg": "HS256", "kid": kid}).encode()).rstrip(b"=").decode()
    confused = (
        base64.urlsafe_b64encode(hmac.new(public.encode(), f"{confused_head}.{body}".encode(), hashlib.sha256).digest())
        .rstrip(b"=")
        .decode()
    )
    stranger = Provider().key
    bad = {
        "alg none": f"{none_head}.{body}.",
        "key confusion": f"{confused_head}.{body}.{confused}",
        "foreign key": jwt.encode(claims, stranger, "RS256", {"kid": kid}),
        "foreign kid": jwt.encode(claims, stranger, "RS256", {"kid": "other"}),
        "changed": f"{head}.{body[:-4]}AAAA.{signature}",
        "expired": forged({"exp": now - 60}),
        "not yet": forged({"nbf": now + 60}),
        "wrong audience": forged({"aud": "vault"}),
        "no audience": forged({"aud": []}),
        "guessed allocation": forged({"nomad_allocation_id": "ghost"}),
    }
    assert (await world.ask("GET", "/v1/services", token)).status == 200
    for name, shown in bad.items():
        assert (await world.ask("GET", "/v1/services", shown)).status == 403, name


async def test_identities_are_given_to_the_node_of_the_allocation_alone(world: AclWorld) -> None:
    alloc = await placed(world, DEFAULT)
    wanted = a.IdentityWanted(alloc_id=alloc.id, task="server", identity="default")
    with pytest.raises(LepaError, match="secret ID does not match"):
        await world.caller.call(m.IDENTITY_SIGN, a.SignIdentitiesRequest(node_id=NODE, secret_id="x", wanted=(wanted,)))
    node = replace(make_node("n-2"), secret_id="secret-n-2")
    await world.caller.call(m.NODE_REGISTER, r.NodeRegisterRequest(node=node))
    request = a.SignIdentitiesRequest(node_id="n-2", secret_id="secret-n-2", wanted=(wanted,))
    assert "no allocation" in (await world.caller.call(m.IDENTITY_SIGN, request)).value[0].error
    assert "has no identity" in (await signed(world, alloc, identity="vault")).error
    shown = await world.ask("GET", f"/v1/allocation/{alloc.id}", world.root)
    token = (await signed(world, alloc)).jwt
    assert token not in (await world.ask("GET", f"/v1/allocation/{alloc.id}", world.root)).text
    assert "eyJ" not in shown.text


async def test_a_child_is_known_by_its_parent(world: AclWorld) -> None:
    alloc = await placed(world, DEFAULT, "sweep/periodic-1")
    job = replace(world.snapshot.job("default", "sweep/periodic-1"), parent_id="sweep")
    write = lambda draft: draft.overwrite(keys.job_version_key("default", job.id, job.version), job)  # noqa: E731
    await world.cluster.writer.write(write)
    claims = jwt.decode((await signed(world, alloc)).jwt, options={"verify_signature": False})
    assert claims["nomad_job_id"] == "sweep"


async def test_an_issuer_can_be_discovered() -> None:
    async with acl_world(oidc_issuer="https://lepa.example.org/") as world:
        found = (await world.ask("GET", "/.well-known/openid-configuration")).json
        assert found["jwks_uri"] == "https://lepa.example.org/.well-known/jwks.json"
        answer = await world.ask("GET", "/.well-known/jwks.json")
        assert int(answer.headers["Cache-Control"].removeprefix("max-age=")) >= 900
        alloc = await placed(world, DEFAULT)
        claims = jwt.decode((await signed(world, alloc)).jwt, options={"verify_signature": False})
        assert claims["iss"] == "https://lepa.example.org/"


# Logins


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with Provider() as made:
        yield made


async def bind(world: AclWorld, provider: Provider, kind: str, **config: Any) -> None:
    """An auth method with a rule that gives developers the policy "reads"."""
    await world.policy("reads", READ_ALL)
    usual = {"BoundAudiences": [CLIENT], "ListClaimMappings": {"groups": "groups"}, "ClaimMappings": {"email": "email"}}
    method = {
        "Name": "corp",
        "Type": kind,
        "TokenLocality": "global",
        "MaxTokenTTL": "1h",
        "TokenNameFormat": "${auth_method_name}-${value.email}",
        "Config": usual | config,
    }
    made = await world.ask("PUT", "/v1/acl/auth-method", world.root, method)
    assert made.status == 200, made.text
    rule = {"AuthMethod": "corp", "BindType": "policy", "BindName": "reads", "Selector": '"dev" in list.groups'}
    assert (await world.ask("PUT", "/v1/acl/binding-rule", world.root, rule)).status == 200


async def test_a_jwt_logs_in_as_the_binding_rules_say(world: AclWorld, provider: Provider) -> None:
    await bind(world, provider, "JWT", JWKSURL=f"{provider.issuer}/keys", BoundIssuer=[provider.issuer])

    async def login(token: str) -> Any:
        return await world.ask("PUT", "/v1/acl/login", "", {"AuthMethodName": "corp", "LoginToken": token})

    made = await login(provider.sign(email="ada@example.org"))
    assert (made.json["Policies"], made.json["ExpirationTTL"], made.json["Name"]) == (
        ["reads"], "1h0m0s", "corp-ada@example.org",
    )  # fmt: skip
    assert (await world.ask("GET", "/v1/jobs", made.json["SecretID"])).status == 200
    now = int(time.time())
    for bad in (
        provider.sign(aud="other"),
        provider.sign(iss="other"),
        provider.sign(exp=now - 300),
        provider.sign(nbf=now + 300),
        provider.sign(groups=["sales"]),
        jwt.encode({"iss": provider.issuer, "aud": CLIENT, "groups": ["dev"], "exp": now + 9}, Provider().key, "RS256"),
        jwt.encode({"iss": provider.issuer, "aud": CLIENT, "groups": ["dev"], "exp": now + 9}, "guess" * 8, "HS256"),
        "garbage",
    ):
        assert (await login(bad)).status == 403


async def test_keys_in_the_method_itself_are_enough(world: AclWorld, provider: Provider) -> None:
    pem = provider.key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    await bind(world, provider, "JWT", JWTValidationPubKeys=[pem.decode()])
    made = await world.ask("PUT", "/v1/acl/login", "", {"AuthMethodName": "corp", "LoginToken": provider.sign()})
    assert made.status == 200


@pytest.mark.parametrize("pkce", [False, True])
async def test_a_person_logs_in_with_a_provider(world: AclWorld, provider: Provider, pkce: bool) -> None:
    redirect = "http://127.0.0.1:4649/oidc/callback"
    await bind(
        world, provider, "OIDC", OIDCDiscoveryURL=provider.issuer, OIDCClientID=CLIENT, OIDCClientSecret=SECRET,
        AllowedRedirectURIs=["http://127.0.0.1:9/oidc/callback"], OIDCEnablePKCE=pkce,
    )  # fmt: skip
    begin = {"AuthMethodName": "corp", "RedirectURI": redirect, "ClientNonce": "nonce-1"}
    url = (await world.ask("PUT", "/v1/acl/oidc/auth-url", "", begin)).json["AuthURL"]
    assert ("code_challenge=" in url) is pkce
    finish = {**begin, **{key.capitalize(): value for key, value in provider.log_in(url).items()}}
    forged = await world.ask("PUT", "/v1/acl/oidc/complete-auth", "", finish | {"State": "x"})
    assert forged.status == 403
    again = (await world.ask("PUT", "/v1/acl/oidc/auth-url", "", begin)).json["AuthURL"]
    finish = {**begin, **{key.capitalize(): value for key, value in provider.log_in(again).items()}}
    made = await world.ask("PUT", "/v1/acl/oidc/complete-auth", "", finish)
    assert (made.status, made.json.get("Name")) == (200, "corp-ada@example.org"), made.text
    assert (await world.ask("PUT", "/v1/acl/oidc/complete-auth", "", finish)).status == 403
    elsewhere = begin | {"RedirectURI": "http://evil.example.org/oidc/callback"}
    assert (await world.ask("PUT", "/v1/acl/oidc/auth-url", "", elsewhere)).status == 400


async def test_what_the_provider_says_of_somebody_else_does_not_count(world: AclWorld, provider: Provider) -> None:
    await bind(
        world, provider, "OIDC", OIDCDiscoveryURL=provider.issuer, OIDCClientID=CLIENT, OIDCClientSecret=SECRET,
        AllowedRedirectURIs=["http://127.0.0.1:4649/oidc/callback"],
    )  # fmt: skip
    provider.about = {"sub": "eve", "groups": ["dev"]}
    begin = {"AuthMethodName": "corp", "RedirectURI": "http://127.0.0.1:4649/oidc/callback", "ClientNonce": "n"}
    url = (await world.ask("PUT", "/v1/acl/oidc/auth-url", "", begin)).json["AuthURL"]
    finish = {**begin, **{key.capitalize(): value for key, value in provider.log_in(url).items()}}
    assert (await world.ask("PUT", "/v1/acl/oidc/complete-auth", "", finish)).status == 403


async def test_a_client_secret_is_never_shown(world: AclWorld, provider: Provider) -> None:
    """B238, CVE-2025-1296."""
    index = world.snapshot.index
    await bind(
        world, provider, "OIDC", OIDCDiscoveryURL=provider.issuer, OIDCClientID=CLIENT, OIDCClientSecret=SECRET,
        AllowedRedirectURIs=["http://127.0.0.1:4649/oidc/callback"],
    )  # fmt: skip
    shown = [
        (await world.ask("GET", path, world.root)).text
        for path in ("/v1/acl/auth-method/corp", "/v1/acl/auth-methods", "/v1/acl/binding-rules", "/v1/agent/self")
    ]
    request = r.EventStreamRequest(namespace="*", index=index, auth_token=world.root)
    stream = world.caller.stream(m.EVENT_STREAM, request)
    batches = []
    while not any(event.topic == "ACLBindingRule" for batch in batches for event in batch.events):
        async with asyncio.timeout(10):
            batches.append(await anext(stream))
    assert any(event.topic == "ACLAuthMethod" for batch in batches for event in batch.events)
    assert SECRET not in "".join(shown) + repr(batches)
    update = {"Name": "corp", "MaxTokenTTL": "2h"}
    assert (await world.ask("PUT", "/v1/acl/auth-method/corp", world.root, update)).json["MaxTokenTTL"] == "2h0m0s"
    assert world.snapshot.auth_method("corp").config.oidc_client_secret == SECRET


@pytest.mark.parametrize(
    "config",
    [
        {"Type": "JWT", "Config": {}},
        {"Type": "JWT", "Config": {"JWKSURL": "file:///etc/passwd"}},
        {"Type": "JWT", "Config": {"JWTValidationPubKeys": ["no key"]}},
        {"Type": "JWT", "Config": {"JWKSURL": "http://x", "SigningAlgs": ["HS256"]}},
        {"Type": "JWT", "Config": {"JWKSURL": "http://x", "SigningAlgs": ["none"]}},
        {"Type": "OIDC", "Config": {"OIDCDiscoveryURL": "http://x"}},
        {"Type": "JWT", "Config": {"JWKSURL": "http://x"}, "MaxTokenTTL": "soon"},
    ],
)
async def test_auth_methods_that_cannot_work_are_refused(world: AclWorld, config: dict[str, Any]) -> None:
    method = {"Name": "m", "TokenLocality": "local", "MaxTokenTTL": "1h", **config}
    assert (await world.ask("PUT", "/v1/acl/auth-method", world.root, method)).status == 400


async def test_policies_are_written_read_and_removed(world: AclWorld) -> None:
    body = {"Name": "P1", "Description": "d", "Rules": READ_ALL, "JobACL": {"JobID": "web"}}
    assert (await world.ask("PUT", "/v1/acl/policy/P1", world.root, body)).status == 200
    found = (await world.ask("GET", "/v1/acl/policy/P1", world.root)).json
    assert (found["Rules"], found["JobACL"]["JobID"], found["JobACL"]["Namespace"]) == (READ_ALL, "web", "default")
    assert (await world.ask("GET", "/v1/acl/policy/self", world.root)).json == []
    assert (await world.ask("DELETE", "/v1/acl/policy/P1", world.root)).status == 200
    assert (await world.ask("GET", "/v1/acl/policy/P1", world.root)).status == 404
    assert (await world.ask("GET", "/v1/acl/role/name/Ghost", world.root)).status == 404


async def test_auth_methods_and_rules_are_written_read_and_removed(world: AclWorld) -> None:
    method = {"Name": "M1", "Type": "JWT", "TokenLocality": "local", "MaxTokenTTL": 3_600_000_000_000}
    config = {"JWKSURL": "https://keys.example.org", "ExpirationLeeway": "30s"}
    made = await world.ask("PUT", "/v1/acl/auth-method", world.root, {**method, "Config": config})
    assert (made.json["MaxTokenTTL"], made.json["Config"]["ExpirationLeeway"]) == ("1h0m0s", "30s")
    changed = await world.ask("PUT", "/v1/acl/auth-method/M1", world.root, {"Name": "M1", "TokenLocality": "global"})
    assert (changed.json["TokenLocality"], changed.json["Type"]) == ("global", "JWT")
    wrong = await world.ask("PUT", "/v1/acl/auth-method/M1", world.root, {"Name": "n"})
    assert (wrong.status, wrong.text) == (400, "ACL auth-method name does not match request path")
    assert (await world.ask("GET", "/v1/acl/auth-method/M1", world.root)).json["Config"]["JWKSURL"] == config["JWKSURL"]
    rule = {"AuthMethod": "M1", "BindType": "management", "Description": "all"}
    rule_id = (await world.ask("PUT", "/v1/acl/binding-rule", world.root, rule)).json["ID"]
    assert (await world.ask("GET", f"/v1/acl/binding-rule/{rule_id}", world.root)).json["Description"] == "all"
    narrowed = rule | {"ID": rule_id, "Selector": 'value.who == "ada"'}
    updated = await world.ask("PUT", f"/v1/acl/binding-rule/{rule_id}", world.root, narrowed)
    assert updated.json["Selector"] == narrowed["Selector"]
    assert (await world.ask("DELETE", f"/v1/acl/binding-rule/{rule_id}", world.root)).status == 200
    gone = await world.ask("GET", f"/v1/acl/binding-rule/{rule_id}", world.root)
    assert (gone.status, gone.text) == (404, "ACL binding rule not found")
    assert (await world.ask("DELETE", "/v1/acl/auth-method/M1", world.root)).status == 200
    assert (await world.ask("GET", "/v1/acl/auth-method/M1", world.root)).text == "ACL auth-method not found"


async def test_the_id_of_a_lock_is_for_those_who_may_write() -> None:
    async with acl_world() as world:
        lock = {"Path": "a", "Items": {"x": "y"}, "Lock": {"TTL": "20s"}}
        taken = (await world.ask("PUT", "/v1/var/a?lock-acquire", world.root, lock)).json["Lock"]["ID"]
        rules = 'namespace "default" {\n  variables {\n    path "a" {\n      capabilities = [%s]\n    }\n  }\n}\n'
        for capabilities, seen in (('"read", "list"', False), ('"read", "list", "write"', True)):
            token = await world.token(rules % capabilities)
            for path in ("/v1/var/a", "/v1/vars"):
                answer = await world.ask("GET", path, token)
                assert answer.status == 200
                assert '"TTL":"20s"' in answer.text
                assert (taken in answer.text) is seen, path
