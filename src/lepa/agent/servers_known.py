"""Where a node without a server finds servers: `client { servers }` and `client { server_join { retry_join } }`.

Each is a name or an address, with a port or without one; a name may stand for several addresses. They are only where a
node begins: with every heartbeat the servers tell it who they are now.
"""

from typing import Any, Final

from lepa.agent.config import Config
from lepa.model.errors import LepaError, invalid

RPC_PORT: Final = 4647
JOIN_KEYS: Final = ("retry_join", "start_join", "retry_max", "retry_interval")


def client_servers(config: Config) -> tuple[str, ...]:
    """`host:port` of each server that the client block names. Raises LepaError for what is no address."""
    join = config.client.server_join
    if unknown := [key for key in join if key not in JOIN_KEYS]:
        raise invalid(f'configuration: client.server_join: "{unknown[0]}" is not one of {", ".join(JOIN_KEYS)}')
    named = (*config.client.servers, *_texts(join, "retry_join"), *_texts(join, "start_join"))
    return tuple(dict.fromkeys(_with_port(server) for server in named))


def _texts(join: dict[str, Any], key: str) -> list[str]:
    value = join.get(key) or []
    if not isinstance(value, list | tuple) or not all(isinstance(one, str) for one in value):
        raise invalid(f'configuration: client.server_join.{key} has to be a list of texts such as ["10.0.0.2:4647"]')
    return list(value)


def _with_port(server: str) -> str:
    """`host` -> `host:4647`; an IPv6 address gets brackets."""
    text = server.strip()
    if text.startswith("provider=") or " " in text:
        raise LepaError(
            "unsupported",
            f'configuration: "{server}": servers are not looked up at cloud providers; name hosts or addresses, '
            "or a DNS name that stands for all servers",
        )
    host, colon, port = text.rpartition(":")
    if text.count(":") > 1 and not text.startswith("["):
        return f"[{text}]:{RPC_PORT}"
    if not colon or text.endswith("]"):
        host, port = text, str(RPC_PORT)
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= 65_535):
        raise invalid(f'configuration: "{server}" is not the address of a server; it has to be such as "10.0.0.2:4647"')
    return f"{host}:{port}"
