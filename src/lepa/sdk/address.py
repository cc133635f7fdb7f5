"""Pure: where an agent is and who asks: from flags, else from the environment handed in."""

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from lepa.kit.tls_settings import ClientTls
from lepa.model.errors import invalid

DEFAULT = "http://127.0.0.1:4646"
NO_TLS = ClientTls()
SWITCHES = {"": False, "0": False, "f": False, "false": False, "1": True, "t": True, "true": True}


class Target(NamedTuple):
    """An agent's address and what every request carries. namespace and region "" leave it to the agent.

    tls: how an agent that speaks https is checked.
    """

    scheme: str
    host: str
    port: int
    token: str = ""
    namespace: str = ""
    region: str = ""
    tls: ClientTls = ClientTls()

    @property
    def url(self) -> str:
        """The address as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def target(
    env: Mapping[str, str],
    *,
    address: str = "",
    token: str = "",
    namespace: str = "",
    region: str = "",
    tls: ClientTls = NO_TLS,
) -> Target:
    """Flags win over LEPA_* variables, these over NOMAD_* ones. Raises LepaError(invalid) for a bad address."""
    text = address or _from(env, "ADDR") or DEFAULT
    if "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise invalid(f'invalid address "{text}": {error}') from error
    if parts.scheme not in {"http", "https"} or not host:
        raise invalid(f'invalid address "{text}": expected something like {DEFAULT}')
    return Target(
        scheme=parts.scheme,
        host=host,
        port=port or (443 if parts.scheme == "https" else 4646),
        token=token or _from(env, "TOKEN"),
        namespace=namespace or _from(env, "NAMESPACE"),
        region=region or _from(env, "REGION"),
        tls=_tls(env, tls),
    )


def _tls(env: Mapping[str, str], given: ClientTls) -> ClientTls:
    skip = _from(env, "SKIP_VERIFY")
    if skip.lower() not in SWITCHES:
        raise invalid(f'LEPA_SKIP_VERIFY="{skip}": expected true or false')
    return ClientTls(
        ca_cert=given.ca_cert or _from(env, "CACERT"),
        ca_path=given.ca_path or _from(env, "CAPATH"),
        client_cert=given.client_cert or _from(env, "CLIENT_CERT"),
        client_key=given.client_key or _from(env, "CLIENT_KEY"),
        server_name=given.server_name or _from(env, "TLS_SERVER_NAME"),
        skip_verify=given.skip_verify or SWITCHES[skip.lower()],
    )


def _from(env: Mapping[str, str], name: str) -> str:
    return env.get(f"LEPA_{name}", "") or env.get(f"NOMAD_{name}", "")


Params = Mapping[str, str | int | bool | None]


def path_with(to: Target, path: str, params: Params | None = None) -> str:
    """The path with its query: the target's namespace and region unless `params` has them; None is left out."""
    query: dict[str, str | int | bool | None] = {}
    if to.namespace:
        query["namespace"] = to.namespace
    if to.region:
        query["region"] = to.region
    query |= params or {}
    texts = {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in query.items() if v is not None}
    return f"{path}{'&' if '?' in path else '?'}{urlencode(texts)}" if texts else path


def headers(to: Target) -> dict[str, str]:
    """Headers of every request."""
    return {"X-Nomad-Token": to.token} if to.token else {}
