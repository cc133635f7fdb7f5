"""`lepa job tag …`: names for versions of a job."""

from typing import Any

from lepa.cli.flags import argument, command, option
from lepa.cli.session import Session, api, find_job, job_path, segment
from lepa.model.errors import invalid


@command()
@argument("job")
@option("name", "The tag's name.", metavar="name")
@option("description", "What the version is.", default="", metavar="text")
@option("version", "The version's number; without it, the newest.", kind=int, metavar="number")
@api
def apply(session: Session, job: str, name: str | None, description: str, version: int | None) -> None:
    """Name a version of a job. A version with a name is kept, and `job revert` takes the name for it."""
    if not name:
        raise invalid("give the tag a -name")
    stub = find_job(session, job)
    path, query = job_path(stub, "versions", segment(name), "tag")
    body: dict[str, Any] = {"Description": description, "Latest": version is None}
    if version is not None:
        body["Version"] = version
    session.nomad.put(path, body, query)
    of = "the newest version" if version is None else f"version {version}"
    session.out.line(f'Job version tag "{name}" applied to {of} of job "{stub["ID"]}"')


@command()
@argument("job")
@option("name", "The tag's name.", metavar="name")
@api
def unset(session: Session, job: str, name: str | None) -> None:
    """Take the name of a version away."""
    if not name:
        raise invalid("say which tag by -name")
    stub = find_job(session, job)
    path, query = job_path(stub, "versions", segment(name), "tag")
    session.nomad.delete(path, query)
    session.out.line(f'Job version tag "{name}" removed from job "{stub["ID"]}"')
