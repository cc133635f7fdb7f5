import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.clocks import ManualClock, settle

from lepa.drivers.mock import MockDriver
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.model.errors import LepaError


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def driver(clock: ManualClock) -> AsyncIterator[MockDriver]:
    found = MockDriver(clock)
    yield found
    await found.close()


def make(**config: Any) -> TaskConfig:
    return TaskConfig(id="t", alloc_id="a", config=config)


async def test_a_task_runs_for_its_time_and_ends_as_told(driver: MockDriver, clock: ManualClock) -> None:
    await begin(driver, clock, make(run_for="10s", exit_code=3))
    waiting = asyncio.ensure_future(driver.wait("t"))
    await clock.advance(9)
    assert not waiting.done()
    await clock.advance(2)
    assert (await waiting).exit_code == 3
    assert (await driver.wait("t")).exit_code == 3


async def test_a_signal_and_an_error_can_be_the_end(driver: MockDriver, clock: ManualClock) -> None:
    await begin(driver, clock, make(exit_signal=9, exit_err_msg="lost it"))
    await clock.advance(1)
    result = await driver.wait("t")
    assert (result.exit_code, result.signal, result.error) == (137, 9, "lost it")


async def test_a_start_can_fail_or_take_its_time(driver: MockDriver, clock: ManualClock) -> None:
    task = make(start_error="no", start_error_recoverable=True, start_block_for="5s")
    starting = asyncio.ensure_future(driver.start(task))
    await clock.advance(4)
    assert not starting.done()
    await clock.advance(2)
    with pytest.raises(DriverError, match="no") as caught:
        await starting
    assert caught.value.recoverable


async def test_a_stopped_task_lives_for_kill_after_at_most_for_the_timeout(
    driver: MockDriver, clock: ManualClock
) -> None:
    await begin(driver, clock, make(run_for="1h", kill_after="20s"))
    stopping = asyncio.ensure_future(driver.stop("t", "SIGINT", 5))
    await clock.advance(6)
    await stopping
    assert (await driver.wait("t")).signal == 9


async def test_a_recovered_task_runs_for_what_is_left(driver: MockDriver, clock: ManualClock) -> None:
    task = make(run_for="10s")
    started = await begin(driver, clock, task)
    await clock.advance(6)
    another = MockDriver(clock)
    await another.recover(task, started.handle)
    waiting = asyncio.ensure_future(another.wait("t"))
    await clock.advance(3)
    assert not waiting.done()
    await clock.advance(2)
    assert (await waiting).successful
    await another.close()


async def test_output_is_written_as_often_as_told(driver: MockDriver, clock: ManualClock, tmp_path: Path) -> None:
    config = {"run_for": "1m", "stdout_string": "x\n", "stdout_repeat": 2, "stdout_repeat_duration": "1s"}
    await begin(driver, clock, TaskConfig(id="t", alloc_id="a", config=config, stdout_path=str(tmp_path / "o")))
    await clock.advance(5)
    assert (tmp_path / "o.0").read_text() == "x\nx\nx\n"


async def test_a_task_can_be_lost_sight_of(driver: MockDriver, clock: ManualClock) -> None:
    await begin(driver, clock, make(run_for="1h", plugin_exit_after="2s"))
    await clock.advance(3)
    result = await driver.wait("t")
    assert not result.successful
    assert result.error == "lost sight of the task"


async def test_a_network_of_its_own_is_told(driver: MockDriver, clock: ManualClock) -> None:
    started = await begin(driver, clock, make(driver_ip="10.0.0.9", driver_port_map="http:80"))
    assert started.network is not None
    assert (started.network.ip, started.network.port_map) == ("10.0.0.9", {"http": 80})


async def test_commands_say_what_the_config_says(driver: MockDriver, clock: ManualClock) -> None:
    await begin(driver, clock, make(run_for="1m", exec_command={"stdout_string": "out", "exit_code": 4}))
    session = await driver.exec("t", ["x"], tty=False)
    reading = asyncio.ensure_future(_read(session.output()))
    await clock.advance(1)
    assert await reading == [("stdout", b"out")]
    assert await session.wait() == 4


async def test_signals_are_refused_as_told_and_unknown_tasks_are_not_found(
    driver: MockDriver, clock: ManualClock
) -> None:
    await begin(driver, clock, make(run_for="1m", signal_error="will not"))
    with pytest.raises(LepaError, match="will not"):
        await driver.signal("t", "SIGHUP")
    await driver.destroy("t")
    with pytest.raises(LepaError) as caught:
        await driver.wait("t")
    assert caught.value.code == "not_found"


def test_a_config_that_cannot_be_is_refused(clock: ManualClock) -> None:
    problems = MockDriver(clock).problems({"run_for": "soon", "nope": 1})
    assert any("nope" in problem for problem in problems)
    assert any(problem.startswith("run_for") for problem in problems)


async def begin(driver: MockDriver, clock: ManualClock, task: TaskConfig) -> Any:
    """Start a task while the clock stands still."""
    starting = asyncio.ensure_future(driver.start(task))
    await clock.advance(0)
    await settle()
    return await starting


async def _read(output: Any) -> list[tuple[str, bytes]]:
    return [piece async for piece in output]
