"""`lepa job restart`: the running allocations of a job, a batch at a time."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass

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
@option("on-error", "What follows a failure: ask at a terminal, fail, continue.", default="ask", metavar="ask|fail")
@repeated("group", "Only this group.", metavar="name")
@repeated("task", "Only this task.", metavar="name")
@flag("yes", "Accepted: nothing is asked.", hidden=True)
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
    on_error: str,
    group: tuple[str, ...],
    task: tuple[str, ...],
    yes: bool,
    verbose: bool,
) -> int:
    """Restart the running allocations of a job in place, or with -reschedule replace them, batch by batch."""
    if task and (all_tasks or reschedule):
        raise invalid("-task cannot be combined with -all-tasks or -reschedule")
    wait_s = 0.0 if batch_wait == ASK else _seconds(batch_wait)
    if on_error not in (ASK, "fail", "continue"):
        raise invalid(f'-on-error is ask, fail or continue, not "{on_error}"')
    path, query = job_path(find_job(session, job), "allocations")
    running = [each for each in session.nomad.get(path, query).value or [] if _runs(each, group)]
    if not running:
        session.out.line("No allocations to restart")
        return 0
    at_once = _batch(batch_size, len(running))
    restarts = Restarts(session, query, task or ("",), all_tasks, reschedule, no_shutdown_delay, verbose)
    failed = False
    for first in range(0, len(running), at_once):
        if first and wait_s:
            session.sleep(wait_s)
        if first and batch_wait == ASK and not confirmed(f"{first} of {len(running)} restarted. Go on?"):
            break
        well = restarts.batch(running[first : first + at_once])
        failed = failed or not well
        more = first + at_once < len(running)
        if not well and not (more and _goes_on(on_error)):
            break
    return 1 if failed else 0


def _goes_on(on_error: str) -> bool:
    """Whether the next batch follows a failure."""
    if on_error == ASK and sys.stdin.isatty():
        return confirmed("Some allocations could not be restarted. Go on with the next?")
    return on_error == "continue"


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

    def batch(self, allocations: Sequence[Json]) -> bool:
        """Restart some allocations; whether all went well."""
        well = True
        for each in allocations:
            try:
                self._replace(each) if self.reschedule else self._in_place(each)
            except LepaError as error:
                name = short(each["ID"], self.verbose)
                self.session.out.error(f'Error restarting allocation "{name}": {error.message}')
                well = False
        return well

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
