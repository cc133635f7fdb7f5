"""One task from its first start to its end, with the mock driver and a clock of the test's own."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from tests.builders import make_alloc, make_group, make_job, make_node, make_task
from tests.clocks import ManualClock, settle

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.client.local_state import LocalState, TaskRecord
from lepa.client.task_env import Directories, Place
from lepa.client.task_runner import Surroundings, TaskRunner
from lepa.drivers.mock import MockDriver
from lepa.drivers.protocol import ExitResult, Started, TaskConfig, TaskHandle, TaskNetwork
from lepa.kit.sources import SeededRandom
from lepa.model.allocation import TaskState
from lepa.model.errors import LepaError, not_found
from lepa.model.policies import RestartPolicy, TaskLifecycle
from lepa.model.task import Task

SECOND = 1_000_000_000
POLICY = RestartPolicy(attempts=2, interval=600 * SECOND, delay=10 * SECOND)


class Recorder(QuietHook):
    """A hook that notes what it is asked, in one list with what the driver is asked."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.added: Mapping[str, str] = {"ADDED": "yes"}
        self.error: HookError | None = None
        self.blocked = False

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        self.log.append("prestart")
        if self.blocked:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        return self.added

    async def recovered(self, setup: Setup) -> Mapping[str, str]:
        self.log.append("recovered")
        return self.added

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        self.log.append(f"poststart {setup.env.get('ADDED')}")

    async def stopping(self) -> None:
        self.log.append("stopping")

    async def exited(self) -> None:
        self.log.append("exited")

    async def close(self) -> None:
        self.log.append("close")


class LoggedDriver(MockDriver):
    """The mock driver, noting what it is asked."""

    def __init__(self, clock: ManualClock, log: list[str]) -> None:
        super().__init__(clock)
        self.log = log
        self.lost = False

    async def start(self, task: TaskConfig) -> Started:
        self.log.append("start")
        return await super().start(task)

    async def wait(self, task_id: str) -> ExitResult:
        if self.lost:
            raise not_found("gone")
        return await super().wait(task_id)

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        self.log.append(f"stop {timeout_s:g}")
        await super().stop(task_id, signal, timeout_s)

    async def destroy(self, task_id: str) -> None:
        self.log.append("destroy")
        await super().destroy(task_id)


class Bench:
    """A runner and everything around it."""

    def __init__(self, directory: Path) -> None:
        self.clock = ManualClock()
        self.log: list[str] = []
        self.driver = LoggedDriver(self.clock, self.log)
        self.hook = Recorder(self.log)
        self.state = LocalState(directory / "state.db")
        self.directory = AllocDir(directory / "alloc", "a")
        self.may_start = asyncio.Event()
        self.may_start.set()
        self.running: asyncio.Task[None] | None = None

    def runner(self, record: TaskRecord | None = None, *, job_type: str = "service", **task: Any) -> TaskRunner:
        config = {"run_for": task.pop("run_for", "1h"), "exit_code": task.pop("exit_code", 0)} | task.pop("config", {})
        wanted: Task = make_task(config=config, **task)
        group = make_group(tasks=(wanted,), restart_policy=POLICY)
        job = make_job(type=job_type, groups=(group,))
        place = Place(make_node(), "global", job, group, wanted, make_alloc("a", job=job), Directories("", "", ""))
        around = Surroundings(
            driver=self.driver,
            directory=self.directory,
            state=self.state,
            clock=self.clock,
            random=SeededRandom(1),
            host_env={},
            may_start=self.may_start,
            hooks=[self.hook],
        )
        return TaskRunner(place, around, lambda: None, record)

    async def begin(self, runner: TaskRunner) -> None:
        self.running = asyncio.create_task(runner.run())
        await self.pass_time(0.0)

    async def pass_time(self, seconds: float) -> None:
        """Let the clock go on, and everything happen that follows from it."""
        await self._written()
        await self.clock.advance(seconds)
        await self._written()

    async def _written(self) -> None:
        """Several turns of those who wait for the state's file, which a thread writes in order."""
        for _ in range(4):
            await self.clock.advance(0.0)
            await self.state.save_facts({"turn": "over"})
        await self.clock.advance(0.0)

    def record(self) -> TaskRecord:
        """What another agent would find."""
        found = self.state.load()
        return next(iter(found.allocations)).tasks["web"]


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    found = Bench(tmp_path)
    await found.state.save_allocation(make_alloc("a"))
    yield found
    if found.running is not None:
        found.running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await found.running
    await found.driver.close()
    found.state.close()


def types(runner: TaskRunner) -> list[str]:
    return [told.type for told in runner.state.events]


async def test_hooks_and_driver_take_their_turns(bench: Bench) -> None:
    runner = bench.runner(job_type="batch", run_for="5s")
    await bench.begin(runner)
    assert runner.state.state == "running"
    await bench.pass_time(6.0)
    assert runner.state.state == "dead"
    assert bench.log == ["prestart", "start", "poststart yes", "exited", "close", "destroy"]


async def test_a_kill_deregisters_waits_and_stops(bench: Bench) -> None:
    runner = bench.runner(shutdown_delay=20 * SECOND, kill_timeout=90 * SECOND)
    await bench.begin(runner)
    runner.kill("because")
    await bench.pass_time(19.0)
    assert bench.log[-1] == "stopping"
    await bench.pass_time(2.0)
    assert bench.log[-4:] == ["stop 30", "exited", "close", "destroy"]
    assert types(runner)[-4:] == ["Waiting for shutdown delay", "Killing", "Terminated", "Killed"]
    assert runner.state.state == "dead"
    assert not runner.state.failed


async def test_a_restart_that_was_asked_for_does_not_wait(bench: Bench) -> None:
    runner = bench.runner()
    await bench.begin(runner)
    runner.restart("User requested restart")
    await bench.pass_time(0.0)
    assert runner.state.state == "running"
    assert runner.state.restarts == 1
    assert "Restart Signaled" in types(runner)


async def test_a_failure_waits_the_policys_delay_and_a_kill_ends_the_wait(bench: Bench) -> None:
    runner = bench.runner(run_for="1s", exit_code=1)
    await bench.begin(runner)
    await bench.pass_time(2.0)
    assert runner.state.state == "pending"
    await bench.pass_time(8.0)
    assert runner.state.state == "pending"
    await bench.pass_time(3.0)
    assert bench.log.count("start") == 2
    await bench.pass_time(2.0)
    runner.kill("stop")
    await bench.pass_time(0.0)
    assert runner.state.state == "dead"
    assert bench.log.count("start") == 2


async def test_a_prestart_task_of_a_service_ends_when_it_succeeds(bench: Bench) -> None:
    runner = bench.runner(run_for="1s", lifecycle=TaskLifecycle(hook="prestart"))
    await bench.begin(runner)
    await bench.pass_time(2.0)
    assert (runner.state.state, runner.state.failed) == ("dead", False)


async def test_a_kill_cancels_hooks_that_prepare(bench: Bench) -> None:
    bench.hook.blocked = True
    runner = bench.runner()
    await bench.begin(runner)
    runner.kill("stop")
    await bench.pass_time(0.0)
    assert runner.state.state == "dead"
    assert bench.log == ["prestart", "close"]


@pytest.mark.parametrize("recoverable", [True, False])
async def test_a_failing_hook_counts_as_a_failed_start(bench: Bench, recoverable: bool) -> None:
    bench.hook.error = HookError("no", recoverable=recoverable, event="Failed Artifact Download")
    runner = bench.runner()
    await bench.begin(runner)
    assert "Failed Artifact Download" in types(runner)
    assert runner.state.state == ("pending" if recoverable else "dead")


async def test_a_config_that_the_driver_refuses_fails_with_its_sentence(bench: Bench) -> None:
    runner = bench.runner(config={"run_foe": "1s"})
    await bench.begin(runner)
    assert runner.state.failed
    assert "run_foe" in runner.state.events[-2].display_message
    assert runner.state.events[-2].type == "Failed Validation"


async def test_a_start_error_that_may_pass_is_tried_again(bench: Bench) -> None:
    runner = bench.runner(config={"start_error": "busy", "start_error_recoverable": True})
    await bench.begin(runner)
    assert "Driver Failure" in types(runner)
    for _ in range(3):
        await bench.pass_time(13.0)
    assert runner.state.state == "dead"
    assert bench.log.count("start") == 3


async def test_a_task_that_is_lost_sight_of_is_no_success(bench: Bench) -> None:
    bench.driver.lost = True
    runner = bench.runner(job_type="batch")
    await bench.begin(runner)
    assert runner.state.state == "pending"
    assert "lost sight" in runner.state.events[-2].display_message


async def test_another_agent_takes_the_task_up(bench: Bench) -> None:
    runner = bench.runner(run_for="60s")
    await bench.begin(runner)
    record = bench.record()
    assert bench.running is not None
    bench.running.cancel()
    await settle()
    bench.log.clear()
    again = bench.runner(record, run_for="60s")
    assert again.resumable
    await bench.begin(again)
    assert bench.log == ["recovered", "poststart yes"]
    assert again.handle == runner.handle
    assert again.env["ADDED"] == "yes"
    assert types(again) == types(runner)


async def test_a_task_that_is_not_found_again_starts_once_more_when_the_servers_want_it(bench: Bench) -> None:
    handle = TaskHandle(driver="mock_driver", task_id="old")
    record = TaskRecord(driver="mock_driver", task_id="old", handle=handle, state=TaskState(state="running"))

    async def nothing(task: TaskConfig, handle: TaskHandle) -> None:
        raise not_found("gone")

    bench.driver.recover = nothing  # type: ignore[method-assign]
    bench.may_start.clear()
    runner = bench.runner(record)
    await bench.begin(runner)
    assert runner.state.state == "pending"
    assert "Failed Restoring Task" in types(runner)
    assert "start" not in bench.log
    bench.may_start.set()
    await bench.pass_time(0.0)
    assert runner.state.state == "running"


async def test_what_became_of_a_task_is_kept_before_its_remains_go(bench: Bench) -> None:
    seen: list[TaskRecord] = []

    async def destroy(task_id: str) -> None:
        seen.append(bench.record())

    bench.driver.destroy = destroy  # type: ignore[method-assign]
    await bench.begin(bench.runner(job_type="batch", run_for="0s"))
    await bench.pass_time(0.0)
    (record,) = seen
    assert (record.ended, record.state.state) == (True, "dead")
    assert record.task_id


async def test_remains_of_an_ended_task_are_removed_and_it_does_not_run_again(bench: Bench) -> None:
    record = TaskRecord(driver="mock_driver", task_id="old", ended=True, state=TaskState(state="dead"))
    runner = bench.runner(record)
    await bench.begin(runner)
    assert bench.log == ["destroy", "close"]
    assert runner.state.state == "dead"
    assert not bench.record().task_id


async def test_a_rerun_brings_even_a_dead_task_back(bench: Bench) -> None:
    runner = bench.runner(job_type="batch", run_for="1s")
    await bench.begin(runner)
    await bench.pass_time(2.0)
    assert runner.state.state == "dead"
    runner.rerun()
    await bench.begin(runner)
    assert (runner.state.state, runner.state.failed) == ("pending", False)
    await bench.begin(runner)
    assert runner.state.state == "running"
    runner.rerun()
    await bench.pass_time(0.0)
    assert runner.state.state == "pending"


async def test_what_needs_a_running_task_is_refused_without_one(bench: Bench) -> None:
    runner = bench.runner()
    with pytest.raises(LepaError, match="Task not running"):
        runner.restart("x")
    with pytest.raises(LepaError, match="Task not running"):
        await runner.signal("SIGHUP", "x")
    with pytest.raises(LepaError, match="Task not running"):
        await runner.run_command(["true"])


async def test_signals_and_commands_reach_the_task(bench: Bench) -> None:
    runner = bench.runner(config={"exec_command": {"stdout_string": "out" * 5000, "exit_code": 3}})
    await bench.begin(runner)
    await runner.signal("SIGHUP", "why")
    assert types(runner)[-1] == "Signaling"
    command: Sequence[str] = ["true"]
    running = asyncio.create_task(runner.run_command(command))
    await bench.pass_time(0.0)
    code, output = await running
    assert (code, len(output)) == (3, 4096)


async def test_a_newer_place_changes_the_environment(bench: Bench) -> None:
    runner = bench.runner()
    await bench.begin(runner)
    runner.replace_place(runner.place._replace(job=replace(runner.place.job, meta={"v": "2"})))
    assert runner.env["NOMAD_META_v"] == "2"
    assert runner.env["NOMAD_TASK_DIR"].endswith("a/web/local")


async def test_a_task_whose_agent_died_before_it_noted_the_start_is_taken_up_as_running(bench: Bench) -> None:
    """R5: its record says that it is pending."""
    runner = bench.runner(run_for="60s")
    await bench.begin(runner)
    record = bench.record()
    assert bench.running is not None
    bench.running.cancel()
    await asyncio.gather(bench.running, return_exceptions=True)
    early = replace(record, state=TaskState(state="pending"))
    again = bench.runner(early, run_for="60s")
    await bench.begin(again)
    assert again.state.state == "running"
    assert types(again).count("Started") == 1
    assert bench.log.count("start") == 1
