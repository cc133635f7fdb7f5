"""The configuration -> where a server keeps the state: a file, an etcd of its own with others, or an etcd that exists.

    server { enabled = true }                                      one file (SQLite)
    server { bootstrap_expect = 3  retry_join = ["10.0.0.1"] }      an etcd beside each server, formed by themselves
    server { etcd { endpoints = ["10.0.0.1:2379"] } }              an etcd that somebody else runs

What a data directory holds from before has to fit; nothing is begun anew in silence.
"""

from os import fsync
from pathlib import Path
from typing import Final, Literal

import msgspec

from lepa.agent.config import Config
from lepa.model.errors import conflict, invalid
from lepa.store.formation import Membership

STATE_FILE: Final = "state.db"
RECORD: Final = "cluster.json"
"""What a server with an etcd of its own has begun: a `Membership`."""
ETCD_FOLDER: Final = "etcd"
CLUSTER_FILE: Final = "cluster-id"
"""Which state an external etcd held when this server used it last."""

Kind = Literal["file", "own", "external"]


def kind_of(config: Config) -> Kind:
    """Where this server keeps the state."""
    if config.server.etcd.endpoints:
        return "external"
    if config.server.bootstrap_expect > 1 or (config.server.bootstrap_expect == 0 and joins(config)):
        return "own"
    return "file"


def joins(config: Config) -> tuple[str, ...]:
    """What the configuration names as other servers; `gossip_settings` refuses what is no list of texts."""
    server = config.server
    more = [server.server_join.get(key) for key in ("retry_join", "start_join")]
    named = [str(entry) for some in more if isinstance(some, list | tuple) for entry in some]
    return tuple(dict.fromkeys([*server.retry_join, *server.start_join, *named]))


def server_folder(config: Config) -> Path:
    """Where a server keeps what it keeps."""
    return Path(config.server.data_dir) if config.server.data_dir else Path(config.data_dir) / "server"


def check_folder(folder: Path, kind: Kind) -> None:
    """Raise LepaError(conflict) when the folder holds the state of a server that kept it elsewhere."""
    if kind != "file" and (folder / STATE_FILE).exists():
        raise conflict(
            f"{folder / STATE_FILE} holds the state of a server that was alone, and this configuration begins another "
            "one in etcd: save it with the former configuration (lepa operator snapshot save FILE), move the file "
            "away, start, and restore it (lepa operator snapshot restore FILE)"
        )
    if kind != "own" and (folder / RECORD).exists():
        raise conflict(
            f"{folder} is of a server with an etcd of its own (cluster {read_record(folder).cluster}), and this "
            "configuration keeps the state elsewhere: set bootstrap_expect and retry_join as before, or begin with an "
            "empty data directory"
        )


def check_cluster_id(folder: Path, cluster: str) -> None:
    """Note which state an external etcd holds; raise LepaError(conflict) when it was another one before."""
    path = folder / CLUSTER_FILE
    before = path.read_text(errors="replace").strip() if path.exists() else ""
    if before and before != cluster:
        raise conflict(
            f"the data directory of this server belongs to the cluster {before}, and the etcd holds {cluster}: correct "
            f"the endpoints, or remove {path} to go over to that cluster"
        )
    if not before:
        path.write_text(f"{cluster}\n")


def read_record(folder: Path) -> Membership:
    """What this server has begun. Raises LepaError(invalid) when the record is damaged."""
    path = folder / RECORD
    try:
        return msgspec.json.decode(path.read_bytes(), type=Membership)
    except (msgspec.DecodeError, OSError) as error:
        raise invalid(
            f"{path} is damaged ({error}): this server no longer knows its cluster. Move {folder} away and start "
            "again: it joins anew and gets the state from the others"
        ) from error


def write_record(folder: Path, membership: Membership) -> None:
    """Keep what this server begins."""
    fresh = folder / f"{RECORD}.new"
    with open(fresh, "wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(membership), indent=2))
        file.flush()
        fsync(file.fileno())
    fresh.rename(folder / RECORD)
