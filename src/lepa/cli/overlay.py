"""`lepa overlay …`: networks that nodes share."""

from lepa.cli.flags import argument, command
from lepa.cli.output import Json, table
from lepa.cli.session import Session, Shape, api, segment, shaped
from lepa.model.errors import not_found


@command()
@argument("overlay", required=False)
@shaped
@api
def status(session: Session, overlay: str | None, shape: Shape) -> None:
    """List the overlay networks and the share of each node, or those of one."""
    path = f"/v1/overlay/{segment(overlay)}" if overlay else "/v1/overlays"
    shares: list[Json] = session.nomad.get(path).value or []
    if overlay and not shares:
        raise not_found(f'No node takes part in an overlay "{overlay}"')
    if shape:
        session.out.line(shape.render(shares))
        return
    rows = [
        (
            each["Overlay"],
            each["Pool"],
            each["NodeName"],
            each["Subnet"],
            each["Endpoint"],
            "WireGuard" if each["Encrypted"] else "VXLAN",
        )
        for each in shares
    ]
    header = ("Overlay", "Pool", "Node", "Subnet", "Endpoint", "Tunnel")
    session.out.line(table(header, rows) if rows else "No overlay networks")
