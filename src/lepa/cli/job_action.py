"""`lepa job action`: a command that the job's author has written down for its people."""

from lepa.cli.alloc import choose_allocation
from lepa.cli.alloc_exec import converse
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json
from lepa.cli.session import Session, api, find_allocation, find_job, job_path
from lepa.model.errors import invalid


@command()
@argument("action", shown="<action>")
@option("job", "The job.", metavar="id")
@option("group", "Only allocations of this group.", metavar="name")
@option("task", "The task, where several have an action of this name.", metavar="name")
@option("alloc", "The allocation; without it, the newest that runs.", metavar="id")
@flag("i", "Send standard input to the command.", default=True)
@flag("t", "Give the command a terminal; decided by whether this is one, unless said.", default=None)
@option("e", "The character that escapes at the beginning of a line; none to turn that off.", default="~", metavar="c")
@api
def action(
    session: Session,
    action: str,
    job: str | None,
    group: str | None,
    task: str | None,
    alloc: str | None,
    i: bool,
    t: bool | None,
    e: str,
) -> int:
    """Run an action of a job inside a running task. The exit code is the command's."""
    if job is None:
        raise invalid("say whose action it is by -job")
    stub = find_job(session, job)
    path, query = job_path(stub, "actions")
    found = _one(session.nomad.get(path, query).value or [], action, group, task)
    if alloc:
        chosen = find_allocation(session, alloc)
    else:
        chosen = choose_allocation(session, stub["ID"], job=True, group=found["TaskGroupName"])
    if chosen["JobID"] != stub["ID"] or chosen["TaskGroup"] != found["TaskGroupName"]:
        raise invalid(f'allocation "{chosen["ID"]}" is not of group "{found["TaskGroupName"]}" of job "{stub["ID"]}"')
    asked = {"action": action, "allocID": chosen["ID"], "task": found["TaskName"]}
    path = job_path(stub, "action")[0]
    return converse(session, chosen["Namespace"], path, asked, interactive=i, terminal=t, escape=e)


def _one(actions: list[Json], name: str, group: str | None, task: str | None) -> Json:
    named = [each for each in actions if each["Name"] == name]
    found = [each for each in named if group in (None, each["TaskGroupName"]) and task in (None, each["TaskName"])]
    if not found:
        known = ", ".join(sorted({str(each["Name"]) for each in actions})) or "none"
        raise invalid(f'the job has no action "{name}" there; it has {known}')
    if len(found) > 1:
        places = ", ".join(f"{each['TaskGroupName']}/{each['TaskName']}" for each in found)
        raise invalid(f'several tasks have an action "{name}" ({places}): choose by -group and -task')
    return found[0]
