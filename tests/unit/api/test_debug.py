"""Routes for those who look for a fault."""

import base64
import sys
from pathlib import Path

import msgspec
import pytest

from lepa.api.edge import Settings


async def test_schedulers_are_shown(http) -> None:
    found = await (await http.get("/v1/agent/schedulers")).json()
    assert found["schedulers"][0]["id"] == "worker-0"
    config = await (await http.get("/v1/agent/schedulers/config")).json()
    assert config == {"server_id": "s", "num_schedulers": 1, "enabled_schedulers": ["service"]}


async def test_the_number_of_schedulers_is_a_setting(http) -> None:
    answer = await http.put("/v1/agent/schedulers/config", json={"num_schedulers": 2})
    assert (answer.status, "num_schedulers" in await answer.text()) == (501, True)


async def test_the_log_file_is_read_plain_or_in_frames(http, parts, tmp_path: Path) -> None:
    refused = await http.get("/v1/agent/monitor/export?on_disk=true")
    assert (refused.status, "log_file" in await refused.text()) == (400, True)
    parts.agent.log = tmp_path / "lepa.log"
    parts.agent.log.write_bytes(b"one\ntwo\n")
    assert await (await http.get("/v1/agent/monitor/export?on_disk=true&plain=true")).read() == b"one\ntwo\n"
    frame = msgspec.json.decode(await (await http.get("/v1/agent/monitor/export?on_disk=true")).read())
    assert base64.b64decode(frame["Data"]) == b"one\ntwo\n"
    journal = await http.get("/v1/agent/monitor/export?service_name=nomad")
    assert journal.status == 400


async def test_profiles_need_debugging_to_be_on(http) -> None:
    answer = await http.get("/v1/agent/pprof/profile")
    assert (answer.status, await answer.text()) == (403, "Permission denied")


@pytest.fixture
async def debugged(parts, client_of):
    parts.settings = Settings(debug=True)
    return await client_of(parts)


async def test_a_profile_is_folded_stacks(debugged) -> None:
    lines = (await (await debugged.get("/v1/agent/pprof/profile?seconds=1")).text()).splitlines()
    assert lines
    stack, _, count = lines[0].rpartition(" ")
    assert int(count) >= 1
    assert "MainThread" in {line.partition(";")[0] for line in lines}
    assert ";" in stack


async def test_stacks_and_arguments_are_shown(debugged) -> None:
    stacks = await (await debugged.get("/v1/agent/pprof/goroutine")).text()
    assert stacks.startswith("thread ")
    assert "task " in stacks
    assert (await (await debugged.get("/v1/agent/pprof/cmdline")).text()).split("\0")[0] == sys.argv[0]


async def test_other_profiles_are_not_there_and_long_ones_are_refused(debugged) -> None:
    assert (await debugged.get("/v1/agent/pprof/heap")).status == 404
    assert (await debugged.get("/v1/agent/pprof/profile?seconds=3600")).status == 400
    assert (await debugged.get("/v1/agent/pprof/profile?seconds=x")).status == 400


async def test_an_unknown_node_has_no_profile(debugged) -> None:
    answer = await debugged.get("/v1/agent/pprof/profile?node_id=n1")
    assert (answer.status, await answer.text()) == (404, 'Unknown node "n1"')
