"""Keys and sessions over HTTP: what the edge makes of requests."""

from typing import Any

from aiohttp.test_utils import TestClient

from lepa.model.kv import KvEntry, KvOperation, Session
from lepa.rpc.kv_requests import KvApplied

Http = TestClient[Any, Any]


async def test_values_travel_as_base64(parts: Any, http: Http) -> None:
    parts.caller.answers["Kv.Get"] = KvEntry(key="a/b", value=b"hi")
    response = await http.get("/v1/kv/entry", params={"key": "a/b"})
    assert (await response.json())["Value"] == "aGk="
    assert parts.caller.last().id == "a/b"


async def test_a_missing_key_tells_its_index(parts: Any, http: Http) -> None:
    response = await http.get("/v1/kv/entry", params={"key": "a"})
    assert (response.status, response.headers["X-Nomad-Index"]) == (404, "5")


async def test_a_transaction_is_decoded(parts: Any, http: Http) -> None:
    parts.caller.answers["Kv.Apply"] = KvApplied()
    body = {"Operations": [{"Verb": "cas", "Key": "a", "Value": "aGk=", "Index": 3}]}
    response = await http.put("/v1/kv", json=body)
    assert (await response.json())["Applied"] is True
    assert parts.caller.last().operations == (KvOperation(verb="cas", key="a", value=b"hi", index=3),)


async def test_sessions_begin_and_end(parts: Any, http: Http) -> None:
    parts.caller.answers["Session.Create"] = "s1"
    response = await http.put("/v1/session", json={"Name": "me", "TTL": 10_000_000_000})
    assert await response.json() == "s1"
    assert parts.caller.last().session == Session(name="me", ttl=10_000_000_000)
    await http.delete("/v1/session/s1")
    assert parts.caller.requests[-1][0] == "Session.Destroy"
    assert parts.caller.last().id == "s1"
