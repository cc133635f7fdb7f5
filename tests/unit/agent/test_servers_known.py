"""Where a node begins to look for servers, and how long."""

import asyncio
from typing import Any, cast

import pytest

from lepa.agent.config_loader import build
from lepa.agent.join_settings import Retry, retry
from lepa.agent.servers_known import client_servers, join_servers
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError
from lepa.rpc.channel import Lost, Unreached
from lepa.rpc.methods import Caller


def known(**client: Any) -> tuple[str, ...]:
    raw = {"data_dir": "/data", "client": {"enabled": True, **client}}
    return client_servers(build(raw).config)


def test_servers_are_names_or_addresses_with_or_without_a_port() -> None:
    given = ["10.0.0.2", "10.0.0.3:5000", "servers.example.org", "fd00::1", "[fd00::2]", "[fd00::3]:5000"]
    assert known(servers=given) == (
        "10.0.0.2:4647",
        "10.0.0.3:5000",
        "servers.example.org:4647",
        "[fd00::1]:4647",
        "[fd00::2]:4647",
        "[fd00::3]:5000",
    )


def test_those_to_join_are_servers_too_and_none_is_named_twice() -> None:
    join = {"retry_join": ["b", "a:4647"], "start_join": ["c"], "retry_max": 3, "retry_interval": "15s"}
    assert known(servers=["a"], server_join=join) == ("a:4647", "b:4647", "c:4647")
    assert known(server_join={"retry_join": ["b"]}) == ("b:4647",)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"servers": ["a:port"]}, '"a:port" is not the address of a server'),
        ({"servers": [":4647"]}, "is not the address of a server"),
        ({"servers": ["a:0"]}, "is not the address of a server"),
        ({"server_join": {"retry_join": ["provider=aws tag_key=x"]}}, "not looked up at cloud providers"),
        ({"server_join": {"retry_jion": ["a"]}}, '"retry_jion" is not one of'),
        ({"server_join": {"retry_join": "a"}}, "has to be a list of texts"),
    ],
)
def test_what_is_no_server_is_refused_with_a_sentence(client: dict[str, Any], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        known(**client)


class Answers:
    """Servers that answer each call with the next of these."""

    def __init__(self, *answers: LepaError | None) -> None:
        self._answers = list(answers)

    async def call(self, *_: object) -> None:
        if (answer := self._answers.pop(0)) is not None:
            raise answer


class Sleeps:
    """A clock that tells how long it slept."""

    def __init__(self) -> None:
        self.slept = 0.0

    async def sleep(self, seconds: float) -> None:
        self.slept += seconds


def join(how_often: Retry, *answers: LepaError | None) -> float:
    """Seconds until a server was found."""

    async def run() -> float:
        clock = Sleeps()
        await join_servers(cast(Caller, Answers(*answers)), how_often, cast(Clock, clock))
        return clock.slept

    return asyncio.run(run())


SILENT = Unreached("a:4647", ConnectionRefusedError("Connection refused"))
LOST = Lost("Status.Peers", "a:4647", "broken")


def test_a_server_that_answers_is_found_whatever_it_says() -> None:
    assert join(Retry(5.0, 3), None) == 0.0
    assert join(Retry(5.0, 3), SILENT, LOST, None) == 10.0
    assert join(Retry(5.0, 3), SILENT, LepaError("no_leader", "no cluster leader")) == 5.0
    assert join(Retry(5.0, 0)) == 0.0, "nobody is asked when there is no end to the attempts"


def test_after_so_many_attempts_it_is_given_up() -> None:
    said = r"no server could be joined in 2 attempts \(retry_max\), so the agent ends: .*Connection refused"
    with pytest.raises(LepaError, match=said):
        join(Retry(5.0, 2), SILENT, SILENT, None)


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"retry_max": -1}, "client.retry_max: -1 is not a number of attempts"),
        ({"retry_max": True}, "is not a number of attempts"),
        ({"retry_interval": "soon"}, "client.retry_interval"),
        ({"retry_interval": "0s"}, "more than 0s"),
    ],
)
def test_how_often_is_a_number_and_a_time(block: dict[str, Any], said: str) -> None:
    assert retry({"retry_max": 2, "retry_interval": "5s"}, "client") == (5.0, 2)
    with pytest.raises(LepaError, match=said):
        retry(block, "client")
