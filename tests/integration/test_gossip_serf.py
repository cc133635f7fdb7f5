"""Our members and the real `serf` program in one cluster: both see both, whoever joins, leaves, dies or changes keys.

Modules: lepa.gossip.node, lepa.gossip.transport, lepa.gossip.serf, lepa.gossip.membership, lepa.gossip.serf_members,
lepa.gossip.queries, lepa.gossip.internal_queries, lepa.gossip.lamport, lepa.gossip.keyring, lepa.gossip.profile,
lepa.gossip.suspicion, lepa.gossip.coordinates, lepa.gossip.tags.
"""

import asyncio
import base64
import contextlib
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from tests.serf_agent import HOST, RealSerf

from lepa.gossip import internal_queries as internal
from lepa.gossip.keyring import Keyring, key_bytes
from lepa.gossip.node import GossipNode, Listen
from lepa.gossip.profile import LAN, Profile
from lepa.gossip.serf import Event, EventHeard, QueryHeard, Settings
from lepa.gossip.serf_messages import Query
from lepa.kit.sources import SystemClock, SystemRandom

KEY = base64.b64encode(bytes(range(32))).decode()
OTHER_KEY = base64.b64encode(bytes(range(100, 116))).decode()


class Ours:
    """One of our members, and what it was told."""

    def __init__(self, name: str, *, key: str = "", tags: dict[str, str] | None = None, profile: Profile = LAN) -> None:
        self.events: list[Event] = []
        self.node = GossipNode(
            Settings(name, b"", 0, tags or {}, profile),
            Listen(HOST, 0),
            SystemClock(),
            SystemRandom(),
            self.events.append,
            keyring=Keyring([key_bytes(key)]) if key else None,
        )

    async def __aenter__(self) -> "Ours":
        await self.node.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.node.__aexit__()

    @property
    def address(self) -> str:
        return f"{HOST}:{self.node.port}"

    def statuses(self) -> dict[str, str]:
        return {member.name: member.status for member in self.node.members()}


async def eventually(condition: Callable[[], Awaitable[bool] | bool], within_s: float = 20.0) -> float:
    began = time.monotonic()
    while True:
        held = condition()
        if held if isinstance(held, bool) else await held:
            return time.monotonic() - began
        assert time.monotonic() - began < within_s, "not in time"
        await asyncio.sleep(0.05)


async def all_see(ours: Ours, theirs: RealSerf, wanted: dict[str, str], within_s: float = 20.0) -> float:
    async def seen() -> bool:
        return ours.statuses() == wanted and await theirs.statuses() == wanted

    return await eventually(seen, within_s)


@contextlib.asynccontextmanager
async def mixed(folder: Path, key: str = "") -> AsyncIterator[tuple[Ours, RealSerf]]:
    """One of ours and one of theirs, joined."""
    theirs = RealSerf("theirs", folder, key=key, options=("-tag", "role=web", "-tag", "dc=dc2"))
    async with theirs, Ours("ours.global", key=key, tags={"role": "nomad", "region": "global", "dc": "dc1"}) as ours:
        assert await ours.node.join([theirs.address], 7946) == (1, [])
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive"})
        yield ours, theirs


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
async def test_both_list_both_with_their_tags(tmp_path: Path, key: str) -> None:
    async with mixed(tmp_path, key) as (ours, theirs):
        seen = (await theirs.members())["ours.global"]
        assert seen["tags"] == {"role": "nomad", "region": "global", "dc": "dc1"}
        assert seen["addr"] == ours.address
        assert seen["protocol"] == {"max": 5, "min": 2, "version": 5}
        member = next(member for member in ours.node.members() if member.name == "theirs")
        assert dict(member.tags) == {"role": "web", "dc": "dc2"}
        ours.node.set_tags({"role": "nomad", "expect": "3"})

        async def told() -> bool:
            return (await theirs.members())["ours.global"]["tags"] == {"role": "nomad", "expect": "3"}

        await eventually(told)
        await theirs.run("tags", "-set", "dc=dc9")
        await eventually(lambda: {m.name: m.tags.get("dc") for m in ours.node.members()}["theirs"] == "dc9")
        assert not [name for name in ours.node.counts() if name.startswith("dropped")], ours.node.counts()


@pytest.mark.parametrize("key", ["", KEY], ids=["plain", "encrypted"])
async def test_theirs_joins_ours_and_events_and_questions_go_both_ways(tmp_path: Path, key: str) -> None:
    script = tmp_path / "answer.sh"
    script.write_text('#!/bin/sh\n[ "$SERF_EVENT" = query ] && echo "$SERF_QUERY_NAME by $SERF_SELF_NAME"\nexit 0\n')
    script.chmod(0o755)
    theirs = RealSerf("theirs", tmp_path, key=key, options=(f"-event-handler={script}",))
    async with Ours("ours", key=key) as ours, theirs:
        await theirs.run("join", ours.address)
        await all_see(ours, theirs, {"ours": "alive", "theirs": "alive"})
        await theirs.run("event", "deploy", "abc")
        await eventually(lambda: heard(ours) == [("deploy", b"abc")])
        ours.node.tell("restart", b"xyz")
        await eventually(lambda: "Received event: user-event: restart" in theirs.log())

        pending = await ours.node.ask(
            "load", want_acks=True, enough=lambda asked: "theirs" in asked.answers and len(asked.acks) == 2
        )
        assert pending.acks == {"ours", "theirs"}
        assert pending.answers == {"theirs": b"load by theirs\n"}

        asked = asyncio.create_task(theirs.run("query", "-timeout=3s", "-relay-factor=1", "health", "all"))
        await eventually(
            lambda: any(isinstance(event, QueryHeard) and event.query.name == "health" for event in ours.events)
        )
        (query,) = (e.query for e in ours.events if isinstance(e, QueryHeard) and e.query.name == "health")
        assert query.payload == b"all"
        ours.node.answer(query, b"well")
        printed = await asked
        assert "Response from 'ours': well" in printed
        assert "Total Acks: 2" in printed
        assert "rtt:" in await theirs.run("rtt", "ours")


def heard(ours: Ours) -> list[tuple[str, bytes]]:
    return [(event.event.name, event.event.payload) for event in ours.events if isinstance(event, EventHeard)]


def questions(ours: Ours) -> dict[str, Query]:
    return {event.query.name: event.query for event in ours.events if isinstance(event, QueryHeard)}


async def test_ours_leaves_and_theirs_leaves(tmp_path: Path) -> None:
    async with mixed(tmp_path) as (ours, theirs):
        async with Ours("other") as other:
            await other.node.join([ours.address], 7946)
            await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive", "other": "alive"})
            await other.node.leave()
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive", "other": "left"})
        await asyncio.to_thread(theirs.end, signal.SIGINT)
        await eventually(lambda: ours.statuses()["theirs"] == "left")


async def test_a_killed_member_is_found_within_seven_seconds_and_comes_back(tmp_path: Path) -> None:
    """Three members on the LAN profile: ours, theirs, and one of each in turn that dies."""
    async with mixed(tmp_path) as (ours, theirs):
        second = RealSerf("second", tmp_path)
        async with second:
            await second.run("join", ours.address)
            everybody = {"ours.global": "alive", "theirs": "alive", "second": "alive"}
            await all_see(ours, theirs, everybody)
            await asyncio.to_thread(second.end, signal.SIGKILL)
            taken = await eventually(lambda: ours.statuses()["second"] == "failed")
            assert taken <= 7.5, "7 s, and half a second for a busy machine"
            await all_see(ours, theirs, everybody | {"second": "failed"})
            await asyncio.to_thread(second.start)
            await second.run("join", theirs.address)
            await all_see(ours, theirs, everybody)


async def test_our_killed_member_is_found_by_theirs_and_is_sent_away(tmp_path: Path) -> None:
    async with mixed(tmp_path) as (ours, theirs):
        async with Ours("gone") as gone:
            await gone.node.join([theirs.address], 7946)
            await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive", "gone": "alive"})
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive", "gone": "failed"})
        assert ours.node.force_leave("gone")
        assert not ours.node.force_leave("nobody")
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive", "gone": "left"})
        await theirs.run("force-leave", "-prune", "gone")
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive"})


async def test_keys_are_rotated_from_both_sides(tmp_path: Path) -> None:
    async with mixed(tmp_path, KEY) as (ours, theirs):
        await theirs.run("keys", "-install", OTHER_KEY)
        await theirs.run("keys", "-use", OTHER_KEY)
        await theirs.run("keys", "-remove", KEY)
        assert ours.node.keys() == [OTHER_KEY]
        report = await ours.node.ask_about_keys(internal.LIST_KEYS)
        assert (report.members, report.answered, report.failed) == (2, 2, 0)
        assert report.keys == {OTHER_KEY: 2}
        report = await ours.node.ask_about_keys(internal.REMOVE_KEY, key_bytes(OTHER_KEY))
        assert report.failed == 2, report
        assert "removing the primary key is not allowed" in report.messages["ours.global"]
        for question in (internal.INSTALL_KEY, internal.USE_KEY):
            assert (await ours.node.ask_about_keys(question, key_bytes(KEY))).failed == 0
        assert (await ours.node.ask_about_keys(internal.REMOVE_KEY, key_bytes(OTHER_KEY))).failed == 0
        listed = await theirs.run("keys", "-list")
        assert KEY in listed
        assert OTHER_KEY not in listed
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive"})


@pytest.mark.parametrize(
    ("our_key", "their_key", "sentence"),
    [
        ("", KEY, "gossip is encrypted there and not here"),
        (KEY, "", "gossip is encrypted here and not there"),
        (KEY, OTHER_KEY, "gossip is encrypted there with a key that this server does not have"),
    ],
    ids=["only theirs", "only ours", "different"],
)
async def test_a_wrong_key_gets_a_sentence_and_does_no_harm(
    tmp_path: Path, our_key: str, their_key: str, sentence: str
) -> None:
    async with RealSerf("theirs", tmp_path, key=their_key) as theirs, Ours("ours", key=our_key) as ours:
        joined, errors = await ours.node.join([theirs.address], 7946)
        assert joined == 0
        assert errors[0].startswith(f"{theirs.address}: {sentence}")
        assert 'encrypt = "…"' in errors[0]
        done = await asyncio.to_thread(theirs.ask, "join", ours.address)
        assert done.returncode != 0
        assert ours.statuses() == {"ours": "alive"}
        assert await theirs.statuses() == {"theirs": "alive"}


async def test_an_address_that_does_not_answer_gets_a_sentence() -> None:
    with socket.create_server((HOST, 0)) as silent:
        port = silent.getsockname()[1]
        async with Ours("ours", profile=LAN._replace(stream_timeout_s=0.5)) as ours:
            joined, errors = await ours.node.join([f"{HOST}:1", "name.invalid", "host:99999", ":1"], 7946)
            assert joined == 0
            assert errors[0] == f"{HOST}:1: cannot be reached: Connection refused"
            assert errors[1].startswith("name.invalid: the name cannot be looked up")
            assert errors[2] == 'host:99999: "99999" is not a port; it has to be 1 to 65535'
            assert errors[3] == ":1: no host is named; expected host or host:port"
            assert (await ours.node.join([f"{HOST}:{port}"], 7946))[1] == [f"{HOST}:{port}: no answer in time"]


async def test_hostile_bytes_are_counted_and_the_cluster_goes_on(tmp_path: Path) -> None:
    """S14."""
    async with mixed(tmp_path) as (ours, theirs):
        with socket.socket(type=socket.SOCK_DGRAM) as packets:
            for number in range(300):
                packets.sendto(bytes([number % 256, number % 7]) * (number % 40 + 1), (HOST, ours.node.port))
        for junk in (b"GET / HTTP/1.1\r\n\r\n", b"\x06\x83\xff", b"\x0a\xff\xff\xff\xff", b"\x08", b""):
            reader, writer = await asyncio.open_connection(HOST, ours.node.port)
            writer.write(junk)
            writer.write_eof()
            await reader.read()
            writer.close()
        await eventually(lambda: ours.node.counts()["packets"] >= 300)
        assert sum(count for name, count in ours.node.counts().items() if name.startswith("dropped")) > 200
        await theirs.run("event", "after", "it")
        await eventually(lambda: ("after", b"it") in heard(ours))
        await all_see(ours, theirs, {"ours.global": "alive", "theirs": "alive"})
