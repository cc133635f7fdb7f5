"""Following this agent's log."""

import asyncio
import io
import json
import logging

from lepa.agent import log_tap
from lepa.agent.log_tap import LogTap
from lepa.kit.telemetry import change_log_level, set_up_logging


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


async def test_a_follower_sees_lines_that_the_agent_itself_does_not_write_down() -> None:
    stream, logger = io.StringIO(), logging.getLogger("lepa")
    before = logger.handlers, logger.level, logger.propagate
    tap = LogTap()
    try:
        set_up_logging("info", stream=stream)
        logger.addHandler(tap)
        lines = tap.follow("debug", as_json=False)
        waiting = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0)
        logging.getLogger("lepa.part").debug("detail")
        assert b"detail" in await asyncio.wait_for(waiting, 5)
        assert stream.getvalue() == ""
        await lines.aclose()
        assert logger.level == logging.INFO
        change_log_level("warn")
        logging.getLogger("lepa.part").info("unwritten")
        logging.getLogger("lepa.part").warning("written")
        assert "unwritten" not in stream.getvalue()
        assert "written" in stream.getvalue()
    finally:
        logger.handlers, logger.level, logger.propagate = before
