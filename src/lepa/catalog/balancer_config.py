"""Pure: configuration for balancers that are not ours: blocks of text for HAProxy and nginx.

HAProxy asks DNS itself, so its text names services and stays right while instances come and go. nginx (before 1.27)
cannot, so its text lists instances and has to be written anew when they change.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

from lepa.catalog.table import Instance

_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")


class HaproxyOptions(NamedTuple):
    """dns: where an agent answers DNS, `ip:port`. slots: servers that HAProxy keeps room for in each backend."""

    dns: str = "127.0.0.1:8600"
    domain: str = "lepa"
    slots: int = 10
    namespace: str = "default"
    tag: str = ""


def haproxy(services: Iterable[str], options: HaproxyOptions) -> str:
    """A resolvers section and one backend a service, to be included in a configuration.

    `hold` times of a second let HAProxy follow within a second or two. An instance that is in no answer any more is
    held for three: what takes its place may come with the same answer, and a new server needs a moment (its address
    is sometimes asked for apart), in which the backend would have none. `allow-dup-ip` because instances on one node
    share its address. Weights come from the SRV records.
    """
    lines = [
        "resolvers lepa",
        f"    nameserver agent {options.dns}",
        "    accepted_payload_size 8192",
        "    resolve_retries 3",
        "    timeout resolve 1s",
        "    timeout retry 500ms",
        *(f"    hold {what} 1s" for what in ("valid", "nx", "other", "refused", "timeout")),
        "    hold obsolete 3s",
    ]
    place = "" if options.namespace == "default" else f".{options.namespace}.ns"
    for service in services:
        name = f"_{service}._{options.tag or 'tcp'}.service{place}.{options.domain.strip('.')}"
        lines += [
            "",
            f"backend {_safe(service)}",
            "    balance roundrobin",
            f"    server-template {_safe(service)}- {options.slots} {name} resolvers lepa"
            " resolve-opts allow-dup-ip resolve-prefer ipv4 init-addr none check",
        ]
    return "\n".join(lines) + "\n"


def nginx(services: Iterable[tuple[str, Iterable[Instance]]]) -> str:
    """One upstream a service with its healthy instances; one that is always down where there are none, because nginx
    refuses an upstream without servers."""
    blocks = []
    for name, instances in services:
        servers = [_nginx_server(instance) for instance in instances if instance.healthy and instance.port]
        lines = servers or ["    server 127.0.0.1:9 down;"]
        blocks.append("\n".join([f"upstream {_safe(name)} {{", *lines, "}"]))
    return "\n\n".join(blocks) + "\n"


def _nginx_server(instance: Instance) -> str:
    host = f"[{instance.address}]" if ":" in instance.address else instance.address
    share = f" weight={instance.share}" if instance.share > 1 else ""
    return f"    server {host}:{instance.port}{share};"


def _safe(name: str) -> str:
    return _UNSAFE.sub("-", name)
