"""The feed behind watches."""

import asyncio

from lepa.store.local import Feed
from lepa.store.protocol import Change


async def test_every_watch_gets_every_change_in_order() -> None:
    feed = Feed(0)

    async def follow() -> list[int]:
        return [change.revision async for changes in feed.watch(0, "") for change in changes]

    followers = [asyncio.ensure_future(follow()) for _ in range(3)]
    for revision in range(1, 20):
        feed.publish([Change("a", b"", 1, revision)])
        if revision % 5 == 0:
            await asyncio.sleep(0)
    feed.close()
    assert await asyncio.gather(*followers) == [list(range(1, 20))] * 3


async def test_a_watch_ahead_of_the_feed_waits() -> None:
    feed = Feed(5)
    waiting = asyncio.ensure_future(anext(feed.watch(6, "")))
    feed.publish([Change("a", b"", 6, 6)])
    await asyncio.sleep(0)
    feed.publish([Change("b", b"", 7, 7)])
    assert [change.key for change in await waiting] == ["b"]
