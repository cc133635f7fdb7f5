"""Parameters in, headers and bodies out, errors as plain text: lepa.api.request, lepa.api.edge, lepa.api.app."""

import json

import pytest

from lepa.api.request import DECODED_ON_LOOP_MAX, json_body
from lepa.model.errors import LepaError
from lepa.model.job_views import JobListStub
from lepa.rpc.requests import WAIT_MAX_NS, Reply


async def test_common_parameters_reach_the_call(http, parts) -> None:
    query = (
        "namespace=n&region=global&prefix=p&index=7&wait=10s&stale&per_page=3&next_token=t&filter=F&reverse=true&meta=1"
    )
    await http.get(f"/v1/jobs?{query}", headers={"X-Nomad-Token": "secret"})
    asked = parts.caller.last()
    assert (asked.namespace, asked.region, asked.prefix, asked.index, asked.wait_ns) == (
        "n",
        "global",
        "p",
        7,
        10_000_000_000,
    )
    assert (asked.stale, asked.per_page, asked.next_token, asked.filter, asked.reverse) == (True, 3, "t", "F", True)
    assert (asked.meta, asked.auth_token) == (True, "secret")


async def test_a_bearer_is_a_token_too(http, parts) -> None:
    await http.get("/v1/jobs", headers={"Authorization": "bearer  abc rest"})
    assert parts.caller.last().auth_token == "abc"


async def test_waits_are_clamped(http, parts) -> None:
    await http.get("/v1/jobs?wait=1h")
    assert parts.caller.last().wait_ns == WAIT_MAX_NS


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("index=x", "Invalid index"),
        ("index=-1", "Invalid index"),
        ("index=9223372036854775808", "Invalid index"),
        ("wait=soon", "Invalid wait time"),
        ("stale=maybe", "Expect `true` or `false` for `stale` query string parameter"),
        ("per_page=x", "Expect a number for `per_page` query string parameter"),
        ("reverse=x", 'Failed to parse value of "reverse" ("x") as a bool: expected true or false'),
    ],
)
async def test_bad_parameters_are_told_as_plain_text(http, query: str, text: str) -> None:
    answer = await http.get(f"/v1/jobs?{query}")
    assert (answer.status, await answer.text(), answer.content_type) == (400, text, "text/plain")


async def test_there_is_no_path_to_another_region(http) -> None:
    for path in ("/v1/jobs?region=mars", "/v1/agent/self?region=mars"):
        answer = await http.get(path)
        assert (answer.status, await answer.text()) == (500, "No path to region")
    answer = await http.put("/v1/jobs", json={"Job": {"ID": "a", "Region": "mars"}})
    assert (answer.status, await answer.text()) == (500, "No path to region")


async def test_numbers_of_more_than_64_bits_are_refused(http) -> None:
    answer = await http.put("/v1/jobs", json={"Job": {"ID": "a", "Meta": [2**63]}})
    assert (answer.status, await answer.text()) == (
        400,
        "request body holds the number 9223372036854775808, which does not fit into 64 bits",
    )


async def test_an_answer_says_how_fresh_it_is(http, parts) -> None:
    parts.caller.answers["Job.List"] = Reply(
        value=(JobListStub(id="<web>"),), index=9, known_leader=False, last_contact_ms=4, next_token="n"
    )
    answer = await http.get("/v1/jobs")
    assert answer.headers["X-Nomad-Index"] == "9"
    assert answer.headers["X-Nomad-KnownLeader"] == "false"
    assert answer.headers["X-Nomad-LastContact"] == "4"
    assert answer.headers["X-Nomad-NextToken"] == "n"
    assert answer.content_type == "application/json"
    assert (await answer.json())[0]["ID"] == "<web>"
    assert b"<web>" in await answer.read()


async def test_pretty_is_indented_and_ends_its_line(http, parts) -> None:
    parts.caller.answers["Status.Leader"] = "127.0.0.1:4647"
    assert await (await http.get("/v1/status/leader")).read() == b'"127.0.0.1:4647"'
    parts.caller.answers["Status.Peers"] = ("a",)
    assert await (await http.get("/v1/status/peers?pretty")).read() == b'[\n    "a"\n]\n'
    assert await (await http.get("/v1/status/peers?pretty=0")).read() == b'["a"]'


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (LepaError("invalid", "m"), 400),
        (LepaError("denied", "m"), 403),
        (LepaError("not_found", "m"), 404),
        (LepaError("conflict", "m"), 409),
        (LepaError("no_leader", "m"), 500),
        (LepaError("unsupported", "m"), 501),
        (LepaError("timeout", "m"), 504),
        (LepaError("invalid", "m", http_status=500), 500),
    ],
)
async def test_errors_keep_their_text_and_get_a_status(http, parts, error: LepaError, status: int) -> None:
    parts.caller.answers["Job.List"] = error
    answer = await http.get("/v1/jobs")
    assert (answer.status, await answer.text()) == (status, "m")


async def test_our_own_fault_is_one_sentence_without_details(http, parts) -> None:
    parts.caller.answers["Job.Get"] = Reply(value=object())
    answer = await http.get("/v1/job/x")
    assert answer.status == 500
    assert "Traceback" not in await answer.text()


async def test_unknown_paths_and_wrong_verbs(http) -> None:
    answer = await http.get("/v1/nonsense")
    assert (answer.status, await answer.read()) == (404, b"")
    answer = await http.delete("/v1/jobs")
    assert (answer.status, await answer.text()) == (405, "Invalid method")
    answer = await http.post("/v1/system/gc")
    assert answer.status == 405


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b'"x"', b"[" * 100_000])
async def test_bodies_that_are_no_json_object_are_refused(http, body: bytes) -> None:
    answer = await http.put("/v1/jobs", data=body)
    assert answer.status == 400
    assert "request body" in (await answer.text()).lower()


async def test_a_huge_body_is_refused(http, monkeypatch) -> None:
    answer = await http.put("/v1/jobs", data=b" " * (17 * 1024 * 1024))
    assert answer.status == 413


async def test_configured_headers_are_on_every_answer(parts, client_of) -> None:
    parts.settings = parts.settings._replace(response_headers=(("X-Frame-Options", "DENY"),))
    http = await client_of(parts)
    assert (await http.get("/v1/jobs")).headers["X-Frame-Options"] == "DENY"
    assert (await http.get("/v1/jobs?index=x")).headers["X-Frame-Options"] == "DENY"


class _Body:
    """A request that is nothing but its body."""

    def __init__(self, raw: bytes) -> None:
        self._raw = raw

    async def read(self) -> bytes:
        return self._raw


LARGE = {"Job": {"Groups": [{"Name": f"g{number}", "Counts": [number, -1.5, None, True]} for number in range(40_000)]}}


@pytest.mark.parametrize("blanks", ["", " \n\t", " " * 300])
async def test_a_large_body_is_decoded_in_parts_to_the_same(blanks: str) -> None:
    raw = (blanks + json.dumps(LARGE)).encode()
    assert len(raw) > DECODED_ON_LOOP_MAX
    assert await json_body(_Body(raw)) == LARGE


@pytest.mark.parametrize(
    ("end", "text"),
    [
        ("]}", "not valid JSON: JSON is malformed"),
        ('], "Count": 9223372036854775808}', "9223372036854775808, which does not fit into 64 bits"),
        (', "' + "[" * 3_000 + '"' + ", " + "[" * 3_000 + "]" * 3_000 + "]}", "nested too deeply"),
    ],
)
async def test_what_is_wrong_with_a_large_body_is_told(end: str, text: str) -> None:
    raw = ('{"Texts": [' + ", ".join(['"text"'] * 150_000) + end).encode()
    raw = raw.replace(b'"text"]}', b'"text",]}')
    with pytest.raises(LepaError, match=text):
        await json_body(_Body(raw))


async def test_large_bodies_that_are_not_objects_are_decoded_too() -> None:
    text = "x" * (2 * DECODED_ON_LOOP_MAX)
    assert await json_body(_Body(json.dumps(text).encode())) == text
    assert await json_body(_Body(json.dumps([text]).encode())) == [text]
