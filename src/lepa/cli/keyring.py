"""`lepa operator root keyring …`: the keys that encrypt variables and sign identities."""

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, short, table
from lepa.cli.session import Session, api, segment
from lepa.cli.variable_spec import when
from lepa.kit.durations import parse_duration
from lepa.model.errors import invalid


def _keys(keys: list[Json], verbose: bool) -> str:
    rows = [
        (
            short(key["KeyID"], verbose),
            key["State"],
            when(key["CreateTime"]),
            when(key["PublishTime"]) if key.get("PublishTime") else None,
        )
        for key in keys
    ]
    return table(("Key", "State", "Create Time", "Publish Time"), rows)


@command()
@flag("verbose", "Whole ids.")
@api
def list_keys(session: Session, verbose: bool) -> None:
    """List the keys."""
    found = session.nomad.get("/v1/operator/keyring/keys").value or []
    session.out.line(_keys(found, verbose) if found else "No keys: one is made with the first variable or identity")


@command()
@flag("full", "Encrypt everything anew with the new key.")
@flag("now", "Use the key at once; this is what happens without -prepublish.")
@flag("verbose", "Whole ids.")
@option("prepublish", "Show the key for this long before it is used.", metavar="duration")
@api
def rotate(session: Session, full: bool, now: bool, verbose: bool, prepublish: str | None) -> None:
    """Make a new key, that is used from now on."""
    if prepublish and (full or now):
        raise invalid("-prepublish excludes -full and -now")
    query: Json = {"full": "true"} if full else {}
    if prepublish:
        try:
            query["publish_time"] = session.now_ns() + parse_duration(prepublish)
        except ValueError as error:
            raise invalid(f"-prepublish: {error}") from error
    made = session.nomad.put("/v1/operator/keyring/rotate", None, query).value
    session.out.line(_keys([made.get("Key", made)], verbose))


@command()
@argument("key", shown="<key id>")
@flag("force", "Also while something is encrypted with it.")
@api
def remove(session: Session, key: str, force: bool) -> None:
    """Remove a key that is not in use. Give its whole id."""
    session.nomad.delete(f"/v1/operator/keyring/key/{segment(key)}", {"force": "true"} if force else {})
    session.out.line(f"Removed encryption key {key}")
