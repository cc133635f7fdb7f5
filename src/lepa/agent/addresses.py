"""Where others reach this agent: what the configuration advertises, else what it binds to."""

from pathlib import Path

from lepa.agent.config import Config
from lepa.client.fingerprint.host import host_address
from lepa.client.settings import ClientSettings

ANYWHERE = frozenset({"0.0.0.0", "::"})


def advertised_http(config: Config, host: str) -> str:
    """Where others reach the HTTP API."""
    return _with_port(config.advertise.get("http", ""), host, config.ports.http)


def advertised_rpc(config: Config) -> str:
    """Where others reach the internal port."""
    return _with_port(config.advertise.get("rpc", ""), config.addresses.rpc or config.bind_addr, config.ports.rpc)


def _with_port(given: str, host: str, port: int) -> str:
    if given:
        return given if ":" in given else f"{given}:{port}"
    if host in ANYWHERE:
        host = own_address()
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def own_address() -> str:
    """The address of the interface with the default route, else loopback."""
    return host_address(ClientSettings(directory=Path("/"), name=""))


def near(host: str) -> str:
    """The address by which this machine itself reaches `host`."""
    return "127.0.0.1" if host in ANYWHERE else host
