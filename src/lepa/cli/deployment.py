"""`lepa deployment …`: deployments."""

from lepa.cli.alloc_view import allocation_table
from lepa.cli.deployment_view import describe
from lepa.cli.flags import argument, command, flag, option, repeated
from lepa.cli.job import deployment_table
from lepa.cli.monitor import Monitor
from lepa.cli.output import Json, short
from lepa.cli.pages import with_ui
from lepa.cli.session import Session, Shape, api, find_deployment, shaped
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import invalid


@command()
@option("filter", "Only those for which this expression holds.", metavar="expression")
@flag("verbose", "Whole ids, and namespaces.")
@shaped
@api
def list_all(session: Session, shape: Shape, filter: str | None, verbose: bool) -> None:
    """List deployments, the newest first."""
    found = session.nomad.get("/v1/deployments", {"filter": filter}).value or []
    if shape:
        session.out.line(shape.render(found))
    else:
        session.out.line(deployment_table(found, verbose) if found else "No deployments found")


@command()
@argument("deployment", required=False)
@flag("monitor", "Follow it until it has ended.")
@option("wait", "With -monitor: pause between two looks.", default="2s", metavar="duration")
@flag("verbose", "Whole ids, and the allocations.")
@shaped
@api
@with_ui("jobs")
def status(session: Session, deployment: str | None, shape: Shape, monitor: bool, wait: str, verbose: bool) -> int:
    """Show a deployment and how far each group is. With -monitor the exit code is 1 when it fails."""
    if deployment is None:
        raise invalid("which deployment? `lepa deployment list` lists them")
    found = find_deployment(session, deployment)
    if shape:
        session.out.line(shape.render(found))
        return 0
    if monitor:
        return Monitor(session, verbose=verbose).deployment(found["ID"], _pause(wait))
    session.out.line(describe(found, verbose))
    if verbose:
        path = f"/v1/deployment/allocations/{found['ID']}"
        allocations = session.nomad.get(path, {"namespace": found["Namespace"]}).value or []
        session.out.title("Allocations")
        session.out.line(allocation_table(allocations, session.now_ns(), verbose=True))
    return 0


def _pause(text: str) -> float:
    try:
        pause_s = parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid(f"-wait: {error}") from error
    if pause_s <= 0:
        raise invalid("-wait is longer than nothing")
    return pause_s


def _change(session: Session, verb: str, deployment: Json, **body: object) -> Json:
    path = f"/v1/deployment/{verb}/{deployment['ID']}"
    answer: Json = session.nomad.put(
        path, {"DeploymentID": deployment["ID"], **body}, {"namespace": deployment["Namespace"]}
    ).value
    return answer


def _followed(session: Session, answer: Json, *, detach: bool, verbose: bool) -> int:
    if not answer.get("EvalID"):
        return 0
    if detach:
        session.out.line(f"Evaluation ID: {answer['EvalID']}")
        return 0
    return Monitor(session, verbose=verbose).evaluation(answer["EvalID"])


@command()
@argument("deployment")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def fail(session: Session, deployment: str, detach: bool, verbose: bool) -> int:
    """End a deployment as failed; where the job says so, it returns to its last good version."""
    found = find_deployment(session, deployment)
    answer = _change(session, "fail", found)
    name = short(found["ID"], verbose)
    reverted = answer.get("RevertedJobVersion")
    session.out.line(f'Deployment "{name}" failed' + ("" if reverted is None else f"; back to version {reverted}"))
    if detach and answer.get("EvalID"):
        session.out.line(f"Evaluation ID: {answer['EvalID']}")
    elif answer.get("EvalID"):
        Monitor(session, verbose=verbose).only_evaluation(answer["EvalID"])
    return 0


@command()
@argument("deployment")
@flag("verbose", "Whole ids.")
@api
def pause(session: Session, deployment: str, verbose: bool) -> None:
    """Pause a deployment: nothing more is placed for it until it is resumed."""
    found = find_deployment(session, deployment)
    _change(session, "pause", found, Pause=True)
    session.out.line(f'Deployment "{short(found["ID"], verbose)}" paused')


@command()
@argument("deployment")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def resume(session: Session, deployment: str, detach: bool, verbose: bool) -> int:
    """Let a paused deployment go on."""
    found = find_deployment(session, deployment)
    answer = _change(session, "pause", found, Pause=False)
    session.out.line(f'Deployment "{short(found["ID"], verbose)}" resumed')
    return _followed(session, answer, detach=detach, verbose=verbose)


@command()
@argument("deployment")
@repeated("group", "Only this group.", metavar="name")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def promote(session: Session, deployment: str, group: tuple[str, ...], detach: bool, verbose: bool) -> int:
    """Promote the canaries of a deployment: the new version takes over."""
    found = find_deployment(session, deployment)
    answer = _change(session, "promote", found, All=not group, Groups=list(group))
    return _followed(session, answer, detach=detach, verbose=verbose)


@command()
@argument("deployment")
@flag("detach", "Do not wait: print the id of the evaluation and return.")
@flag("verbose", "Whole ids.")
@api
def unblock(session: Session, deployment: str, detach: bool, verbose: bool) -> int:
    """Let a deployment go on that waits for other regions."""
    found = find_deployment(session, deployment)
    answer = _change(session, "unblock", found)
    return _followed(session, answer, detach=detach, verbose=verbose)
