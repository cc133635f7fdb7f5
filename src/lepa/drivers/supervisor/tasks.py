"""The tasks of this node: starting, watching, stopping them, and finding them again.

    starting ──► running ──► ending ──► ended ──► (forgotten)
        └─► (failed to start: forgotten at once)

*ending*: the first process is dead; what it left behind is killed and its pipes are read to their end. Only then, and
after the exit is in the journal, does anyone hear of it.
"""

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from lepa.drivers.supervisor import cgroups, cpusets
from lepa.drivers.supervisor.journal import JournalFile, read_journal
from lepa.drivers.supervisor.log_pump import LogPump, find_pipe, open_pipe, pipe_number
from lepa.drivers.supervisor.messages import Exit, LogFiles, TaskInfo, TaskSpec
from lepa.drivers.supervisor.notes import note
from lepa.drivers.supervisor.processes import MARK, Home, born, family, spawn
from lepa.drivers.supervisor.reactor import READABLE, Reactor, Timer
from lepa.drivers.supervisor.reaper import Reaper
from lepa.drivers.supervisor.records import TaskRecord, exit_record, forget_record, run_record, start_record

TASKS_MAX = 20_000
"""Tasks known at once, ended ones included; further starts are refused."""
KILL_INTERVAL_S = 0.02
"""Between two looks at a tree that is being killed."""
DRAIN_S = 2.0
"""How long an ended task's pipes and left-over processes may keep its exit from being told."""
STREAMS = ("stdout", "stderr")

EXIT_UNKNOWN = "its exit code is not known"


class StartFailed(Exception):
    """The task could not be started; the text says at which step and why."""


StartDone = Callable[[TaskInfo | StartFailed], None]


class Task:
    """One task and its present state in memory; `record` is what the journal knows.

    tidied: forget it as soon as it has ended. lost: its pid was not watched all the time and may be another's by now.
    """

    __slots__ = (
        "adopted_fd",
        "drain",
        "ending",
        "kill_timer",
        "launcher",
        "lost",
        "pumps",
        "record",
        "starting",
        "status_fd",
        "tidied",
    )

    def __init__(self, record: TaskRecord) -> None:
        self.record = record
        self.pumps: dict[str, LogPump] = {}
        self.starting: list[StartDone] | None = None
        self.launcher: TaskSpec | None = None
        self.ending: Exit | None = None
        self.tidied = False
        self.drain: Timer | None = None
        self.kill_timer: Timer | None = None
        self.adopted_fd = -1
        self.status_fd = -1
        self.lost = False

    def info(self) -> TaskInfo:
        """What the agent hears of it."""
        record = self.record
        return TaskInfo(record.id, record.pid, record.started_at, record.cgroups, record.exit)


class Tasks:
    """All tasks. `told` is called with a TaskInfo for each that has ended, once its exit is durable."""

    def __init__(self, reactor: Reactor, reaper: Reaper, directory: str, told: Callable[[TaskInfo], None]) -> None:
        self._reactor = reactor
        self._reaper = reaper
        self._told = told
        self._tasks: dict[str, Task] = {}
        self._ended: list[Task] = []
        self._boot_id = _boot_id()
        self._cgroup_root = cgroups.tracking_root()
        self.home = Home(self._cgroup_root, cgroups.home(self._cgroup_root))
        self._cpuset_root = cpusets.cpuset_root(self._cgroup_root)
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._directory = directory
        self._journal = JournalFile(directory, self._boot_id, lambda: [task.record for task in self._tasks.values()])

    # ---- what the agent asks

    def start(self, spec: TaskSpec, done: StartDone) -> None:
        """Start a task; `done` hears of it once it runs its command. Asking again for a known task is harmless."""
        known = self._tasks.get(spec.id)
        if known is not None:
            if known.starting is None:
                done(known.info())
            else:
                known.starting.append(done)
            return
        if len(self._tasks) >= TASKS_MAX:
            done(StartFailed(f"{TASKS_MAX} tasks are known to this supervisor already"))
            return
        task = Task(TaskRecord(spec.id, spec.stdout, spec.stderr, bool(spec.pid_file), cgroups=spec.cgroups))
        task.starting = [done]
        self._tasks[spec.id] = task
        try:
            self._launch(task, spec)
        except OSError as error:
            self._fail_start(task, f"cannot start: {error}")

    def info(self, task_id: str) -> TaskInfo | None:
        """A task, or None when it is not known."""
        task = self._tasks.get(task_id)
        return None if task is None or task.starting is not None else task.info()

    def infos(self) -> Iterator[TaskInfo]:
        """All tasks."""
        return (task.info() for task in self._tasks.values() if task.starting is None)

    def signal(self, task_id: str, number: int) -> bool:
        """Send a signal to the task's first process; False when it has ended."""
        task = self._tasks[task_id]
        if task.ending is not None or task.record.exit is not None or task.starting is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            if task.adopted_fd >= 0:
                signal.pidfd_send_signal(task.adopted_fd, number)
            else:
                os.kill(task.record.pid, number)
        return True

    def hold(self, task_id: str, cores: str) -> bool:
        """Let a task run on `cores` only, from now on; False where the host has no cgroups that can. Raises OSError."""
        record = self._tasks[task_id].record
        if record.own_cgroup and self._cpuset_root and record.exit is None:
            cpusets.hold(self._cpuset(task_id), cores, lambda: cgroups.pids(record.own_cgroup))
        return bool(self._cpuset_root)

    def cgroups_of(self, task_id: str) -> tuple[str, ...]:
        """What a process has to join to be among a task's."""
        found = self._tasks[task_id].record.cgroups
        cpuset = self._cpuset(task_id)
        return (*found, cpuset) if cpuset not in found and os.path.isdir(cpuset) else found

    def stop(self, task_id: str, number: int, timeout_s: float) -> None:
        """Signal the first process, and kill the whole tree when it still runs after `timeout_s`."""
        if self.signal(task_id, number):
            task = self._tasks[task_id]
            if task.kill_timer is not None:
                timeout_s = min(timeout_s, task.kill_timer.at - self._reactor.now())
                task.kill_timer.cancel()
            task.kill_timer = self._reactor.after(timeout_s, lambda: self._kill(task))

    def forget(self, task_id: str) -> None:
        """Drop an ended task; one that still runs is killed and dropped once it has ended."""
        task = self._tasks.get(task_id)
        if task is None:
            return
        if task.record.exit is None:
            task.tidied = True
            self._kill(task)
        else:
            self._drop(task)

    # ---- for the server

    @property
    def running(self) -> int:
        """Tasks that have not ended."""
        return sum(task.record.exit is None for task in self._tasks.values())

    @property
    def settled(self) -> bool:
        """Whether no start and no end is under way: a good moment to be replaced."""
        return not any(
            task.starting is not None or (task.ending is not None and task.record.exit is None)
            for task in self._tasks.values()
        )

    def kill_all(self) -> None:
        """Kill every task; they end in their own time."""
        for task in list(self._tasks.values()):
            if task.record.exit is None:
                self._kill(task)

    def settle(self) -> None:
        """At the end of a turn: make exits durable, then tell them."""
        if not self._journal.sync() and self._ended:
            note("journal not written, exits are told all the same")
        ended, self._ended = self._ended, []
        for task in ended:
            self._told(task.info())
            if task.tidied:
                self._drop(task)

    def close(self) -> None:
        """Let go; running tasks go on."""
        for task in list(self._tasks.values()):
            self._finish(task)
        self._journal.sync()
        self._journal.close()
        self.home.close()
        os.close(self._null)
        if self._cgroup_root:
            for directory in {self._cgroup_root, self._cpuset_root} - {""}:
                with contextlib.suppress(OSError):
                    os.rmdir(directory)

    def descriptors(self) -> dict[str, dict[str, int]]:
        """The reading ends of all pipes, for a successor in the same process."""
        return {
            task_id: {stream: pump.fd for stream, pump in task.pumps.items()} for task_id, task in self._tasks.items()
        }

    def deadlines(self) -> dict[str, float]:
        """Seconds until tasks that were told to stop will be killed, for a successor."""
        now = self._reactor.now()
        return {
            task_id: task.kill_timer.at - now
            for task_id, task in self._tasks.items()
            if task.kill_timer is not None and task.record.exit is None
        }

    def recover(self, descriptors: dict[str, dict[str, int]], deadlines: dict[str, float]) -> None:
        """Take up what the journal says, with the open pipes and deadlines of a predecessor in the same process."""
        journal = read_journal(self._directory)
        if journal.damaged:
            note(f"journal had damaged lines count={journal.damaged}")
        same_boot = journal.boot_id == self._boot_id
        for record in journal.tasks.values():
            task = self._tasks[record.id] = Task(record)
            if record.exit is None:
                self._resume(task, same_boot, descriptors.get(record.id, {}))
        for task_id, seconds in deadlines.items():
            if (late := self._tasks.get(task_id)) is not None and late.record.exit is None:
                late.kill_timer = self._reactor.after(seconds, partial(self._kill, late))
        self._reaper.reap()

    # ---- starting

    def _launch(self, task: Task, spec: TaskSpec) -> None:
        own = self._own_cgroup(spec)
        joined = self._with_cores(own, spec) if own else spec.join_cgroups
        task.record = task.record._replace(cgroups=spec.cgroups + ((own,) if own else ()), own_cgroup=own)
        command = spec.command
        if not task.record.cgroups:
            command = command._replace(env={**command.env, MARK: spec.id})
        opened: list[int] = []
        try:
            writers = {stream: self._open_stream(task, stream, opened) for stream in STREAMS}
            self._journal.append(start_record(task.record))
            child = spawn(command, (self._null, writers["stdout"], writers["stderr"]), joined, self.home)
        finally:
            for fd in opened:
                os.close(fd)
        self._reaper.forget_strays(child.pid)
        if spec.pid_file:
            task.launcher = spec
        else:
            self._note_running(task, child.pid)
        if child.status_fd >= 0:
            task.status_fd = child.status_fd
            self._reactor.watch(child.status_fd, READABLE, lambda mask: self._status_ready(task))
        elif task.launcher is None:
            self._started(task)
        self._reaper.expect(child.pid, lambda status: self._child_ended(task, status))

    def _own_cgroup(self, spec: TaskSpec) -> str:
        if not self._cgroup_root or spec.join_cgroups or spec.pid_file:
            return ""
        directory = os.path.join(self._cgroup_root, spec.id)
        return directory if cgroups.make(directory) else ""

    def _with_cores(self, own: str, spec: TaskSpec) -> tuple[str, ...]:
        """The cgroups that a new task joins: its own, and where that does not hold it to its cores, one that does."""
        cpuset = self._cpuset(spec.id)
        if not spec.cores or not cpuset:
            return (own,)
        try:
            cpusets.hold(cpuset, spec.cores, lambda: ())
        except OSError as error:
            note(f"task not held to its cores task={spec.id} cores={spec.cores} reason={error}")
            if own != cpuset:
                cgroups.remove(cpuset)
            return (own,)
        return (own,) if own == cpuset else (own, cpuset)

    def _cpuset(self, task_id: str) -> str:
        return os.path.join(self._cpuset_root, task_id) if self._cpuset_root else ""

    def _remove_cgroups(self, record: TaskRecord) -> None:
        for directory in {record.own_cgroup, self._cpuset(record.id)} - {""} if record.own_cgroup else ():
            cgroups.remove(directory)

    def _open_stream(self, task: Task, stream: str, opened: list[int]) -> int:
        """Open one output pipe and start pumping it; the writing end, or /dev/null when the stream is discarded."""
        files: LogFiles | None = getattr(task.record, stream)
        if files is None:
            return self._null
        reader, writer = open_pipe()
        opened.append(writer)
        task.record = task.record._replace(pipes={**task.record.pipes, stream: pipe_number(reader)})
        self._pump(task, stream, LogPump(reader, files))
        return writer

    def _note_running(self, task: Task, pid: int) -> None:
        task.record = task.record._replace(pid=pid, born=born(pid), started_at=time.time_ns())
        self._journal.append(run_record(task.record))

    def _status_ready(self, task: Task) -> None:
        """The child became its command, or says why not (then its end is reported as a failed start)."""
        self._read_status(task)
        if task.ending is None and task.launcher is None:
            self._started(task)

    def _read_status(self, task: Task) -> None:
        if task.status_fd < 0:
            return
        self._reactor.unwatch(task.status_fd)
        with contextlib.suppress(BlockingIOError):
            if reason := os.read(task.status_fd, 4096).decode(errors="replace"):
                task.ending = Exit(error=reason)
        os.close(task.status_fd)
        task.status_fd = -1

    def _started(self, task: Task) -> None:
        waiting, task.starting = task.starting or [], None
        for done in waiting:
            done(task.info())

    def _child_ended(self, task: Task, status: int) -> None:
        if task.status_fd >= 0:
            self._status_ready(task)
        if task.launcher is not None:
            self._launcher_ended(task, status)
        elif task.ending is not None:
            self._fail_start(task, task.ending.error)
        else:
            self._begin_ending(task, _exit_of(status))

    def _launcher_ended(self, task: Task, status: int) -> None:
        spec, task.launcher = task.launcher, None
        assert spec is not None
        if task.ending is not None:
            self._fail_start(task, task.ending.error)
        elif (code := os.waitstatus_to_exitcode(status)) != 0:
            self._fail_start(task, _complaint(spec, code))
        else:
            try:
                with open(spec.pid_file) as file:
                    pid = int(file.read())
            except (OSError, ValueError) as error:
                self._fail_start(task, f"{spec.command.argv[0]} left no process id: {error}")
                return
            self._note_running(task, pid)
            self._started(task)
            self._reaper.expect(pid, lambda status: self._begin_ending(task, _exit_of(status)))

    def _fail_start(self, task: Task, reason: str) -> None:
        for directory in task.record.cgroups:
            cgroups.kill(directory)
        self._close_pumps(task)
        waiting, task.starting = task.starting or [], None
        self._drop(task)
        for done in waiting:
            done(StartFailed(reason))

    # ---- output

    def _pump(self, task: Task, stream: str, pump: LogPump) -> None:
        task.pumps[stream] = pump
        self._reactor.watch(pump.fd, READABLE, lambda mask: self._pump_ready(task, stream))

    def _pump_ready(self, task: Task, stream: str) -> None:
        pump = task.pumps[stream]
        if not pump.pump():
            self._reactor.unwatch(pump.fd)
            del task.pumps[stream]
            pump.close()
            self._look_whether_ended(task)

    def _close_pumps(self, task: Task) -> None:
        while task.pumps:
            _, pump = task.pumps.popitem()
            self._reactor.unwatch(pump.fd)
            pump.close()

    # ---- ending

    def _begin_ending(self, task: Task, exit: Exit) -> None:
        """The first process is dead: kill what it left, read its pipes to the end."""
        if task.adopted_fd >= 0:
            self._reactor.unwatch(task.adopted_fd)
            os.close(task.adopted_fd)
            task.adopted_fd = -1
        task.ending = exit
        task.drain = self._reactor.after(DRAIN_S, lambda: self._finish(task))
        self._look_whether_ended(task)

    def _look_whether_ended(self, task: Task) -> None:
        if task.ending is None or task.record.exit is not None or task.starting is not None:
            return
        if not self._kill_tree(task):
            self._again(task)
        elif not task.pumps:
            self._finish(task)

    def _again(self, task: Task) -> None:
        if task.kill_timer is not None:
            task.kill_timer.cancel()
        task.kill_timer = self._reactor.after(KILL_INTERVAL_S, lambda: self._look_whether_ended(task))

    def _finish(self, task: Task) -> None:
        if task.record.exit is not None or task.ending is None:
            return
        for timer in (task.drain, task.kill_timer):
            if timer is not None:
                timer.cancel()
        for pump in task.pumps.values():
            pump.pump()
        self._close_pumps(task)
        killed = cgroups.oom_killed(task.record.cgroups)
        exit = task.ending._replace(oom_killed=killed, finished_at=time.time_ns())
        task.record = task.record._replace(exit=exit)
        self._journal.append(exit_record(task.record.id, exit), durable=True)
        self._ended.append(task)
        self._remove_cgroups(task.record)

    def _kill(self, task: Task) -> None:
        """Kill a task that still runs, again and again until its first process is seen to be dead."""
        if task.ending is not None or task.record.exit is not None:
            return
        self._kill_tree(task)
        task.kill_timer = self._reactor.after(KILL_INTERVAL_S * 5, lambda: self._kill(task))

    def _kill_tree(self, task: Task) -> bool:
        """Send SIGKILL to all of a task's processes; True when there were none."""
        record = task.record
        left = [directory for directory in record.cgroups if not cgroups.kill(directory)]
        members: Iterable[int] = ()
        if not record.own_cgroup and not record.launched:
            members = family(0 if task.lost else record.pid, record.id)
        if task.ending is None and not members and record.pid and born(record.pid) == record.born:
            members = (record.pid,)
        for pid in members:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return not left and not members

    def _drop(self, task: Task) -> None:
        self._tasks.pop(task.record.id, None)
        self._journal.append(forget_record(task.record.id))
        self._remove_cgroups(task.record)

    # ---- coming back

    def _resume(self, task: Task, same_boot: bool, descriptors: dict[str, int]) -> None:
        record = task.record
        if not same_boot:
            task.lost = True
            self._begin_ending(
                task, Exit(code=-1, error=f"the machine was restarted while the task ran; {EXIT_UNKNOWN}")
            )
            return
        self._reopen_streams(task, descriptors)
        if record.pid and born(record.pid) == record.born:
            self._adopt(task)
        elif record.pid and _is_child(record.pid):
            self._reaper.expect(record.pid, lambda status: self._begin_ending(task, _exit_of(status)))
        else:
            task.lost = True
            reason = "ran" if record.pid else "was being started"
            error = f"the supervisor was killed while the task {reason}; {EXIT_UNKNOWN}"
            self._begin_ending(task, Exit(code=-1, error=error))

    def _adopt(self, task: Task) -> None:
        """Watch a process that goes on; only a child's exit code can be learned."""
        pid = task.record.pid
        if _is_child(pid):
            self._reaper.expect(pid, lambda status: self._begin_ending(task, _exit_of(status)))
            return
        error = f"the supervisor was killed while the task ran; {EXIT_UNKNOWN}"
        try:
            task.adopted_fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._begin_ending(task, Exit(code=-1, error=error))
            return
        self._reactor.watch(
            task.adopted_fd, READABLE, lambda mask: self._begin_ending(task, Exit(code=-1, error=error))
        )

    def _reopen_streams(self, task: Task, descriptors: dict[str, int]) -> None:
        """Go on with the pipes of a predecessor: handed over, or found with the task's processes."""
        record = task.record
        for stream, number in record.pipes.items():
            files: LogFiles | None = getattr(record, stream)
            fd = descriptors[stream] if stream in descriptors else find_pipe(number, self._members(record))
            if fd >= 0 and files is not None:
                self._pump(task, stream, LogPump(fd, files))

    @staticmethod
    def _members(record: TaskRecord) -> Iterable[int]:
        """A task's live processes, its first one foremost."""
        if record.pid and born(record.pid) == record.born:
            yield record.pid
        for directory in record.cgroups:
            yield from cgroups.pids(directory)
        if not record.cgroups:
            yield from family(0, record.id)


def _exit_of(status: int) -> Exit:
    code = os.waitstatus_to_exitcode(status)
    return Exit(code=128 - code, signal=-code) if code < 0 else Exit(code=code)


def _complaint(spec: TaskSpec, code: int) -> str:
    """What a launcher that failed had to say."""
    text = ""
    with contextlib.suppress(OSError), open(spec.error_file) as file:
        text = file.read(4096).strip()
    return text or f"{spec.command.argv[0]} ended with exit code {code}"


def _is_child(pid: int) -> bool:
    try:
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
