"""TLS of one agent: what its two ports show and demand, and how it calls others and itself.

    HTTP API        shows the certificate; demands one of callers with `verify_https_client`
    internal port   both sides show one of the same authority. With `verify_server_hostname` its name says what the peer
                    may be: `server.REGION.nomad` or `client.REGION.nomad`
    itself          guests call the agent's own HTTP API; they expect the name that its own certificate bears

`reload` reads the files again for connections to come: those that stand go on as they are.
"""

import logging
import ssl
from collections.abc import Callable, Iterable
from typing import Any

from lepa.agent.config import Config, Tls
from lepa.kit.tls import ServerTls, client_context, first_name, names_of
from lepa.kit.tls_settings import ClientTls
from lepa.model.errors import LepaError, invalid
from lepa.rpc.channel import Admission

log = logging.getLogger(__name__)

DOMAIN = "nomad"


def server_name(region: str) -> str:
    """The name that certificates of a region's servers bear."""
    return f"server.{region}.{DOMAIN}"


def client_name(region: str) -> str:
    """The name that certificates of a region's clients bear."""
    return f"client.{region}.{DOMAIN}"


class AgentTls:
    """http, internal: what listeners speak, None for plain text."""

    def __init__(self, config: Config) -> None:
        """Raises LepaError(invalid) that names the file or setting."""
        self._tls = config.tls
        self._region = config.region
        self._regions: Callable[[], Iterable[str]] = tuple
        try:
            self.http = self._server(demand=self._tls.verify_https_client) if self._tls.http else None
            self.internal = self._server(demand=True) if self._tls.rpc else None
        except ValueError as error:
            raise invalid(f"configuration: tls: {error}") from error

    def _server(self, *, demand: bool) -> ServerTls:
        tls: Tls = self._tls
        suites = tuple(filter(None, (name.strip() for name in tls.tls_cipher_suites.split(","))))
        return ServerTls(
            tls.cert_file, tls.key_file, tls.ca_file, demand=demand, min_version=tls.tls_min_version, ciphers=suites
        )

    @property
    def scheme(self) -> str:
        """That of the HTTP API."""
        return "https" if self.http else "http"

    def own(self) -> ClientTls:
        """How a part of this agent calls its own HTTP API."""
        if self.http is None:
            return ClientTls()
        name = first_name(self._tls.cert_file)
        return self._client(name)

    def own_environment(self) -> dict[str, str]:
        """The same for a process beside the agent."""
        own = self.own()
        given = {
            "LEPA_CACERT": own.ca_cert,
            "LEPA_CLIENT_CERT": own.client_cert,
            "LEPA_CLIENT_KEY": own.client_key,
            "LEPA_TLS_SERVER_NAME": own.server_name,
        }
        return {name: text for name, text in given.items() if text}

    def towards_servers(self, region: str = "") -> ssl.SSLContext | None:
        """How to call the internal port of servers, of this region or another one; None for plain text.

        Raises LepaError(invalid).
        """
        if not self._tls.rpc:
            return None
        wanted = server_name(region or self._region) if self._tls.verify_server_hostname else ""
        return self._context(self._client(wanted))

    def towards_agents(self) -> ssl.SSLContext | None:
        """How to call the HTTP API of other agents: any that the authority signed for; None for plain text."""
        return self._context(self._client("")) if self._tls.http else None

    def _client(self, name: str) -> ClientTls:
        tls = self._tls
        return ClientTls(
            ca_cert=tls.ca_file,
            client_cert=tls.cert_file,
            client_key=tls.key_file,
            server_name=name,
            check_name=bool(name),
        )

    @staticmethod
    def _context(wanted: ClientTls) -> ssl.SSLContext:
        try:
            return client_context(wanted)
        except ValueError as error:
            raise invalid(f"configuration: tls: {error}") from error

    def admission(self, regions: Callable[[], Iterable[str]] = tuple) -> Admission | None:
        """Who may call the internal port, by certificate; None for anybody who can. regions: whose servers may too."""
        self._regions = regions
        return self._admit if self._tls.rpc and self._tls.verify_server_hostname else None

    def _admit(self, certificate: dict[str, Any], as_server: bool) -> None:
        wanted = {server_name(self._region)}
        if not as_server:
            wanted |= {client_name(self._region), *map(server_name, self._regions())}
        if wanted.isdisjoint(names := names_of(certificate)):
            shown = ", ".join(names) or "no name"
            raise LepaError("denied", f"the certificate bears {shown}; wanted is {' or '.join(sorted(wanted))}")

    def reload(self) -> None:
        """Use the files as they are now; a bad one is logged, and those before stay in use."""
        for listener in (self.http, self.internal):
            if listener is None:
                continue
            try:
                listener.reload()
            except ValueError as error:
                log.error("TLS not reloaded, the certificate before stays in use: %s", error)
                return
        if self.http or self.internal:
            log.info("TLS reloaded cert_file=%s", self._tls.cert_file)
