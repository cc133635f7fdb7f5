"""lepa.serving.registry_follower"""

import asyncio
import logging

import pytest

from lepa.kit.sources import SeededRandom, SystemClock
from lepa.serving.addresses import Address
from lepa.serving.management import ManagementFrontend
from lepa.serving.records import Application, Container, Registry, add_application
from lepa.serving.registry_follower import RegistryFollower, call
from lepa.serving.registry_store import MemoryRegistryStore


async def test_each_registry_is_followed_also_over_the_loss_of_the_management_frontend() -> None:
    store = MemoryRegistryStore()
    seen: asyncio.Queue[Registry] = asyncio.Queue()
    address = Address("127.0.0.1", 1)

    async def management() -> Address:
        return address

    follower = RegistryFollower(management, seen.put_nowait, lambda update: None, SystemClock(), SeededRandom(1))
    async with asyncio.TaskGroup() as group:
        following = group.create_task(follower.run())
        async with ManagementFrontend("127.0.0.1", 0, store, None, SystemClock()) as first:
            address = Address("127.0.0.1", first.port)
            assert (await asyncio.wait_for(seen.get(), 5)).revision == 0
            await call(address, "POST", "/admin/add_app", Application("a", "doubles", "0", 1))
            assert (await asyncio.wait_for(seen.get(), 5)).revision == 1
        store.save(add_application(store.load(), Application("b", "doubles", "0", 1)))
        async with ManagementFrontend("127.0.0.1", 0, store, None, SystemClock()) as second:
            address = Address("127.0.0.1", second.port)
            assert sorted((await asyncio.wait_for(seen.get(), 10)).applications) == ["a", "b"]
            following.cancel()
    assert seen.empty()


async def test_a_report_that_nobody_takes_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def management() -> Address:
        return Address("127.0.0.1", 1)

    follower = RegistryFollower(management, lambda registry: None, lambda update: None, SystemClock(), SeededRandom(1))
    with caplog.at_level(logging.WARNING):
        await follower.report("f", [Container("m:1", "m", "1", 0, "doubles")])
    assert "containers were not reported" in caplog.text


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.0 500 No\r\n\r\n", b"HTTP/1.0 200 OK\r\n", b"junk\r\n\r\n", b"x" * 70000]
)
async def test_what_is_no_good_answer_is_an_os_error(answer: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    with pytest.raises(OSError):
        await call(Address("127.0.0.1", server.sockets[0].getsockname()[1]), "GET", "/")
    server.close()
    await server.wait_closed()
