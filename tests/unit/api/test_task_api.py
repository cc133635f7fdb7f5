"""The API on sockets inside tasks."""

import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.unit.api.conftest import QuietAgent, RecordingCaller

from lepa.api.edge import Edge, Settings
from lepa.api.task_api import TaskSockets
from lepa.kit.sources import SystemClock
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.rpc.acl_requests import Authorized

DEEP = "/".join(["a-directory-with-a-long-name"] * 6)


def who_asks(request: Any) -> Any:
    return Authorized() if request.auth_token == "known" else LepaError("denied", "Permission denied")


@pytest.fixture
def edge() -> Edge:
    caller = RecordingCaller()
    caller.answers |= {"ACL.Authorize": who_asks, "Status.Leader": "10.0.0.1:4647"}
    return Edge(caller, QuietAgent(), None, SystemClock(), Metrics(), Settings())


@pytest.fixture
async def sockets() -> AsyncIterator[TaskSockets]:
    async with TaskSockets() as found:
        yield found


async def status(path: Path, token: str, bearer: bool = False) -> int:
    headers = {"Authorization": f"Bearer {token}"} if bearer else {"X-Nomad-Token": token}
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        connector = aiohttp.UnixConnector(f"/proc/self/fd/{directory}/{path.name}")
        async with aiohttp.ClientSession(connector=connector) as session:
            async with session.get("http://task/v1/status/leader", headers=headers if token else {}) as answer:
                return answer.status
    finally:
        os.close(directory)


@pytest.mark.parametrize("early", [True, False])
async def test_a_socket_answers_those_whose_token_is_known(
    tmp_path: Path, edge: Edge, sockets: TaskSockets, early: bool
) -> None:
    (tmp_path / DEEP).mkdir(parents=True)
    path = tmp_path / DEEP / "api.sock"
    if early:
        await sockets.open(path)
        await sockets.serve(edge)
    else:
        await sockets.serve(edge)
        await sockets.open(path)
    assert await status(path, "") == 401
    assert await status(path, "made-up") == 403
    assert await status(path, "known") == 200
    assert await status(path, "known", bearer=True) == 200
    await sockets.close(path)
    assert not path.exists()
    await sockets.close(path)


async def test_a_socket_of_before_is_replaced_and_all_are_gone_at_the_end(tmp_path: Path, edge: Edge) -> None:
    path = tmp_path / "api.sock"
    path.write_text("left by an agent that was killed")
    async with TaskSockets() as sockets:
        await sockets.open(path)
        await sockets.serve(edge)
        await sockets.open(path)
        assert await status(path, "known") == 200
        assert path.stat().st_mode & 0o777 == 0o666
    assert not path.exists()


async def test_a_directory_that_is_a_link_is_refused(tmp_path: Path, sockets: TaskSockets) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    with pytest.raises(OSError):
        await sockets.open(tmp_path / "link" / "api.sock")


async def test_servers_that_do_not_answer_let_nobody_in(tmp_path: Path, edge: Edge, sockets: TaskSockets) -> None:
    def away(_: Any) -> Any:
        raise LepaError("no_leader", "away")

    edge.caller.answers["ACL.Authorize"] = away  # type: ignore[attr-defined]
    await sockets.open(tmp_path / "api.sock")
    await sockets.serve(edge)
    assert await status(tmp_path / "api.sock", "known") == 500
