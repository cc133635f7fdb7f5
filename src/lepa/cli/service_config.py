"""`lepa service config …`: text for balancers that are not ours, once or for as long as services change."""

import shlex
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from lepa.catalog.balancer_config import HaproxyOptions, haproxy, nginx
from lepa.catalog.table import Instance
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.session import Session, api, segment
from lepa.model.errors import LepaError, invalid
from lepa.sdk.connection import Connection

KINDS = ("haproxy", "nginx")
PAUSE_S = 1.0
"""After a stream of changes broke, before it is opened again."""
SILENCE_S = 60.0
"""A stream that says nothing for so long, not even that nothing happened, is broken."""


@command()
@argument("kind", shown="<haproxy|nginx>")
@argument("services", many=True, shown="<service>...")
@option("dns", "haproxy: where an agent answers DNS.", default="127.0.0.1:8600", metavar="ip:port")
@option("domain", "haproxy: the domain of names.", default="lepa", metavar="name")
@option("slots", "haproxy: servers to keep room for in each backend.", kind=int, default=10, metavar="count")
@option("tag", "Only instances with this tag.", default="", metavar="tag")
@option("out", "Write to this file instead of the terminal, in one step.", metavar="path")
@option("run", "A command to run after each writing, such as 'nginx -s reload'.", metavar="command")
@flag("follow", "Write again whenever a service changes, until interrupted. Needs -out.")
@api
def config(
    session: Session,
    kind: str,
    services: tuple[str, ...],
    dns: str,
    domain: str,
    slots: int,
    tag: str,
    out: str | None,
    run: str | None,
    follow: bool,
) -> None:
    """Print configuration for HAProxy or nginx that sends requests to services."""
    if kind not in KINDS:
        raise invalid(f'"{kind}" is not known: configuration is made for {" and ".join(KINDS)}')
    if not services:
        raise invalid("name one service or more")
    if follow and not out:
        raise invalid("-follow writes a file again and again: name it with -out")
    options = HaproxyOptions(dns, domain, slots, session.nomad.target.namespace or "default", tag)
    written = ""
    for _ in _changes(session, follow=follow):
        text = haproxy(services, options) if kind == "haproxy" else nginx(_read(session, services, tag))
        if text == written:
            continue
        written = text
        if out is None:
            session.out.line(text.rstrip("\n"))
        else:
            _replace(Path(out), text)
        if run:
            _run(run)


def _changes(session: Session, *, follow: bool) -> Iterator[None]:
    """Once; and when following, after each change of any service. Begins anew when the stream breaks."""
    yield
    while follow:
        try:
            with Connection(session.nomad.target, timeout_s=SILENCE_S) as stream:
                yield from (None for line in stream.lines("/v1/event/stream?topic=Service") if b"Events" in line)
        except LepaError as error:
            session.out.error(f"changes could not be followed: {error.message}")
        session.sleep(PAUSE_S)
        yield


def _read(session: Session, services: Sequence[str], tag: str) -> list[tuple[str, list[Instance]]]:
    return [(name, [row for row in _instances(session, name) if not tag or tag in row.tags]) for name in services]


def _instances(session: Session, name: str) -> Iterator[Instance]:
    for found in session.nomad.get(f"/v1/service/{segment(name)}").value or []:
        status = found.get("Status", "passing")
        yield Instance(
            id=found["ID"],
            service=name,
            address=found["Address"],
            port=found["Port"],
            tags=tuple(found["Tags"] or ()),
            healthy=status != "critical",
            status=status,
            weight=found.get("Weight", 1),
            warning_weight=found.get("WarningWeight", 1),
        )


def _replace(path: Path, text: str) -> None:
    """Write a file so that nobody ever sees half of it."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        fresh.write_text(text)
        fresh.replace(path)
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error


def _run(text: str) -> None:
    try:
        subprocess.run(shlex.split(text), check=True)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        raise LepaError("internal", f'"{text}" failed: {error}') from error
