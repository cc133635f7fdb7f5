"""`lepa ingress …`: where requests from outside go."""

import os

from lepa.cli.flags import command, option
from lepa.cli.output import Json, table
from lepa.cli.session import Session, Shape, api, shaped
from lepa.model.errors import LepaError
from lepa.sdk.address import Target, target
from lepa.sdk.connection import Connection

UI_PORT = 9998


@command()
@option("ingress", "Where it answers. Environment: LEPA_INGRESS_ADDR. Default: port 9998 of the agent.", metavar="url")
@option("service", "Only routes of services whose names begin so.", metavar="prefix")
@shaped
@api
def routes(session: Session, shape: Shape, ingress: str | None, service: str | None) -> None:
    """Show the routes of an ingress, the instances behind them, and the tags that it does not follow."""
    with Connection(_place(session, ingress)) as connection:
        found: list[Json] = _read(connection, "/api/routes")
        notices: list[Json] = _read(connection, "/api/notices")
    if service:
        found = [each for each in found if each["service"].startswith(service)]
        notices = [each for each in notices if each["service"].startswith(service)]
    if shape:
        session.out.line(shape.render(found))
        return
    rows = [(each["service"], each["src"], each["dst"], _share(each), each["opts"] or "<none>") for each in found]
    header = ("Service", "Source", "Destination", "Share", "Options")
    session.out.line(table(header, rows) if rows else "No routes")
    if notices:
        told = [(each["service"] or "<none>", each["tag"] or "<none>", each["problem"]) for each in notices]
        session.out.line(f"\nNot followed\n{table(('Service', 'Tag', 'Problem'), told)}")


def _place(session: Session, given: str | None) -> Target:
    address = given or os.environ.get("LEPA_INGRESS_ADDR", "")
    if address:
        return target({}, address=address)
    return Target("http", session.nomad.target.host, UI_PORT)


def _read(connection: Connection, path: str) -> list[Json]:
    try:
        found: list[Json] = connection.get(path).value
    except LepaError as error:
        if error.code != "no_leader":
            raise
        raise LepaError(
            "no_leader",
            f"no ingress answers at {connection.target.url}; an agent runs one with `ingress {{ enabled = true }}`, "
            "and -ingress=<url> names another place",
        ) from error
    return found


def _share(each: Json) -> str:
    return f"{each['weight']:.1%}" if each["healthy"] else "unhealthy"
