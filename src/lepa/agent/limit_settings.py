"""The limits block of the configuration -> what one address may hold of a listener."""

from lepa.agent.config import Config, seconds
from lepa.kit.doorman import Limits


def http_limits(config: Config) -> Limits:
    """Limits of the HTTP API."""
    limits = config.limits
    name = "limits.https_handshake_timeout"
    return Limits(limits.http_max_conns_per_client, seconds(limits.https_handshake_timeout, name))


def rpc_limits(config: Config) -> Limits:
    """Limits of the internal port."""
    limits = config.limits
    name = "limits.rpc_handshake_timeout"
    return Limits(limits.rpc_max_conns_per_client, seconds(limits.rpc_handshake_timeout, name))
