"""`lepa job restart`: the running allocations of a job, a batch at a time.

Whoever interrupts it at a terminal is asked whether to leave: it goes on where it was, or ends with what is done.
"""

import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.output import Json, short
from lepa.cli.session import Session, api, confirmed, find_job, job_path
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import LepaError, invalid

POLL_S = 0.2
ASK = "ask"
LOOKS_MAX = 1500
"""How often a replacement is looked at until it runs."""


@command()
@argument("job")
@flag("all-tasks", "Tasks that have ended, too.")
@flag("reschedule", "Stop the allocations, and let the job replace them.")
@flag("no-shutdown-delay", "With -reschedule: do not wait before stopping.")
@option("batch-size", "Allocations at a time, as a number or as a share such as 25%.", default="1", metavar="count")
@option("batch-wait", "Pause between batches, or ask before each.", default="0s", metavar="duration|ask")
@option("on-error", "What follows a failure: ask, fail or continue; ask unless -yes.", metavar="ask|fail|continue")
@repeated("group", "Only this group.", metavar="name")
@repeated("task", "Only this task.", metavar="name")
@flag("yes", "Ask nothing: go on without waiting, also after failures, unless -batch-wait or -on-error say otherwise.")
@flag("verbose", "Whole ids.")
@api
def restart(
    session: Session,
    job: str,
    all_tasks: bool,
    reschedule: bool,
    no_shutdown_delay: bool,
    batch_size: str,
    batch_wait: str,
    on_error: str | None,
    group: tuple[str, ...],
    task: tuple[str, ...],
    yes: bool,
    verbose: bool,
) -> int:
    """Restart the running allocations of a job in place, or with -reschedule replace them, batch by batch."""
    if task and (all_tasks or reschedule):
        raise invalid("-task cannot be combined with -all-tasks or -reschedule")
    if on_error not in (None, ASK, "fail", "continue"):
        raise invalid(f'-on-error is ask, fail or continue, not "{on_error}"')
    pauses = Pauses(session, batch_wait, on_error or ("continue" if yes else ASK))
    stub = find_job(session, job)
    _check(session, stub, group, task, reschedule=reschedule)
    path, query = job_path(stub, "allocations")
    running = [each for each in session.nomad.get(path, query).value or [] if _runs(each, group)]
    if not running:
        session.out.line("No allocations to restart")
        return 0
    at_once = _batch(batch_size, len(running))
    restarts = Restarts(session, query, task or ("",), all_tasks, reschedule, no_shutdown_delay, verbose)
    with pauses.interruptible():
        return _all(restarts, pauses, [running[first : first + at_once] for first in range(0, len(running), at_once)])


def _all(restarts: "Restarts", pauses: "Pauses", batches: Sequence[Sequence[Json]]) -> int:
    """Restart batch after batch; the exit code."""
    failed, done = False, 0
    total = sum(len(batch) for batch in batches)
    for batch in batches:
        if done and not pauses.between(done, total):
            break
        well = True
        for each in batch:
            if pauses.interrupted and not pauses.goes_on(done, total):
                return 1
            well = restarts.one(each) and well
            done += 1
        failed = failed or not well
        if not well and (done == total or not pauses.after_failure()):
            break
    return 1 if failed else 0


def _check(session: Session, stub: Json, groups: Sequence[str], tasks: Sequence[str], *, reschedule: bool) -> None:
    """Raise LepaError for groups and tasks that the job does not have, and where nothing can be rescheduled."""
    if not groups and not tasks and not reschedule:
        return
    path, query = job_path(stub)
    job: Json = session.nomad.get(path, query).value
    if reschedule and job.get("Type") == "sysbatch":
        raise invalid('Jobs of type "sysbatch" are not allowed to be rescheduled')
    known = {group["Name"]: {task["Name"] for task in group["Tasks"]} for group in job.get("TaskGroups") or ()}
    for name in groups:
        if name not in known:
            raise invalid(f'the job has no group "{name}"; it has {", ".join(known)}')
    within = set().union(*(known[name] for name in groups or known)) if known else set()
    for name in tasks:
        if name not in within:
            raise invalid(f'no task "{name}" is there; the tasks are {", ".join(sorted(within))}')


@dataclass
class Pauses:
    """What happens between batches, after failures, and when somebody interrupts. wait: a duration, or ask."""

    session: Session
    wait: str
    on_error: str
    interrupted: bool = False
    wait_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.wait_s = 0.0 if self.wait == ASK else _seconds(self.wait)

    def between(self, done: int, total: int) -> bool:
        """Wait or ask before the next batch; whether there is to be one. A duration for an answer holds from now on."""
        if self.wait == ASK:
            return self._answer(f"{done} of {total} restarted. Go on?")
        for _ in range(int(self.wait_s / POLL_S)):
            if self.interrupted:
                return self.goes_on(done, total)
            self.session.sleep(POLL_S)
        self.session.sleep(self.wait_s % POLL_S)
        return True

    def after_failure(self) -> bool:
        """Whether the next batch follows a failure."""
        if self.on_error == ASK and sys.stdin.isatty():
            return self._answer("Some allocations could not be restarted. Go on with the next?")
        return self.on_error == "continue"

    def goes_on(self, done: int, total: int) -> bool:
        """Ask whoever has interrupted."""
        self.interrupted = False
        return self._answer(f"Interrupted with {done} of {total} restarted. Go on?")

    def _answer(self, question: str) -> bool:
        if not sys.stdin.isatty():
            return confirmed(question)
        said = input(f"{question} [y/N/<wait duration>] ").strip().lower()
        if said[:1].isdigit():
            self.wait, self.wait_s = said, _seconds(said)
            return True
        return said in ("y", "yes")

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """At a terminal an interruption waits for the allocation at hand; a second one before that ends everything."""
        if not sys.stdin.isatty():
            yield
            return

        def note(number: int, frame: FrameType | None) -> Any:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted = True

        before = signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def _runs(stub: Json, groups: Sequence[str]) -> bool:
    wanted = not groups or stub["TaskGroup"] in groups
    return wanted and stub["ClientStatus"] == "running" and stub["DesiredStatus"] == "run"


def _seconds(text: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid(f"-batch-wait: {error}") from error


def _batch(text: str, total: int) -> int:
    """How many allocations of `total` are one batch."""
    number = text.removesuffix("%")
    if not number.isdigit() or int(number) == 0:
        raise invalid(f'-batch-size is a number above 0, or a share such as 25%, not "{text}"')
    return max(1, -(-total * int(number) // 100)) if text.endswith("%") else int(number)


@dataclass(frozen=True)
class Restarts:
    """How allocations are restarted. tasks: their names, or one empty name for all."""

    session: Session
    query: dict[str, str]
    tasks: Sequence[str]
    all_tasks: bool
    reschedule: bool
    no_shutdown_delay: bool
    verbose: bool

    def one(self, stub: Json) -> bool:
        """Restart an allocation; whether that went well."""
        try:
            self._replace(stub) if self.reschedule else self._in_place(stub)
        except LepaError as error:
            name = short(stub["ID"], self.verbose)
            self.session.out.error(f'Error restarting allocation "{name}": {error.message}')
            return False
        return True

    def _in_place(self, stub: Json) -> None:
        for task in self.tasks:
            self._tell(stub, f"Restarting {f'task {task!r}' if task else 'all tasks'} of")
            body = {"TaskName": task, "AllTasks": self.all_tasks}
            self.session.nomad.put(f"/v1/client/allocation/{stub['ID']}/restart", body, self.query)

    def _replace(self, stub: Json) -> None:
        self._tell(stub, "Rescheduling")
        asked: dict[str, str | bool] = {**self.query, "no_shutdown_delay": self.no_shutdown_delay}
        self.session.nomad.put(f"/v1/allocation/{stub['ID']}/stop", None, asked)
        self._await_replacement(stub["ID"])

    def _tell(self, stub: Json, doing: str) -> None:
        name = short(stub["ID"], self.verbose)
        self.session.out.line(f'{doing} allocation "{name}", group "{stub["TaskGroup"]}"')
        self.session.out.flush()

    def _await_replacement(self, identifier: str) -> None:
        """Return when what replaces an allocation runs."""
        following = ""
        for _ in range(LOOKS_MAX):
            if not following:
                following = self._read(identifier).get("NextAllocation", "")
            if following:
                status = self._read(following)["ClientStatus"]
                if status == "running":
                    return
                if status == "failed":
                    raise LepaError("internal", f'its replacement "{short(following)}" failed')
            self.session.sleep(POLL_S)
        raise LepaError("timeout", "it was not replaced in time")

    def _read(self, identifier: str) -> Json:
        found: Json = self.session.nomad.get(f"/v1/allocation/{identifier}", self.query).value
        return found
