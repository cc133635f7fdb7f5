"""Commands about how servers find each other: joining, sending away, and the keys that seal what they say."""

import base64
import os
from urllib.parse import urlencode

from lepa.cli.flags import argument, command, flag
from lepa.cli.output import table
from lepa.cli.session import Session, Shape, api, shaped
from lepa.model.errors import LepaError, not_found

KEY_BYTES = 32


@command()
@argument("addresses", many=True, shown="<address> ...")
@api
def join(session: Session, addresses: tuple[str, ...]) -> None:
    """Join other servers, given as host or host:port of their gossip. Servers of other regions are joined the same way:
    requests are then passed on between regions."""
    answer = session.nomad.put(_with_addresses(addresses)).value
    if answer["error"]:
        raise LepaError("timeout", f"Error joining: {answer['error']}")
    if answer["warning"]:
        session.out.error(f"Warning: {answer['warning']}")
    session.out.line(f"Joined {answer['num_joined']} servers successfully")


def _with_addresses(addresses: tuple[str, ...]) -> str:
    """The path with a parameter for each address."""
    return f"/v1/agent/join?{urlencode([('address', each) for each in addresses])}"


@command()
@argument("node", shown="<name>")
@flag("prune", "Forget it at once, instead of showing it as left.")
@api
def force_leave(session: Session, node: str, prune: bool) -> None:
    """Declare a failed server gone for good. The name is a member's, with or without its region."""
    found = session.nomad.get("/v1/agent/members").value
    names = {str(member["Name"]) for member in found.get("Members") or ()}
    full = f"{node}.{found.get('ServerRegion', '')}"
    if not names & {node, full}:
        raise not_found(f'no server is called "{node}" or "{full}"')
    session.nomad.raw("PUT", "/v1/agent/force-leave", {"node": node, "prune": prune or None})


# Keys


@command()
def generate() -> int:
    """Print a new key, for `server { encrypt = … }` or to install."""
    print(base64.b64encode(os.urandom(KEY_BYTES)).decode())
    return 0


@command()
@shaped
@api
def list_keys(session: Session, shape: Shape) -> None:
    """List the keys that servers have, and how many servers have each. Whoever may see this may read gossip."""
    answer = session.nomad.get("/v1/agent/keyring/list").value
    if shape:
        session.out.line(shape.render(answer))
        return
    rows = [(key, f"{count}/{answer['NumNodes']}") for key, count in sorted((answer["Keys"] or {}).items())]
    session.out.line(table(("Key", "Servers"), rows))


@command()
@argument("key", shown="<key>")
@api
def install(session: Session, key: str) -> None:
    """Let every server read what a key seals. They go on sealing with the present one until `use`."""
    _change(session, "install", key, "Key installed on all servers")


@command()
@argument("key", shown="<key>")
@api
def use(session: Session, key: str) -> None:
    """Let every server seal with an installed key from now on."""
    _change(session, "use", key, "All servers seal with this key now")


@command()
@argument("key", shown="<key>")
@api
def remove(session: Session, key: str) -> None:
    """Take a key away from every server. The one that they seal with cannot be removed."""
    _change(session, "remove", key, "Key removed from all servers")


def _change(session: Session, verb: str, key: str, done: str) -> None:
    session.nomad.put(f"/v1/agent/keyring/{verb}", {"Key": key})
    session.out.line(done)
