"""Following this agent's log."""

import asyncio
import json
import logging

from lepa.agent import log_tap
from lepa.agent.log_tap import LogTap


async def test_a_follower_gets_lines_of_its_level_from_now_on() -> None:
    tap = LogTap()
    logger = logging.getLogger("lepa.tap_test")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(tap)
    lines = tap.follow("warn", as_json=True)
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    logger.info("too quiet")
    logger.warning("loud")
    line = json.loads(await asyncio.wait_for(waiting, 5))
    assert (line["@message"], line["@level"]) == ("loud", "warning")
    await lines.aclose()
    assert not tap._followers
    logger.removeHandler(tap)


async def test_a_slow_follower_is_told_what_it_lost(monkeypatch) -> None:
    monkeypatch.setattr(log_tap, "LINES_MAX", 2)
    tap = LogTap()
    lines = tap.follow("info", as_json=False)
    waiting = asyncio.ensure_future(anext(lines))
    await asyncio.sleep(0)
    for number in range(6):
        tap.emit(logging.makeLogRecord({"name": "lepa.x", "levelno": 20, "levelname": "INFO", "msg": f"line {number}"}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    first = await asyncio.wait_for(waiting, 5)
    assert b"lines were lost" in first
    await lines.aclose()
