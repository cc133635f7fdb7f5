"""No cell of (call) x (caller) x (namespace) is more open than the table of rights says.

Row S3 of the reliability goals. Covers lepa.server.acl.table, lepa.server.acl.guard and lepa.api.doors.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task
from tests.integration.acl_world import AclWorld, acl_world, with_token
from tests.integration.server_cluster import FakeNode

from lepa.api import app, jobs, keyring
from lepa.api.doors import DOORS as ROUTE_DOORS
from lepa.api.doors import door_of
from lepa.api.jobs import JOB_FILE_MAX
from lepa.kit.durations import MINUTE, SECOND, rfc3339
from lepa.kit.sources import SystemClock
from lepa.model.errors import LepaError
from lepa.model.job import JobDependency, VolumeRequest
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import AuthorizeRequest
from lepa.rpc.methods import METHODS
from lepa.server.acl.rules import _CAPABILITIES, NAMESPACE_CAPABILITIES
from lepa.server.acl.table import DOORS, NEEDS, Need, need_of
from lepa.state import keys

UNKNOWN = "99999999-9999-4999-8999-999999999999"
GARBAGE = ("no-uuid", UNKNOWN, "a.b.c", "eyJhbGciOiJub25lIn0.e30.", "x" * 20_000, "Bearer")
SCOPES = ("agent", "node", "operator", "quota", "plugin")
ALLOC = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
async def world() -> AsyncIterator[AclWorld]:
    async with acl_world() as made:
        await made.namespace("other")
        yield made


def namespace_rule(namespace: str, capabilities: list[str]) -> str:
    listed = ", ".join(f'"{one}"' for one in capabilities)
    return f'namespace "{namespace}" {{\n  capabilities = [{listed}]\n}}\n'


FINE = sorted(NAMESPACE_CAPABILITIES - {"deny"})
EVERYTHING_ELSEWHERE = namespace_rule("other", FINE) + (
    'namespace "other" {\n  variables {\n    path "*" {\n      capabilities = ["list", "read", "write", "destroy"]\n'
    "    }\n  }\n}\n"
)


async def callers(world: AclWorld) -> dict[str, tuple[str, frozenset[tuple[str, str]]]]:
    """Tokens by name, with the single rights that each has: (namespace or scope, capability)."""
    found: dict[str, tuple[str, frozenset[tuple[str, str]]]] = {}
    for capability in FINE:
        secret = await world.token(namespace_rule("default", [capability]), f"here-{capability}")
        found[f"default {capability}"] = (secret, frozenset({("default", capability)}))
    secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere")
    found["everything in another namespace"] = (secret, frozenset(("other", one) for one in FINE))
    for scope in SCOPES:
        for level, granted in (("read", {"read"}), ("write", {"read", "write"})):
            if scope == "plugin" and level == "write":
                continue
            secret = await world.token(f'{scope} {{\n  policy = "{level}"\n}}', f"{scope}-{level}")
            rights = {(scope, one) for one in granted}
            if scope == "operator":
                rights |= {("operator", "keyring-read")}
                rights |= (
                    {("operator", one) for one in _CAPABILITIES["operator"] - {"deny"}} if level == "write" else set()
                )
            if scope == "plugin":
                rights |= {("plugin", "list")}
            found[f"{scope} {level}"] = (secret, frozenset(rights))
    return found


def expected(need: Need, rights: frozenset[tuple[str, str]], namespaces: set[str]) -> bool:
    """What a need allows somebody with these rights; `also` is looked at apart."""
    if need.kind in ("anyone", "own", "secret"):
        return True
    if need.kind == "somebody":
        return True
    if need.kind in ("namespace", "list"):
        return all(any((namespace, one) in rights for one in need.any_of) for namespace in namespaces)
    if need.kind == "scope":
        scope, *any_of = need.any_of
        return any((scope, one) in rights for one in any_of)
    return False


def request_of(name: str, namespace: str) -> Any:
    """A request of a call that is about a namespace, said wherever the request can say it."""
    if name in DOORS:
        return AuthorizeRequest(door=name, namespace=namespace)
    made = METHODS[name].request(namespace=namespace)
    if "job" in made.__struct_fields__ and METHODS[name].request in (r.JobRegisterRequest, r.JobPlanRequest):
        return replace(made, job=make_job("x", namespace=namespace), namespace="")
    if "service" in made.__struct_fields__ and hasattr(made.service, "namespace"):
        return replace(made, service=replace(made.service, namespace=namespace), namespace="")
    return made


def allowed(world: AclWorld, name: str, request: Any) -> bool:
    try:
        world.guard.admit(need_of(name), request)
    except LepaError as error:
        return error.code != "denied"
    return True


def test_every_call_has_a_row() -> None:
    assert set(METHODS) - set(NEEDS) == set()
    assert set(NEEDS) - set(METHODS) - set(DOORS) == set()
    assert {door for door in ROUTE_DOORS.values() if door} <= set(DOORS)


def test_a_call_that_the_table_does_not_know_is_for_management() -> None:
    assert need_of("Something.New").kind == "management"


async def test_single_rights_open_what_the_table_says_and_nothing_else(world: AclWorld) -> None:
    people = await callers(world)
    wrong, cells = [], 0
    for name, need in NEEDS.items():
        for namespace in ("default", "other"):
            request = request_of(name, namespace)
            concerned = set(need.concerned(world.snapshot, request))
            for who, (secret, rights) in people.items():
                cells += 1
                found = allowed(world, name, with_token(request, secret))
                wanted = expected(need, rights, concerned)
                if found and not wanted:
                    wrong.append(f"{who} may {name} in {namespace}")
                if wanted and not found and need.also is None:
                    wrong.append(f"{who} may not {name} in {namespace}")
    assert wrong == []
    assert cells > 15_000


async def test_whoever_is_not_known_gets_nothing(world: AclWorld) -> None:
    secret = await world.token('namespace "*" {\n  policy = "write"\n}', "soon-over", expiration_ttl=2 * MINUTE)
    token = world.snapshot.token_by_secret(secret)
    over = replace(token, expiration_time=rfc3339(SystemClock().now_ns() - SECOND))
    write = lambda draft: draft.overwrite(keys.acl_key("tokens", token.accessor_id), over)  # noqa: E731
    await world.cluster.writer.write(write)
    for name, need in NEEDS.items():
        for shown in (*GARBAGE, secret):
            request = with_token(request_of(name, "default"), shown)
            assert not allowed(world, name, request), f"{shown[:40]!r} may {name}"
        if need.kind not in ("anyone", "own", "secret"):
            request = request_of(name, "default")
            if need.kind == "list" and need.any_of:
                request = replace(request, namespace="default")
            if need.concerned(world.snapshot, request) or need.kind in (
                "scope",
                "management",
                "somebody",
                "pool",
                "server",
            ):
                assert not allowed(world, name, request), f"without a token {name} is open"


async def test_management_may_everything_but_be_a_server(world: AclWorld) -> None:
    closed = {name for name in NEEDS if not allowed(world, name, with_token(request_of(name, "default"), world.root))}
    assert closed == {name for name, need in NEEDS.items() if need.kind == "server"}


async def test_a_body_does_not_reach_into_another_namespace(world: AclWorld) -> None:
    """B242, CVE-2024-10975: a token for `other` cannot write into `default` by what the body says."""
    secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere")
    job = {"ID": "x", "Namespace": "default", "Type": "batch", "TaskGroups": []}
    for verb, path, body in (
        ("PUT", "/v1/jobs", {"Job": job}),
        ("PUT", "/v1/jobs", {"Job": job, "Namespace": "default"}),
        ("PUT", "/v1/job/x/plan", {"Job": job}),
        ("PUT", "/v1/validate/job", {"Job": job}),
        ("PUT", "/v1/job/x/evaluate", {"JobID": "x", "Namespace": "default"}),
        ("PUT", "/v1/job/x/revert", {"JobID": "x", "JobVersion": 0, "Namespace": "default"}),
        ("PUT", "/v1/job/x/scale", {"Count": 3, "Target": {"Group": "g"}, "Namespace": "default"}),
        ("PUT", "/v1/job/x/dispatch", {"Namespace": "default"}),
        ("PUT", "/v1/var/a?namespace=other", {"Namespace": "default", "Items": {"k": "v"}}),
        ("PUT", "/v1/service/web/1?namespace=other", {"Namespace": "default", "Address": "10.0.0.1", "Port": 1}),
        (
            "PUT",
            "/v1/search?namespace=other",
            {"Prefix": "", "Context": "jobs", "Namespace": "default", "AuthToken": "x"},
        ),
    ):
        answer = await world.ask(verb, path, secret, body)
        if path.startswith("/v1/search"):
            assert answer.json["Matches"]["jobs"] == []
        else:
            assert (answer.status, answer.text) == (403, "Permission denied"), f"{verb} {path}: {answer.text}"


OPEN_ROUTES = {
    "GET agent/health", "GET metrics", "GET regions", "GET status/leader", "GET status/peers", "GET acl/auth-methods",
    "GET .well-known/jwks.json", "GET .well-known/openid-configuration", "PUT acl/bootstrap", "PUT acl/login",
    "PUT acl/oidc/auth-url", "PUT acl/oidc/complete-auth", "PUT acl/token/onetime/exchange", "GET acl/token/self",
}  # fmt: skip
"""What strangers may ask."""

EMPTY_LISTS = {"GET vars", "GET namespaces", "GET node/pools", "GET acl/policies", "GET acl/roles"}
"""What answers strangers with an empty list."""

OF_ONESELF = {"PUT search", "PUT acl/token/onetime", "GET acl/policy/self", "GET acl/token/self"}
"""What everybody with a token may ask about themselves."""

NOTHING_HERE = {"GET openapi.json", "GET operator/license", "GET volumes", "GET plugins", "GET plugin/csi/{id}"}
"""What is the same for everybody, because this server has none."""


def routes() -> list[tuple[str, str]]:
    found = [(verb, route.path) for route in (*app.ROUTES, *keyring.WELL_KNOWN) for verb in route.verbs.split()]
    found = [(verb, path) for verb, path in found if not path.startswith("job/")]
    return found + [(verb, f"job/web/{suffix}".rstrip("/")) for verb, suffix in jobs.OF_ONE_JOB]


def filled(path: str) -> str:
    if path.startswith("."):
        return f"/{path}"
    for name, value in {"{id}": ALLOC, "{name}": "web", "{path:.*}": "a", "{kind}": "cmdline"}.items():
        path = path.replace(name, value)
    while "{" in path:
        path = path[: path.index("{")] + "x" + path[path.index("}") + 1 :]
    return f"/v1/{path}"


@pytest.mark.parametrize("shown", ["", UNKNOWN, "elsewhere"])
async def test_no_route_is_open_to_strangers(world: AclWorld, shown: str) -> None:
    """Every route of the HTTP edge: without a token, with one that is none, with one for another namespace."""
    secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere") if shown == "elsewhere" else shown
    opened = []
    for verb, path in routes():
        name = f"{'PUT' if verb == 'POST' else verb} {path}"
        if path == "event/stream" or path == "agent/monitor" or name in OPEN_ROUTES | NOTHING_HERE:
            continue
        answer = await world.ask(verb, filled(path), secret, None if verb in ("GET", "DELETE") else {})
        fine = EMPTY_LISTS | OF_ONESELF if shown == "elsewhere" else set()
        empty = name in EMPTY_LISTS and answer.text == "[]"
        if answer.status < 300 and not empty and name not in fine:
            opened.append(f"{name}: {answer.status} {answer.text[:80]}")
    assert opened == []


async def test_a_job_file_is_not_worked_out_for_strangers_and_a_huge_one_for_nobody(world: AclWorld) -> None:
    """B236, CVE-2022-24685."""
    nested, huge = ('job "x" {\n' + 'a "b" {\n' * depth + "}\n" * (depth + 1) for depth in (100_000, 500_000))
    assert len(nested) < JOB_FILE_MAX < 5_000_000 <= len(huge)
    for shown in ("", UNKNOWN):
        for text in ('job "x" {}', nested, huge):
            answer = await world.ask("PUT", "/v1/jobs/parse", shown, {"JobHCL": text})
            assert (answer.status, answer.text) == (403, "Permission denied" if not shown else "ACL token not found")
    started = time.process_time()
    for text, told in ((nested, "Nested too deeply"), (huge, f"at most {JOB_FILE_MAX} are parsed here")):
        async with asyncio.timeout(20):
            answer = await world.ask("PUT", "/v1/jobs/parse", world.root, {"JobHCL": text})
        assert (answer.status, told in answer.text) == (400, True), answer.text[:200]
    assert time.process_time() - started < 10


async def test_streams_are_closed_to_strangers(world: AclWorld) -> None:
    for path in (
        "event/stream",
        "event/stream?topic=Node",
        "event/stream?topic=ACLToken",
        "agent/monitor",
    ):
        for shown in ("", UNKNOWN):
            assert (await world.ask("GET", f"/v1/{path}", shown)).status == 403, path
    secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere")
    for query in ("topic=Job", "topic=Node&namespace=other", "topic=ACLPolicy&namespace=other"):
        assert (await world.ask("GET", f"/v1/event/stream?{query}", secret)).status == 403, query


async def test_a_stream_of_everything_holds_what_the_caller_may_see(world: AclWorld) -> None:
    """B159, B240, CVE-2025-0937. A token that is deleted ends its stream."""
    secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere")
    request = with_token(r.EventStreamRequest(namespace="*", index=world.snapshot.index + 1), secret)
    stream = world.caller.stream(m.EVENT_STREAM, request)
    following = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    async with FakeNode(world.caller, make_node("n-1")):
        for namespace in ("default", "other"):
            register = r.JobRegisterRequest(job=make_job("j", namespace=namespace), auth_token=world.root)
            await world.caller.call(m.JOB_REGISTER, register)
    seen = []
    while len(seen) < 2:
        async with asyncio.timeout(10):
            batch = await following
        following = asyncio.ensure_future(anext(stream))
        seen += [(event.topic, event.namespace) for event in batch.events]
    assert {namespace for _, namespace in seen} == {"other"}
    token = world.snapshot.token_by_secret(secret)
    await world.ask("DELETE", f"/v1/acl/token/{token.accessor_id}", world.root)
    await world.caller.call(m.JOB_REGISTER, replace(register, job=make_job("k", namespace="other")))
    with pytest.raises(LepaError, match="not found"):
        await _end(stream, following)


async def _end(stream: Any, following: Any) -> None:
    async with asyncio.timeout(10):
        while True:
            await following
            following = asyncio.ensure_future(anext(stream))


async def test_lists_of_all_namespaces_hold_what_the_caller_may_see(world: AclWorld) -> None:
    """B146."""
    async with FakeNode(world.caller, make_node("n-1")):
        for namespace in ("default", "other"):
            register = r.JobRegisterRequest(job=make_job(f"in-{namespace}", namespace=namespace), auth_token=world.root)
            await world.caller.call(m.JOB_REGISTER, register)
        secret = await world.token(EVERYTHING_ELSEWHERE, "elsewhere")
        await world.cluster.until(
            lambda: len([one for one in world.snapshot.allocations() if one.namespace == "other"]) > 0, "placed"
        )
        lists = ("jobs", "allocations", "evaluations", "deployments", "jobs/statuses", "scaling/policies", "services")
        for path in lists:
            answer = await world.ask("GET", f"/v1/{path}?namespace=*", secret)
            assert answer.status == 200, path
            assert {one["Namespace"] for one in answer.json} <= {"other"}, path
        named = {"Jobs": [{"Namespace": "default", "ID": "in-default"}, {"Namespace": "other", "ID": "in-other"}]}
        found = await world.ask("PUT", "/v1/jobs/statuses", secret, named)
        assert [one["ID"] for one in found.json] == ["in-other"]
        hidden = next(one for one in world.snapshot.allocations() if one.namespace == "default")
        evaluation = f"evaluation/{hidden.eval_id}"
        for path in (f"allocation/{hidden.id}", evaluation, f"{evaluation}/allocations"):
            assert (await world.ask("GET", f"/v1/{path}?namespace=other", secret)).status == 403, path
        assert (await world.ask("GET", "/v1/node/n-1/allocations", secret)).status == 403
        both = await world.token(EVERYTHING_ELSEWHERE + 'node {\n  policy = "read"\n}', "elsewhere-and-nodes")
        there = await world.ask("GET", "/v1/node/n-1/allocations", both)
        assert {one["Namespace"] for one in there.json} == {"other"}


async def test_a_search_shows_no_context_without_its_right(world: AclWorld) -> None:
    """B232, CVE-2023-3300."""
    secret = await world.token(namespace_rule("other", ["read-job"]), "reads-other")
    found = await world.ask("PUT", "/v1/search?namespace=other", secret, {"Prefix": "", "Context": "all"})
    assert {"nodes", "vars", "scaling_policy"}.isdisjoint(found.json["Matches"])
    assert found.json["Matches"]["namespaces"] == ["other"]
    assert found.json["Matches"]["node_pools"] == []
    fuzzy = await world.ask("PUT", "/v1/search/fuzzy?namespace=*", secret, {"Text": "in-", "Context": "all"})
    scopes = [hit["Scope"] for hits in fuzzy.json["Matches"].values() for hit in hits]
    assert all("default" not in scope for scope in scopes)
    for context in ("nodes", "vars"):
        refused = await world.ask("PUT", "/v1/search?namespace=other", secret, {"Prefix": "", "Context": context})
        assert refused.status == 403


async def test_a_job_that_mounts_a_volume_of_the_host_needs_its_right(world: AclWorld) -> None:
    volume = VolumeRequest(name="v", type="host", source="data")
    job = make_job("mounts", groups=(replace(make_group("g"), volumes={"v": volume}),))
    request = r.JobRegisterRequest(job=job)
    submit = namespace_rule("default", ["submit-job"])
    without = await world.token(submit, "no-volume")
    reading = await world.token(submit + 'host_volume "data" {\n  policy = "read"\n}', "reads-volume")
    writing = await world.token(submit + 'host_volume "data" {\n  policy = "write"\n}', "writes-volume")
    assert not allowed(world, "Job.Register", with_token(request, without))
    assert not allowed(world, "Job.Register", with_token(request, reading))
    assert allowed(world, "Job.Register", with_token(request, writing))


async def test_a_job_that_waits_for_one_of_another_namespace_needs_to_read_there(world: AclWorld) -> None:
    job = replace(make_job("waits"), after=(JobDependency(job="theirs", namespace="other"),))
    own = replace(make_job("waits"), after=(JobDependency(job="mine", namespace="default"), JobDependency(job="mine")))
    submit = namespace_rule("default", ["submit-job"])
    without = await world.token(submit, "submits")
    reading = await world.token(submit + namespace_rule("other", ["read-job"]), "submits-and-reads")
    for name, request in (("Job.Register", r.JobRegisterRequest), ("Job.Plan", r.JobPlanRequest)):
        assert not allowed(world, name, with_token(request(job=job), without))
        assert allowed(world, name, with_token(request(job=job), reading))
        assert allowed(world, name, with_token(request(job=own), without))


async def test_a_command_in_a_task_that_nothing_isolates_needs_more(world: AclWorld) -> None:
    one = await world.token(namespace_rule("default", ["alloc-exec"]), "execs")
    two = await world.token(namespace_rule("default", ["alloc-exec", "alloc-node-exec"]), "execs-on-nodes")
    async with FakeNode(world.caller, make_node("n-1")):
        for driver in ("raw_exec", "mock_driver"):
            job = make_job(f"by-{driver}", groups=(make_group("g", tasks=(make_task("t", driver=driver),)),))
            await world.caller.call(m.JOB_REGISTER, r.JobRegisterRequest(job=job, auth_token=world.root))
    for driver, enough in (("raw_exec", False), ("mock_driver", True)):
        alloc = make_alloc(f"of-{driver}", job=world.snapshot.job("default", f"by-{driver}"))
        await world.cluster.writer.write(lambda draft, alloc=alloc: draft.put_allocation(alloc))
        request = AuthorizeRequest(door="Allocation.Exec", alloc_id=alloc.id, task="t")
        assert allowed(world, "Allocation.Exec", with_token(request, one)) is enough
        assert allowed(world, "Allocation.Exec", with_token(request, two))


def test_doors_are_of_routes_that_there_are() -> None:
    known = {
        f"{'PUT' if verb == 'POST' else verb} {route.path}" for route in app.ROUTES for verb in route.verbs.split()
    }
    assert set(ROUTE_DOORS) - known == set()
    assert door_of("POST", "agent/join") == "Agent.Write"
