"""Where a node without a server finds servers: `client { servers }` and `client { server_join { retry_join } }`.

Each is a name or an address, with a port or without one; a name may stand for several addresses. They are only where a
node begins: with every heartbeat the servers tell it who they are now.
"""

import logging
from typing import Any, Final

from lepa.agent.config import Config
from lepa.agent.join_settings import JOIN_KEYS, Retry, given_up
from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid
from lepa.rpc import requests as r
from lepa.rpc.channel import Lost, Unreached
from lepa.rpc.methods import STATUS_PEERS, Caller

RPC_PORT: Final = 4647

log = logging.getLogger(__name__)


def client_servers(config: Config) -> tuple[str, ...]:
    """`host:port` of each server that the client block names. Raises LepaError for what is no address."""
    join = config.client.server_join
    if unknown := [key for key in join if key not in JOIN_KEYS]:
        raise invalid(f'configuration: client.server_join: "{unknown[0]}" is not one of {", ".join(JOIN_KEYS)}')
    named = (*config.client.servers, *_texts(join, "retry_join"), *_texts(join, "start_join"))
    return tuple(dict.fromkeys(_with_port(server) for server in named))


async def join_servers(caller: Caller, retry: Retry, clock: Clock) -> None:
    """Ask until a server answers, whatever it says. Raises LepaError(timeout) after `retry.attempts` in vain."""
    for attempt in range(1, retry.attempts + 1):
        try:
            await caller.call(STATUS_PEERS, r.ReadRequest())
        except (Unreached, Lost) as error:
            if attempt == retry.attempts:
                raise given_up(attempt, [error.message]) from error
            log.warning("no server answers yet; asked again in %g s: %s", retry.interval_s, error.message)
            await clock.sleep(retry.interval_s)
        except LepaError as answer:
            log.debug("a server answers, if not what was asked: %s", answer.message)
            return
        else:
            return


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
