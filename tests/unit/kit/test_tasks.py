"""Tasks of one part."""

import asyncio
import logging

import pytest

from lepa.kit.tasks import Tasks


async def test_leaving_ends_all_tasks() -> None:
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async with Tasks("part") as tasks:
        tasks.start("a", work("a"))
        tasks.start("b", work("b"))
        await asyncio.sleep(0)
        assert len(tasks) == 2
    assert sorted(ended) == ["a", "b"]
    assert len(tasks) == 0


async def test_a_failure_is_logged_with_the_tasks_name(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise RuntimeError("broken")

    logging.getLogger("lepa").propagate = True
    async with Tasks("part") as tasks:
        task = tasks.start("failing", fail())
        await asyncio.wait([task])
        await asyncio.sleep(0)
    assert "part.failing" in caplog.text


async def test_a_task_may_close_its_own_part() -> None:
    tasks = Tasks("part")

    async def close() -> str:
        await tasks.close()
        return "closed"

    assert await tasks.start("closer", close()) == "closed"


async def test_whoever_is_cancelled_while_it_leaves_a_part_ends() -> None:
    ended: list[str] = []

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.01)
            ended.append("child")

    async def loop() -> None:
        while True:
            async with Tasks("part") as tasks:
                tasks.start("child", slow_to_end())
                await asyncio.sleep(0)
            ended.append("next turn")

    looping = asyncio.ensure_future(loop())
    await asyncio.sleep(0.005)  # it waits for the child to end
    looping.cancel()
    await asyncio.wait([looping], timeout=5.0)
    assert looping.cancelled()
    assert "next turn" not in ended
