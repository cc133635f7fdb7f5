"""Logins with what others vouch for: a JWT (RFC 7519), or OpenID Connect's code flow, with PKCE (RFC 7636) if wanted.

    auth_url   the provider is discovered, a state and a verifier are made and kept for the caller's nonce
    complete   state and nonce fit, the code is exchanged, the identity token checked, more claims fetched

Only asymmetric algorithms are taken, and only those that the method lists: a key that is public must never be taken
for a shared secret. Addresses of providers come from management tokens alone; answers of theirs have a bound.
"""

import base64
import hashlib
import hmac
import secrets
import ssl
from collections import OrderedDict
from typing import Any, Final, NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

import aiohttp
import jwt
import msgspec

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.model.acl import AclToken, AuthMethod, AuthMethodConfig
from lepa.model.errors import LepaError, invalid
from lepa.rpc.acl_requests import OidcAuthUrlRequest, OidcCompleteRequest
from lepa.server.acl import bindings
from lepa.server.acl.bindings import check_selector
from lepa.state.snapshot import Snapshot

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "ES256", "ES384", "ES512", "PS256", "PS384", "PS512", "EdDSA")
BEGUN_MAX: Final = 1_000
"""Logins that have begun and are not completed."""
BEGUN_S: Final = 300.0
FETCH_S: Final = 10.0
FETCHED_MAX: Final = 1024 * 1024
LEEWAY_S: Final = 150
SKEW_S: Final = 60
TOKEN_MAX: Final = 64 * 1024
LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")

__all__ = ["Logins", "check_selector"]


class Begun(NamedTuple):
    """A login that has begun. verifier: PKCE's, "" without."""

    method: str
    state: str
    redirect_uri: str
    verifier: str
    until: float


class Logins:
    """Checks logins and makes the tokens for them."""

    def __init__(self, clock: Clock, random: Random) -> None:
        self._clock = clock
        self._random = random
        self._begun: OrderedDict[str, Begun] = OrderedDict()

    def check(self, method: AuthMethod) -> None:
        """Raise LepaError(invalid) for a method whose settings cannot work."""
        config = method.config
        if unknown := [one for one in config.signing_algs if one not in ALGORITHMS]:
            raise invalid(f"invalid SigningAlgs: {unknown[0]}; known are {', '.join(ALGORITHMS)}")
        if method.type == "JWT":
            sources = (config.jwt_validation_pub_keys, config.jwks_url, config.oidc_discovery_url)
            if sum(map(bool, sources)) != 1:
                raise invalid("exactly one of JWTValidationPubKeys, JWKSURL, OIDCDiscoveryURL has to be set")
            for key in config.jwt_validation_pub_keys:
                _public_key(key)
        if method.type == "OIDC":
            for name, value in (
                ("OIDCDiscoveryURL", config.oidc_discovery_url),
                ("OIDCClientID", config.oidc_client_id),
                ("AllowedRedirectURIs", config.allowed_redirect_uris),
            ):
                if not value:
                    raise invalid(f"missing {name}")
            if config.oidc_client_assertion:
                raise LepaError("unsupported", "OIDCClientAssertion is not supported: use OIDCClientSecret, or PKCE")
        for url in filter(None, (config.jwks_url, config.oidc_discovery_url)):
            if urlsplit(url).scheme not in ("http", "https"):
                raise invalid(f'invalid URL "{url}": it has to begin with https:// or http://')

    def token(self, snapshot: Snapshot, method: AuthMethod, claims: dict[str, Any]) -> AclToken:
        """The token that binding rules give to these claims. Raises LepaError(denied) when they give none."""
        return bindings.token_for(snapshot, method, bindings.picked(method, claims))

    # JWT

    async def claims_of(self, method: AuthMethod, token: str) -> dict[str, Any]:
        """The claims of a JWT that the method trusts. Raises LepaError(denied)."""
        config = method.config
        if len(token) > TOKEN_MAX:
            raise LepaError("denied", f"the login token has more than {TOKEN_MAX} characters")
        return self._verified(
            token, await self._keys(config, token), config, config.bound_audiences, config.bound_issuer
        )

    async def _keys(self, config: AuthMethodConfig, token: str) -> list[Any]:
        if config.jwt_validation_pub_keys:
            return [_public_key(key) for key in config.jwt_validation_pub_keys]
        url = config.jwks_url
        certificates: tuple[str, ...] = (config.jwks_ca_cert,) if config.jwks_ca_cert else ()
        if not url:
            provider = await self._provider(config)
            url, certificates = str(provider.get("jwks_uri", "")), config.discovery_ca_pem
        return _keys_of(await _fetched(url, certificates), token)

    def _verified(
        self,
        token: str,
        keys: list[Any],
        config: AuthMethodConfig,
        audiences: tuple[str, ...],
        issuers: tuple[str, ...],
    ) -> dict[str, Any]:
        allowed = list(config.signing_algs or ("RS256",))
        options: Any = {f"verify_{name}": False for name in ("exp", "nbf", "iat", "aud", "iss")}
        claims: dict[str, Any] | None = None
        for key in keys:
            try:
                claims = jwt.decode(token, key, algorithms=allowed, options=options)
                break
            except (jwt.PyJWTError, TypeError, ValueError):
                continue
        if claims is None:
            raise LepaError("denied", "the login token is not signed with a key and algorithm that the method trusts")
        given = claims.get("aud", [])
        if audiences and set(audiences).isdisjoint([given] if isinstance(given, str) else given):
            raise LepaError("denied", "the login token is for another audience")
        if issuers and claims.get("iss") not in issuers:
            raise LepaError("denied", "the login token is from another issuer")
        self._check_times(claims, config)
        return claims

    def _check_times(self, claims: dict[str, Any], config: AuthMethodConfig) -> None:
        now_s = self._clock.now_ns() / SECOND
        skew_s = _seconds(config.clock_skew_leeway, SKEW_S)
        expires, begins, issued = (claims.get(name) for name in ("exp", "nbf", "iat"))
        if not any(isinstance(one, int | float) for one in (expires, begins, issued)):
            raise LepaError("denied", "the login token says no times: it needs iat, nbf or exp")
        if isinstance(expires, int | float) and expires + skew_s < now_s:
            raise LepaError("denied", "the login token has expired")
        if isinstance(begins, int | float) and begins - skew_s > now_s:
            raise LepaError("denied", "the login token is not valid yet")
        if isinstance(issued, int | float) and issued - skew_s > now_s:
            raise LepaError("denied", "the login token was issued in the future")
        if not isinstance(expires, int | float):
            begun = begins if isinstance(begins, int | float) else issued
            if begun is not None and begun + _seconds(config.expiration_leeway, LEEWAY_S) + skew_s < now_s:
                raise LepaError("denied", "the login token has expired")

    # OpenID Connect

    async def auth_url(self, method: AuthMethod, request: OidcAuthUrlRequest) -> str:
        """Where the person logs in."""
        config = method.config
        if not request.client_nonce:
            raise invalid("missing client nonce")
        if not _redirect_allowed(config, request.redirect_uri):
            raise invalid(f'redirect URI "{request.redirect_uri}" is not among those that the auth method allows')
        provider = await self._provider(config)
        verifier = secrets.token_urlsafe(48) if config.oidc_enable_pkce else ""
        begun = Begun(
            method.name, secrets.token_urlsafe(24), request.redirect_uri, verifier, self._clock.now() + BEGUN_S
        )
        self._remember(request.client_nonce, begun)
        scopes = dict.fromkeys(("openid", *config.oidc_scopes))
        query = {
            "response_type": "code",
            "client_id": config.oidc_client_id,
            "redirect_uri": request.redirect_uri,
            "scope": " ".join(scopes),
            "state": begun.state,
            "nonce": request.client_nonce,
        }
        if verifier:
            challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=")
            query |= {"code_challenge": challenge.decode(), "code_challenge_method": "S256"}
        endpoint = _endpoint(provider, "authorization_endpoint")
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(query)}"

    def _remember(self, nonce: str, begun: Begun) -> None:
        now = self._clock.now()
        while self._begun and (len(self._begun) >= BEGUN_MAX or next(iter(self._begun.values())).until < now):
            self._begun.popitem(last=False)
        self._begun[nonce] = begun

    async def complete(self, method: AuthMethod, request: OidcCompleteRequest) -> dict[str, Any]:
        """The claims of whoever has logged in. Raises LepaError(denied) when something does not fit."""
        begun = self._begun.pop(request.client_nonce, None)
        if begun is None or begun.until < self._clock.now() or begun.method != method.name:
            raise LepaError("denied", "no login with this nonce has begun here, or it took too long; begin again")
        if not hmac.compare_digest(begun.state, request.state) or begun.redirect_uri != request.redirect_uri:
            raise LepaError("denied", "the state does not belong to this login")
        config = method.config
        provider = await self._provider(config)
        if request.iss and request.iss != provider.get("issuer"):
            raise LepaError("denied", "the answer is from another issuer")
        answer = await self._exchanged(config, provider, begun, request.code)
        token = str(answer.get("id_token", ""))
        keys = _keys_of(await _fetched(_endpoint(provider, "jwks_uri"), config.discovery_ca_pem), token)
        audiences = config.bound_audiences or (config.oidc_client_id,)
        claims = self._verified(token, keys, config, audiences, (str(provider.get("issuer")),))
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), request.client_nonce.encode()):
            raise LepaError("denied", "the identity token belongs to another login")
        return claims | await self._user_info(config, provider, answer, claims)

    async def _provider(self, config: AuthMethodConfig) -> dict[str, Any]:
        """What the provider says of itself. Raises LepaError when it is somebody else's word."""
        base = config.oidc_discovery_url.rstrip("/")
        found = await _fetched(f"{base}/.well-known/openid-configuration", config.discovery_ca_pem)
        if str(found.get("issuer", "")).rstrip("/") != base:
            raise LepaError("denied", f'the provider at {base} says that it is "{found.get("issuer")}"')
        return found

    async def _exchanged(
        self, config: AuthMethodConfig, provider: dict[str, Any], begun: Begun, code: str
    ) -> dict[str, Any]:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": begun.redirect_uri}
        form |= {"code_verifier": begun.verifier} if begun.verifier else {}
        ways = provider.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        by_header = "client_secret_basic" in ways
        headers = None
        if config.oidc_client_secret and by_header:
            headers = _basic(config.oidc_client_id, config.oidc_client_secret)
        else:
            form |= {"client_id": config.oidc_client_id}
            form |= {"client_secret": config.oidc_client_secret} if config.oidc_client_secret else {}
        return await _fetched(
            _endpoint(provider, "token_endpoint"), config.discovery_ca_pem, form=form, headers=headers
        )

    async def _user_info(
        self, config: AuthMethodConfig, provider: dict[str, Any], answer: dict[str, Any], claims: dict[str, Any]
    ) -> dict[str, Any]:
        if config.oidc_disable_user_info or not provider.get("userinfo_endpoint") or not answer.get("access_token"):
            return {}
        bearer = {"Authorization": f"Bearer {answer['access_token']}"}
        found = await _fetched(_endpoint(provider, "userinfo_endpoint"), config.discovery_ca_pem, headers=bearer)
        if found.get("sub") != claims.get("sub"):
            raise LepaError("denied", "what the provider says of the user is about somebody else")
        return found


def _seconds(leeway: int, default: int) -> float:
    """A leeway of the configuration in seconds; negative: none."""
    return default if leeway == 0 else max(0.0, leeway / SECOND)


def _redirect_allowed(config: AuthMethodConfig, uri: str) -> bool:
    """Whether the person may be sent back there; on loopback any port is as good (RFC 8252, 7.3)."""
    if uri in config.allowed_redirect_uris:
        return True
    asked = urlsplit(uri)
    if asked.hostname not in LOOPBACK:
        return False
    alike = (urlsplit(each) for each in config.allowed_redirect_uris)
    return any(
        (each.scheme, each.hostname, each.path, each.query) == (asked.scheme, asked.hostname, asked.path, asked.query)
        for each in alike
    )


def _endpoint(provider: dict[str, Any], name: str) -> str:
    url = provider.get(name)
    if not isinstance(url, str) or urlsplit(url).scheme not in ("http", "https"):
        raise LepaError("denied", f"the provider names no {name}")
    return url


def _basic(client_id: str, secret: str) -> dict[str, str]:
    """A client's name and secret as a header (RFC 6749, 2.3.1)."""
    both = f"{quote_plus(client_id)}:{quote_plus(secret)}".encode()
    return {"Authorization": f"Basic {base64.b64encode(both).decode()}"}


def _public_key(text: str) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        return load_pem_public_key(text.encode())
    except ValueError as error:
        raise invalid("JWTValidationPubKeys: not a public key in PEM") from error


def _keys_of(found: dict[str, Any], token: str) -> list[Any]:
    """The keys of a set that may have signed the token."""
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
        keys = jwt.PyJWKSet.from_dict(found).keys
    except jwt.PyJWTError as error:
        raise LepaError("denied", f"the login token or the provider's keys cannot be read: {error}") from error
    return [key.key for key in keys if key_id is None or key.key_id in (None, key_id)]


async def _fetched(
    url: str,
    certificates: tuple[str, ...],
    *,
    form: dict[str, str] | None = None,
    headers: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A JSON object from a provider. Raises LepaError that tells where it was looked for, and no secret."""
    trust: Any = ssl.create_default_context(cadata="\n".join(certificates)) if certificates else True
    timeout = aiohttp.ClientTimeout(total=FETCH_S)
    try:
        async with aiohttp.ClientSession(timeout=timeout) as session:
            method = "GET" if form is None else "POST"
            async with session.request(
                method, url, data=form, headers=headers, ssl=trust, allow_redirects=False
            ) as response:
                raw = await _bounded(response.content)
                if response.status != 200:
                    raise LepaError("denied", f"the provider answered {url} with status {response.status}")
        found = msgspec.json.decode(raw) if len(raw) <= FETCHED_MAX else None
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise LepaError("denied", f"the provider at {url} cannot be reached: {error}") from error
    except msgspec.DecodeError as error:
        raise LepaError("denied", f"the provider's answer to {url} is not JSON") from error
    if not isinstance(found, dict):
        raise LepaError("denied", f"the provider's answer to {url} is no object, or too large")
    return found


async def _bounded(content: aiohttp.StreamReader) -> bytes:
    """An answer, or a little more of it than is taken."""
    found = bytearray()
    while len(found) <= FETCHED_MAX and (chunk := await content.readany()):
        found += chunk
    return bytes(found)
