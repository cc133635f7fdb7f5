"""`lepa operator snapshot`: the whole state as a file, looked at, and put back."""

import base64
import hashlib
import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lepa.cli.flags import argument, command, flag, repeated
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
@flag("redact", "Leave the keys that encrypt variables and the secrets of tokens and nodes out.")
@api
def save(session: Session, file: str | None, stale: bool, redact: bool) -> None:
    """Save the whole state of this moment. Without a name the file is called after the time.

    It holds secrets, unless -redact is given.
    """
    path = Path(file or time.strftime("lepa-state-%Y%m%d-%H%M%SZ.snap", time.gmtime()))
    response = session.nomad.send("GET", PATH, {"stale": stale or None})
    digest = hashlib.sha256()
    with _written_anew(path) as partial:
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
            while piece := response.read(PIECE):
                digest.update(piece)
                out.write(piece)
        wanted = response.headers.get("Digest", "")
        if wanted != f"sha-256={base64.b64encode(digest.digest()).decode()}":
            raise LepaError("internal", f"{path}: what arrived is not what was sent; try again")
        whole = read_archive(partial)
        if redact:
            _write_redacted(whole, partial)
    session.out.line(f"State file written to {path}")


@command()
@argument("file", shown="<file>")
@api
def redact(session: Session, file: str) -> None:
    """Take the secrets out of a saved state, in place: the keys that encrypt variables, secrets of tokens and nodes."""
    path = Path(file)
    whole = read_archive(path)
    with _written_anew(path) as partial:
        _write_redacted(whole, partial)
    session.out.line(f"Secrets were taken out of {path}")


@contextmanager
def _written_anew(path: Path) -> Iterator[Path]:
    """A file to write beside `path`, which takes its place once it is whole. Raises LepaError(invalid)."""
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        partial.replace(path)
    except OSError as error:
        raise invalid(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        partial.unlink(missing_ok=True)


def _write_redacted(whole: "Archive", path: Path) -> None:
    """Write a state without its secrets to a file of its owner's. Raises OSError."""
    from lepa.state.redaction import redacted
    from lepa.store import archive
    from lepa.store.protocol import Image

    meta = whole.meta
    image = Image(meta.index, tuple(redacted(whole.entries)))
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as out:
        out.writelines(archive.write(image, meta.created, meta.cluster, meta.region, meta.lepa))


@command()
@argument("file", shown="<file>")
@repeated("filter", "Only this kind of object, such as jobs, or its first characters.", metavar="kind")
@api
def state(session: Session, file: str, filter: tuple[str, ...]) -> None:
    """Print everything in a saved state as JSON, by kind. It holds secrets, unless they were taken out."""
    import msgspec

    from lepa.model.wire import from_msgpack, to_builtins
    from lepa.state.keys import KINDS

    kinds: dict[str, list[object]] = {}
    for entry in read_archive(Path(file)).entries:
        table = entry.key.partition("/")[0]
        if table in KINDS and (not filter or table.startswith(filter)):
            value = to_builtins(from_msgpack(entry.value, KINDS[table]))
            kinds.setdefault(table, []).append({**value, "CreateIndex": entry.created, "ModifyIndex": entry.modified})
    if filter and not kinds:
        raise invalid(f"nothing of {', '.join(filter)} is there; the kinds are {', '.join(KINDS)}")
    session.out.line(msgspec.json.format(msgspec.json.encode(kinds), indent=4).decode())


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
