"""How tasks in a namespace of their own find names: their /etc/hosts, and which name servers they ask."""

from pathlib import Path
from typing import NamedTuple

from lepa.client.network.cni import Attached
from lepa.model.resources import DNSConfig

RESOLV_CONF = Path("/etc/resolv.conf")
BEYOND_STUB = Path("/run/systemd/resolve/resolv.conf")
"""Where systemd-resolved names the servers behind its own, which nobody but the host can reach."""
SERVERS_MAX = 3
"""More are not asked by C libraries (resolv.conf(5), MAXNS)."""


class HostFiles(NamedTuple):
    """What the host's files about name servers say, "" for one that is not there."""

    resolv_conf: str = ""
    beyond_stub: str = ""


def host_files() -> HostFiles:
    """Read them."""
    return HostFiles(_read(RESOLV_CONF), _read(BEYOND_STUB))


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def name_service(
    wanted: DNSConfig | None, given: Attached, servers: tuple[str, ...], host: HostFiles
) -> DNSConfig | None:
    """Whom a namespace asks; None leaves the host's own file.

    The job's word comes first, then what the network's plugins say, then the servers of an overlay before those of the
    host. A host that asks itself (systemd-resolved's stub) cannot be asked from a namespace: then those behind it.
    """
    if wanted is not None and (wanted.servers or wanted.searches or wanted.options):
        return wanted
    if given.nameservers or given.searches or given.options:
        return DNSConfig(given.nameservers, given.searches, given.options)
    config = parse(host.resolv_conf)
    reachable = [server for server in config.servers if not _is_loopback(server)]
    if not reachable:
        reachable = [server for server in parse(host.beyond_stub).servers if not _is_loopback(server)]
    if not servers and list(config.servers) == reachable:
        return None
    chosen = (*servers, *reachable)[:SERVERS_MAX]
    return DNSConfig(chosen, config.searches, config.options) if chosen else None


def parse(text: str) -> DNSConfig:
    """A resolv.conf(5); the last `search` or `domain` counts."""
    servers: list[str] = []
    searches: tuple[str, ...] = ()
    options: list[str] = []
    for line in text.splitlines():
        words = line.split("#")[0].split(";")[0].split()
        if len(words) < 2:
            continue
        if words[0] == "nameserver":
            servers.append(words[1])
        elif words[0] in ("search", "domain"):
            searches = tuple(words[1:])
        elif words[0] == "options":
            options += words[1:]
    return DNSConfig(tuple(servers), searches, tuple(options))


def hosts_file(address: str, name: str) -> str:
    """The text of /etc/hosts inside a namespace."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost ip6-loopback"]
    lines.append(f"{address or '127.0.1.1'} {name}")
    return "\n".join(lines) + "\n"


def _is_loopback(server: str) -> bool:
    return server.startswith("127.") or server == "::1"
