"""`lepa alloc …`: looking at allocations and steering them."""

from collections.abc import Iterator
from typing import Any

from lepa.cli import placement
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.monitor import Monitor
from lepa.cli.output import Json, ago, megabytes, moment, paint, pairs, short, size, table
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, Shape, api, find_allocation, find_job, job_path, shaped
from lepa.kit.durations import SECOND, ZERO_TIME, rfc3339
from lepa.model.errors import LepaError, invalid, not_found

EVENTS_SHOWN = 10


def choose_allocation(session: Session, name: str, *, job: bool = False, group: str | None = None) -> Json:
    """The allocation that a prefix means; with job, the newest running one of a job."""
    if group and not job:
        raise invalid("-group is for -job: an allocation is in one group")
    if not job:
        return find_allocation(session, name)
    stub = find_job(session, name)
    path, query = job_path(stub, "allocations")
    found = [each for each in session.nomad.get(path, query).value or [] if group in (None, each["TaskGroup"])]
    running = [each for each in found if each["ClientStatus"] == "running"]
    if not running:
        of_group = f' in group "{group}"' if group else ""
        raise not_found(f'job "{stub["ID"]}" has no running allocations{of_group}')
    newest = max(running, key=lambda each: each["CreateIndex"])
    full: Json = session.nomad.get(f"/v1/allocation/{newest['ID']}", query).value
    return full


def task_of(allocation: Json, named: str | None) -> str:
    """The task that is meant: the named one, or the only one."""
    names = _task_names(allocation)
    if named:
        if names and named not in names:
            raise invalid(f'allocation "{short(allocation["ID"])}" has no task "{named}"; it has {", ".join(names)}')
        return named
    if len(names) != 1:
        raise invalid(f'allocation "{short(allocation["ID"])}" has several tasks: name one of {", ".join(names)}')
    return names[0]


def _task_names(allocation: Json) -> list[str]:
    for group in (allocation.get("Job") or {}).get("TaskGroups") or ():
        if group["Name"] == allocation["TaskGroup"]:
            return [task["Name"] for task in group["Tasks"]]
    return sorted(allocation.get("TaskStates") or {})


# Status


@command()
@argument("allocation", required=False)
@flag("short", "Only the head and the states of the tasks.")
@flag("verbose", "Whole ids and times, and how nodes scored.")
@flag("stats", "With the present use of each task.")
@shaped
@api
@with_ui("jobs")
def status(session: Session, allocation: str | None, shape: Shape, short: bool, verbose: bool, stats: bool) -> None:
    """Show an allocation: its state, its addresses, its tasks and what happened to them.

    Without an allocation, and with -json or -t, all are printed.
    """
    if allocation is None:
        if not shape:
            raise invalid("which allocation? `lepa job status JOB` lists a job's")
        session.out.line(shape.render(list(session.nomad.pages("/v1/allocations"))))
        return
    found = find_allocation(session, allocation)
    if shape:
        session.out.line(shape.render(found))
        return
    session.out.line(pairs(_head(found, session.now_ns(), verbose)))
    _show_addresses(session, found)
    if short:
        _show_states(session, found)
        return
    usage = _usage(session, found) if stats or found.get("ClientStatus") == "running" else {}
    for name in _task_names(found):
        _show_task(session, found, name, usage.get(name) or {})
    _show_placement(session, found, verbose)


def _head(allocation: Json, now_ns: int, verbose: bool) -> Iterator[tuple[str, object]]:
    yield "ID", allocation["ID"]
    yield "Eval ID", short(allocation.get("EvalID", ""), verbose)
    yield "Name", allocation["Name"]
    yield "Node ID", short(allocation["NodeID"], verbose)
    yield "Node Name", allocation.get("NodeName", "")
    yield "Job ID", allocation["JobID"]
    yield "Job Version", (allocation.get("Job") or {}).get("Version", allocation.get("JobVersion", 0))
    yield "Client Status", allocation.get("ClientStatus", "")
    yield "Client Description", allocation.get("ClientDescription", "")
    yield "Desired Status", allocation.get("DesiredStatus", "")
    yield "Desired Description", allocation.get("DesiredDescription", "")
    yield "Created", _when(allocation.get("CreateTime", 0), now_ns, verbose)
    yield "Modified", _when(allocation.get("ModifyTime", 0), now_ns, verbose)
    if deployment := allocation.get("DeploymentID"):
        yield "Deployment ID", short(deployment, verbose)
        healthy = (allocation.get("DeploymentStatus") or {}).get("Healthy")
        yield "Deployment Health", {None: "unset", True: "healthy", False: "unhealthy"}[healthy]
        if (allocation.get("DeploymentStatus") or {}).get("Canary"):
            yield "Canary", True
    if replacement := allocation.get("NextAllocation"):
        yield "Replacement Alloc ID", short(replacement, verbose)
    if followup := allocation.get("FollowupEvalID"):
        yield "Reschedule Eval ID", short(followup, verbose)
    if attempts := (allocation.get("RescheduleTracker") or {}).get("Events"):
        yield "Reschedule Attempts", len(attempts)
    if evicted_by := allocation.get("PreemptedByAllocation"):
        yield "Evicted By", short(evicted_by, verbose)


def _when(value: int, now_ns: int, verbose: bool) -> str:
    return rfc3339(value // SECOND * SECOND) if verbose else ago(moment(value), now_ns)


def _show_addresses(session: Session, allocation: Json) -> None:
    shared = (allocation.get("AllocatedResources") or {}).get("Shared") or {}
    dynamic = {port["Label"] for network in shared.get("Networks") or () for port in network.get("DynamicPorts") or ()}
    rows = []
    for port in shared.get("Ports") or ():
        inside = f" -> {port['To']}" if port.get("To", 0) > 0 else ""
        address = f"{port.get('HostIP', '')}:{port['Value']}{inside}"
        rows.append((f"*{port['Label']}", "yes" if port["Label"] in dynamic else "no", address))
    if rows:
        session.out.title("Allocation Addresses:")
        session.out.line(table(("Label", "Dynamic", "Address"), rows))


def _show_states(session: Session, allocation: Json) -> None:
    states = allocation.get("TaskStates") or {}
    if states:
        rows = [(name, state["State"], _last_event(state)) for name, state in sorted(states.items())]
        session.out.title("Tasks")
        session.out.line(table(("Name", "State", "Last Event"), rows))


def _last_event(state: Json) -> str:
    events = state.get("Events") or ()
    return str(events[-1]["Type"]) if events else ""


def _usage(session: Session, allocation: Json) -> dict[str, Json]:
    """Present use by task; nothing where the node cannot be asked now."""
    query = {"namespace": allocation["Namespace"]}
    try:
        answer = session.nomad.get(f"/v1/client/allocation/{allocation['ID']}/stats", query).value
    except LepaError:
        return {}
    return answer.get("Tasks") or {}


def _show_task(session: Session, allocation: Json, name: str, usage: Json) -> None:
    out = session.out
    state = (allocation.get("TaskStates") or {}).get(name) or {}
    out.title(f'Task "{name}" is "{state.get("State", "pending")}"')
    out.line("Task Resources:")
    out.line(_resources(allocation, name, usage.get("ResourceUsage") or {}))
    if not state:
        return
    out.line("\nTask Events:")
    out.line(
        pairs(
            [
                ("Started At", _time(state.get("StartedAt"))),
                ("Finished At", _time(state.get("FinishedAt"))),
                ("Total Restarts", state.get("Restarts", 0)),
                ("Last Restart", _time(state.get("LastRestart"))),
            ]
        )
    )
    events = [
        (rfc3339(event["Time"] // SECOND * SECOND), event["Type"], _description(event))
        for event in reversed((state.get("Events") or [])[-EVENTS_SHOWN:])
    ]
    out.line("\nRecent Events:")
    out.line(table(("Time", "Type", "Description"), events))


def _time(value: str | None) -> str:
    return "N/A" if not value or value == ZERO_TIME else value[:19] + "Z"


def _description(event: Json) -> str:
    return str(event.get("DisplayMessage") or event.get("Message") or "")


def _resources(allocation: Json, task: str, usage: Json) -> str:
    resources = allocation.get("AllocatedResources") or {}
    given = (resources.get("Tasks") or {}).get(task) or {}
    cpu = f"{(given.get('Cpu') or {}).get('CpuShares', 0)} MHz"
    memory = megabytes((given.get("Memory") or {}).get("MemoryMB", 0))
    if used := usage.get("CpuStats"):
        cpu = f"{used.get('TotalTicks', 0):.0f}/{cpu}"
    if used := usage.get("MemoryStats"):
        memory = f"{size(used.get('Usage') or used.get('RSS') or 0)}/{memory}"
    disk = megabytes((resources.get("Shared") or {}).get("DiskMB", 0))
    return table(("CPU", "Memory", "Disk"), [(cpu, memory, disk)])


def _show_placement(session: Session, allocation: Json, verbose: bool) -> None:
    metrics = allocation.get("Metrics") or {}
    if not verbose or not metrics.get("ScoreMetaData"):
        return
    session.out.title("Placement Metrics")
    session.out.line(table(*placement.scores(metrics)))


# Steering


@command()
@argument("allocation", shown="<allocation>")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("no-shutdown-delay", "Do not wait between taking a service's name away and stopping its tasks.")
@flag("verbose", "Whole ids.")
@api
def stop(session: Session, allocation: str, detach: bool, no_shutdown_delay: bool, verbose: bool) -> int:
    """Stop an allocation; its job replaces it where it still has to."""
    found = find_allocation(session, allocation)
    query = {"namespace": found["Namespace"], "no_shutdown_delay": no_shutdown_delay}
    answer = session.nomad.put(f"/v1/allocation/{found['ID']}/stop", None, query).value
    if detach:
        session.out.line(f"Evaluation ID: {answer['EvalID']}")
        return 0
    return Monitor(session, verbose=verbose).evaluation(answer["EvalID"])


@command()
@argument("allocation", shown="<allocation>")
@argument("named", required=False, shown="[task]")
@option("task", "Only this task.", metavar="name")
@flag("all-tasks", "Tasks that have ended, too.")
@flag("verbose", "Accepted: ids are not printed.", hidden=True)
@api
def restart(
    session: Session, allocation: str, named: str | None, task: str | None, all_tasks: bool, verbose: bool
) -> None:
    """Restart the running tasks of an allocation in place, or one of them."""
    wanted = task or named
    if wanted and all_tasks:
        raise invalid("a task cannot be named together with -all-tasks")
    found = find_allocation(session, allocation)
    name = task_of(found, wanted) if wanted else ""
    body = {"TaskName": name, "AllTasks": all_tasks}
    session.nomad.put(f"/v1/client/allocation/{found['ID']}/restart", body, {"namespace": found["Namespace"]})


@command()
@argument("allocation", shown="<allocation>")
@argument("named", required=False, shown="[task]")
@option("s", "The signal.", default="SIGKILL", metavar="name")
@option("task", "Only this task.", metavar="name")
@flag("verbose", "Accepted: ids are not printed.", hidden=True)
@api
def signal(session: Session, allocation: str, named: str | None, s: str, task: str | None, verbose: bool) -> None:
    """Send a signal to all tasks of an allocation, or to one of them."""
    found = find_allocation(session, allocation)
    name = task_of(found, task or named) if task or named else ""
    body = {"Signal": s, "Task": name}
    session.nomad.put(f"/v1/client/allocation/{found['ID']}/signal", body, {"namespace": found["Namespace"]})


# Checks


@command()
@argument("allocation", shown="<allocation>")
@flag("verbose", "With what each check said.")
@shaped
@api
def checks(session: Session, allocation: str, shape: Shape, verbose: bool) -> None:
    """Show the health checks of an allocation's services, as its node last saw them."""
    found = find_allocation(session, allocation)
    results: dict[str, Any] = (
        session.nomad.get(f"/v1/client/allocation/{found['ID']}/checks", {"namespace": found["Namespace"]}).value or {}
    )
    if shape:
        session.out.line(shape.render(results))
        return
    if not results:
        session.out.line("No checks found")
        return
    ordered = sorted(results.values(), key=lambda each: (each["Service"], each["Task"], each["Check"]))
    rows = [
        (each["Service"], each["Task"] or "(group)", each["Check"], each["Mode"], each["Status"]) for each in ordered
    ]
    session.out.line(f"Status of {len(results)} Nomad Service Checks\n")
    session.out.line(table(("Service", "Task", "Name", "Mode", "Status"), rows))
    if verbose:
        for each in ordered:
            session.out.title(f"Output of {each['Check']}")
            session.out.line(paint(each.get("Output", ""), "dim"))
