"""`lepa job …`: changing jobs that the servers know."""

import base64
from collections.abc import Sequence
from typing import Any

from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.job import version_of
from lepa.cli.monitor import Monitor
from lepa.cli.output import Json, short
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, api, confirmed, find_job, job_path, read_input
from lepa.model.errors import invalid

PAYLOAD_MAX = 16 * 1024


def follow(session: Session, evaluation: str, *, detach: bool, verbose: bool) -> int:
    """Follow the evaluation of a change, or with detach name it."""
    if not evaluation:
        return 0
    if detach:
        session.out.line(f"Evaluation ID: {evaluation}")
        return 0
    return Monitor(session, verbose=verbose).evaluation(evaluation)


@command()
@argument("jobs", many=True, shown="<job> ...")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@flag("purge", "Forget the job at once, its history with it.")
@flag("global", "In all regions of a job of several.")
@flag("no-shutdown-delay", "Do not wait between taking a service's name away and stopping its tasks.")
@flag("yes", "Ask nothing.")
@option("eval-priority", "Priority of the evaluation, 1 to 100.", kind=int, metavar="number")
@api
def stop(
    session: Session,
    jobs: tuple[str, ...],
    detach: bool,
    verbose: bool,
    purge: bool,
    no_shutdown_delay: bool,
    yes: bool,
    eval_priority: int | None,
    **others: bool,
) -> int:
    """Stop jobs, and wait until the servers have seen to it.

    When a prefix names a job that is called otherwise, a person at a terminal is asked first; -yes answers.
    """
    codes = []
    for name in jobs:
        stub = find_job(session, name)
        if stub["ID"] != name and not yes and not confirmed(f'Stop job "{stub["ID"]}"?'):
            session.out.line("Cancelling job stop")
            continue
        path, query = job_path(stub)
        asked = {"purge": purge, "global": others["global"], "no_shutdown_delay": no_shutdown_delay}
        answer = session.nomad.delete(path, {**query, **asked, "eval_priority": eval_priority}).value
        codes.append(follow(session, answer["EvalID"], detach=detach, verbose=verbose))
    return max(codes, default=0)


@command()
@argument("jobs", many=True, shown="<job> ...")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def start(session: Session, jobs: tuple[str, ...], detach: bool, verbose: bool) -> int:
    """Start stopped jobs again, as they were when they last ran."""
    codes = []
    for name in jobs:
        path, query = job_path(find_job(session, name))
        job = session.nomad.get(path, query).value
        if not job["Stop"]:
            raise invalid(f'job "{job["ID"]}" is not stopped')
        answer = session.nomad.put("/v1/jobs", {"Job": {**job, "Stop": False}}, query).value
        codes.append(follow(session, answer["EvalID"], detach=detach, verbose=verbose))
    return max(codes, default=0)


@command()
@argument("job")
@argument("version", shown="<version|tag>")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def revert(session: Session, job: str, version: str, detach: bool, verbose: bool) -> int:
    """Return to an earlier version of a job, which becomes its newest one."""
    stub = find_job(session, job)
    path, query = job_path(stub, "revert")
    body = {"JobID": stub["ID"], "JobVersion": _version_number(session, stub, version)}
    answer = session.nomad.put(path, body, query).value
    return follow(session, answer["EvalID"], detach=detach, verbose=verbose)


def _version_number(session: Session, stub: Json, version: str) -> int:
    if version.isdigit():
        return int(version_of(session, stub, int(version))["Version"])
    path, query = job_path(stub, "versions")
    for each in session.nomad.get(path, query).value["Versions"]:
        if (each.get("VersionTag") or {}).get("Name") == version:
            return int(each["Version"])
    raise invalid(f'job "{stub["ID"]}" has no version tagged "{version}"; `lepa job history` lists its versions')


@command()
@argument("job")
@argument("words", many=True, shown="[group] <count>")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@option("check-index", "Scale only if the job has this modify index.", kind=int, metavar="index")
@api
def scale(
    session: Session, job: str, words: tuple[str, ...], detach: bool, verbose: bool, check_index: int | None
) -> int:
    """Set the count of a group; a job of one group needs no group name."""
    stub = find_job(session, job)
    group, count = _scaled(session, stub, words)
    path, query = job_path(stub, "scale")
    body = {
        "Count": count,
        "Target": {"Namespace": stub["Namespace"], "Job": stub["ID"], "Group": group},
        "Message": "submitted using the lepa CLI",
        "JobModifyIndex": check_index or 0,
        "EnforceIndex": check_index is not None,
    }
    answer = session.nomad.put(path, body, query).value
    return follow(session, answer["EvalID"], detach=detach, verbose=verbose)


def _scaled(session: Session, stub: Json, words: Sequence[str]) -> tuple[str, int]:
    if len(words) > 2 or not words[-1].isdigit():
        raise invalid(f'job scale wants [group] <count>, such as "web 3", not "{" ".join(words)}"')
    if len(words) == 2:
        return words[0], int(words[1])
    path, query = job_path(stub)
    groups = [group["Name"] for group in session.nomad.get(path, query).value["TaskGroups"]]
    if len(groups) != 1:
        raise invalid(f'job "{stub["ID"]}" has several groups ({", ".join(groups)}): name one before the count')
    return groups[0], int(words[0])


@command()
@argument("job")
@flag("force-reschedule", "Move failed allocations now, whatever their policy says.")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def evaluate(session: Session, job: str, force_reschedule: bool, detach: bool, verbose: bool) -> int:
    """Let the servers look at a job again and place what is missing."""
    stub = find_job(session, job)
    path, query = job_path(stub, "evaluate")
    body = {"JobID": stub["ID"], "EvalOptions": {"ForceReschedule": force_reschedule}}
    answer = session.nomad.put(path, body, query).value
    return follow(session, answer["EvalID"], detach=detach, verbose=verbose)


@command()
@argument("job")
@argument("payload", required=False, shown="[payload file|-]")
@repeated("meta", "Metadata of the instance.", metavar="key=value")
@option("idempotency-token", "Dispatch once only for the same token.", default="", metavar="text")
@option("id-prefix-template", "Beginning of the instance's id.", default="", metavar="template")
@option("priority", "Priority of the instance.", kind=int, default=0, metavar="number")
@flag("wait", "Wait until the instance has ended; the exit code is 1 when a part of it failed.")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
@with_ui("jobs")
def dispatch(
    session: Session,
    job: str,
    payload: str | None,
    meta: tuple[str, ...],
    idempotency_token: str,
    id_prefix_template: str,
    priority: int,
    wait: bool,
    detach: bool,
    verbose: bool,
) -> int:
    """Start an instance of a parameterized job, with a payload from a file or standard input (-)."""
    stub = find_job(session, job)
    body: dict[str, Any] = {
        "JobID": stub["ID"],
        "Payload": base64.b64encode(_payload(payload)).decode(),
        "Meta": dict(_meta(each) for each in meta),
        "IdPrefixTemplate": id_prefix_template,
        "Priority": priority,
    }
    path, query = job_path(stub, "dispatch")
    answer = session.nomad.put(path, body, {**query, "idempotency_token": idempotency_token or None}).value
    evaluation = answer["EvalID"]
    session.out.line(f"Dispatched Job ID = {answer['DispatchedJobID']}")
    if evaluation:
        session.out.line(f"Evaluation ID     = {short(evaluation, verbose)}")
    code = 0
    if not detach and evaluation:
        session.out.line()
        code = Monitor(session, verbose=verbose).evaluation(evaluation)
    return _await_end(session, answer["DispatchedJobID"], stub["Namespace"]) if wait and code == 0 else code


def _await_end(session: Session, job_id: str, namespace: str) -> int:
    """Wait until a job is dead; 1 when one of its allocations failed or was lost."""
    path, query = job_path({"ID": job_id, "Namespace": namespace})
    answer = session.nomad.get(path, query)
    while answer.value["Status"] != "dead":
        answer = session.nomad.get(path, {**query, "index": answer.index, "wait": "60s"})
    summary = session.nomad.get(job_path({"ID": job_id, "Namespace": namespace}, "summary")[0], query).value
    unwell = sum(group["Failed"] + group["Lost"] for group in (summary.get("Summary") or {}).values())
    session.out.line(f'Job "{job_id}" finished with {unwell} failed allocations')
    return 1 if unwell else 0


def _payload(name: str | None) -> bytes:
    data = b"" if name is None else read_input(name)
    if len(data) > PAYLOAD_MAX:
        raise invalid(f"Payload exceeds maximum size; {len(data)} > {PAYLOAD_MAX}")
    return data


def _meta(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise invalid(f'-meta wants key=value, not "{text}"')
    return key, value


@command()
@argument("job")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def force(session: Session, job: str, detach: bool, verbose: bool) -> int:
    """Start a periodic job now, whatever its schedule says."""
    path, query = job_path(find_job(session, job), "periodic/force")
    answer = session.nomad.put(path, None, query).value
    return follow(session, answer["EvalID"], detach=detach, verbose=verbose)


@command()
@argument("job")
@repeated("group", "Only this group.", metavar="name")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def promote(session: Session, job: str, group: tuple[str, ...], detach: bool, verbose: bool) -> int:
    """Promote the canaries of a job's latest deployment: the new version takes over."""
    stub = find_job(session, job)
    path, query = job_path(stub, "deployment")
    latest = session.nomad.get(path, query).value
    if latest is None:
        raise invalid(f'job "{stub["ID"]}" has no deployment')
    body = {"DeploymentID": latest["ID"], "All": not group, "Groups": list(group)}
    answer = session.nomad.put(f"/v1/deployment/promote/{latest['ID']}", body, query).value
    return follow(session, answer["EvalID"], detach=detach, verbose=verbose)
