"""The configuration -> how this server gossips: its tags, its keys, where it listens, whom it joins.

Tags are Nomad's, so that its tools and other servers read them. A member that lacks those of a server is not let in.
"""

import json
import logging
import os
import socket
from pathlib import Path
from typing import Final, NamedTuple

from lepa.agent.addresses import ANYWHERE, advertised_rpc, own_address
from lepa.agent.config import Config
from lepa.agent.join_settings import JOIN_KEYS, Retry, retry
from lepa.gossip.keyring import Keyring, key_bytes, key_text
from lepa.gossip.messages import NodeState
from lepa.gossip.node import Listen, split_address
from lepa.gossip.tags import decode_tags
from lepa.model.errors import invalid

log = logging.getLogger(__name__)

KEYRING_FILE: Final = "serf.keyring"
SERVER_TAGS: Final = ("port", "build", "raft_vsn")
"""Besides the role: what every server says of itself."""


class Joins(NamedTuple):
    """Whom to join."""

    at_start: tuple[str, ...]
    until_joined: tuple[str, ...]
    retry: Retry


def member_name(config: Config) -> str:
    """The name of this server among members of all regions."""
    return f"{config.name}.{config.region}"


def member_tags(config: Config, build: str) -> dict[str, str]:
    """What this server says of itself. build: the version that it speaks."""
    host, _, port = advertised_rpc(config).rpartition(":")
    tags = {
        "role": "nomad",
        "region": config.region,
        "dc": config.datacenter,
        "build": build,
        "vsn": "1",
        "raft_vsn": "3",
        "id": member_name(config),
        "rpc_addr": host.strip("[]"),
        "port": port,
    }
    expect = config.server.bootstrap_expect
    return tags | ({"expect": str(expect)} if expect > 1 else {"bootstrap": "1"})


def admit_servers(node: NodeState) -> str:
    """A sentence when a node is no server, else "": servers gossip among themselves."""
    tags = decode_tags(node.meta)
    if tags.get("role") != "nomad":
        return f'"{node.name}" is no server: its tag role is "{tags.get("role", "")}", not "nomad"'
    missing = [tag for tag in SERVER_TAGS if not tags.get(tag)]
    if missing:
        return f'"{node.name}" is no server: it has no tag {", ".join(missing)}'
    wrong = [tag for tag in ("port", "raft_vsn", "expect") if not tags.get(tag, "0").isdecimal()]
    return f'"{node.name}": its tag {wrong[0]} is no number' if wrong else ""


def listen_on(config: Config) -> Listen:
    """Where this server listens, and what it tells others. Raises LepaError(invalid)."""
    host = config.addresses.serf or config.bind_addr
    given = config.advertise.get("serf", "")
    if not given:
        return Listen(host, config.ports.serf, own_address() if host in ANYWHERE else host)
    try:
        name, port = split_address(given, config.ports.serf)
        found = socket.getaddrinfo(name, port, type=socket.SOCK_DGRAM)
    except (ValueError, OSError) as error:
        raise invalid(f'configuration: advertise.serf: "{given}" is no address of this machine: {error}') from error
    return Listen(host, config.ports.serf, str(found[0][4][0]), port)


def joins(config: Config) -> Joins:
    """Whom this server joins, from `server { … }` and `server { server_join { … } }`. Raises LepaError(invalid)."""
    server, block = config.server, config.server.server_join
    if unknown := [key for key in block if key not in JOIN_KEYS]:
        raise invalid(f'configuration: server.server_join: "{unknown[0]}" is not one of {", ".join(JOIN_KEYS)}')

    def addresses(key: str) -> list[str]:
        value = block.get(key) or []
        if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
            raise invalid(f'configuration: server.server_join.{key} has to be a list of texts such as ["10.0.0.2"]')
        return [_gossip_address(one, config) for one in value]

    start = [*(_gossip_address(one, config) for one in server.start_join), *addresses("start_join")]
    until = [*(_gossip_address(one, config) for one in server.retry_join), *addresses("retry_join")]
    how_often = retry(block, "server", server.retry_max, server.retry_interval)
    return Joins(tuple(dict.fromkeys(start)), tuple(dict.fromkeys(until)), how_often)


def _gossip_address(entry: str, config: Config) -> str:
    """An entry of retry_join. One with the internal port means the gossip port: it names a server."""
    if entry.startswith("provider="):
        raise invalid(
            f'configuration: "{entry}": servers are not looked up at cloud providers; name hosts or addresses, or a '
            "DNS name that stands for all servers"
        )
    try:
        host, port = split_address(entry, config.ports.serf)
    except ValueError as error:
        raise invalid(f'configuration: retry_join: "{entry}": {error}') from error
    port = config.ports.serf if port == config.ports.rpc else port
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def load_keyring(folder: Path, encrypt: str) -> Keyring | None:
    """The keys that were kept, else the one of the configuration, which is kept from then on; None without any.

    Raises LepaError(invalid), which never holds a key.
    """
    path = folder / KEYRING_FILE
    wanted = _key(encrypt, "server.encrypt") if encrypt else None
    if not path.exists():
        if wanted is None:
            return None
        made = Keyring([wanted])
        save_keyring(folder, made)
        return made
    try:
        texts = json.loads(path.read_text())
        keyring = Keyring(key_bytes(str(text)) for text in texts)
    except (OSError, ValueError, TypeError) as error:
        reason = str(error) if isinstance(error, OSError) else "it has to be a list of base64 keys"
        raise invalid(f"{path} cannot be read: {reason}; restore it, or remove it to use server.encrypt") from None
    if wanted is not None and wanted not in keyring.keys:
        log.warning("server.encrypt is not used: the keys that were kept are other ones path=%s", path)
    return keyring


def _key(text: str, name: str) -> bytes:
    try:
        return key_bytes(text)
    except ValueError as error:
        raise invalid(f"configuration: {name}: {error}; `lepa operator gossip keyring generate` makes one") from None


def save_keyring(folder: Path, keyring: Keyring) -> None:
    """Keep the keys over a restart, readable by this user only."""
    fresh = folder / f"{KEYRING_FILE}.new"
    with open(fresh, "w", opener=_private) as file:
        json.dump([key_text(key) for key in keyring.keys], file)
        file.flush()
        os.fsync(file.fileno())
    fresh.rename(folder / KEYRING_FILE)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def members_file(folder: Path) -> Path:
    """Where it is kept who the members were."""
    return folder / "serf" / "snapshot"
