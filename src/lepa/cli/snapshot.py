"""`lepa operator snapshot`: the whole state as a file, looked at, and put back."""

import base64
import hashlib
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from lepa.cli.flags import argument, command, flag
from lepa.cli.output import pairs, table
from lepa.cli.session import Session, api
from lepa.model.errors import LepaError, invalid

if TYPE_CHECKING:
    from lepa.store.archive import Archive

PATH = "/v1/operator/snapshot"
PIECE = 256 * 1024


@command()
@argument("file", required=False, shown="[file]")
@flag("stale", "Any server may answer; all of them ask the store itself, so the answer is as new.")
@api
def save(session: Session, file: str | None, stale: bool) -> None:
    """Save the whole state of this moment. Without a name the file is called after the time. It holds secrets."""
    path = Path(file or time.strftime("lepa-state-%Y%m%d-%H%M%SZ.snap", time.gmtime()))
    partial = path.with_name(f"{path.name}.partial")
    response = session.nomad.send("GET", PATH, {"stale": stale or None})
    digest = hashlib.sha256()
    try:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            while piece := response.read(PIECE):
                digest.update(piece)
                out.write(piece)
        wanted = response.headers.get("Digest", "")
        if wanted != f"sha-256={base64.b64encode(digest.digest()).decode()}":
            raise LepaError("internal", f"{path}: what arrived is not what was sent; try again")
        read_archive(partial)
        partial.replace(path)
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)
    session.out.line(f"State file written to {path}")


@command()
@argument("file", shown="<file>")
@flag("json", "As JSON.")
@api
def inspect(session: Session, file: str, json: bool) -> None:
    """Show what a saved state is, after checking that it is whole."""
    import msgspec

    found = read_archive(Path(file))
    meta, counts = found.meta, Counter(entry.key.partition("/")[0] for entry in found.entries)
    sizes: Counter[str] = Counter()
    for entry in found.entries:
        sizes[entry.key.partition("/")[0]] += len(entry.value)
    if json:
        stats = [{"Name": name, "Count": count, "Size": sizes[name]} for name, count in sorted(counts.items())]
        body = {"Meta": msgspec.to_builtins(meta), "Stats": stats}
        session.out.line(msgspec.json.format(msgspec.json.encode(body), indent=4).decode())
        return
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(meta.created // 1_000_000_000))
    session.out.line(
        pairs(
            [
                ("Created", created),
                ("ID", meta.id),
                ("Size", meta.size),
                ("Index", meta.index),
                ("Term", meta.term),
                ("Version", meta.version),
                ("Region", meta.region),
                ("Cluster", meta.cluster or "one server"),
                ("lepa", meta.lepa),
            ]
        )
    )
    session.out.line("")
    rows = [(name, count, sizes[name]) for name, count in sorted(counts.items())]
    session.out.line(table(("Type", "Count", "Size"), rows))


@command()
@argument("file", shown="<file>")
@api
def restore(session: Session, file: str) -> None:
    """Put a saved state in the place of everything, on all servers at once. A damaged file is refused."""
    path = Path(file)
    read_archive(path)  # damage is found here, before anything is sent
    with path.open("rb") as content:
        session.nomad.upload("PUT", PATH, content, path.stat().st_size)
    session.out.line("Snapshot Restored")


def read_archive(path: Path) -> "Archive":
    """A saved state from a file. Raises LepaError that names the file."""
    from lepa.store import archive

    try:
        with path.open("rb") as file:
            return archive.read(file)
    except OSError as error:
        raise invalid(f"cannot read {path}: {error.strerror or error}") from error
    except LepaError as error:
        raise invalid(f"{path}: {error.message}") from error
