"""A small OpenID Connect provider on loopback: discovery, keys, a page that logs everybody in, tokens, user info."""

import base64
import hashlib
import time
import uuid
from typing import Any
from urllib.parse import parse_qs, urlsplit

import jwt
from aiohttp import web
from aiohttp.test_utils import TestServer
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key

CLIENT, SECRET = "lepa", "client-secret-7f3a"


class Provider:
    """The provider and what it says of the one person that it knows. An async context manager."""

    def __init__(self) -> None:
        self.key: RSAPrivateKey = generate_private_key(public_exponent=65537, key_size=2048)
        self.claims: dict[str, Any] = {"sub": "ada", "groups": ["dev"], "team": "web"}
        self.about: dict[str, Any] = {"sub": "ada", "email": "ada@example.org"}
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[dict[str, str]] = []
        app = web.Application()
        app.router.add_get("/.well-known/openid-configuration", self._discovery)
        app.router.add_get("/keys", self._keys)
        app.router.add_post("/token", self._token)
        app.router.add_get("/userinfo", self._userinfo)
        self._server = TestServer(app)
        self.issuer = ""

    async def __aenter__(self) -> "Provider":
        await self._server.start_server()
        self.issuer = str(self._server.make_url("")).rstrip("/")
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.close()

    def log_in(self, url: str) -> dict[str, str]:
        """What the browser brings back when the person at `url` has logged in: code and state."""
        query = {key: values[0] for key, values in parse_qs(urlsplit(url).query).items()}
        assert query["response_type"] == "code"
        assert query["client_id"] == CLIENT
        code = uuid.uuid4().hex
        self.codes[code] = query
        return {"code": code, "state": query["state"]}

    def sign(self, **claims: Any) -> str:
        """A JWT of the provider's."""
        now = int(time.time())
        usual = {"iss": self.issuer, "aud": CLIENT, "iat": now, "exp": now + 300}
        return jwt.encode({**usual, **self.claims, **claims}, self.key, "RS256", {"kid": "k1"})

    async def _discovery(self, request: web.Request) -> web.Response:
        return web.json_response(
            {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/authorize",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
                "userinfo_endpoint": f"{self.issuer}/userinfo",
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        )

    async def _keys(self, request: web.Request) -> web.Response:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return web.json_response({"keys": [key | {"kid": "k1", "use": "sig", "alg": "RS256"}]})

    async def _token(self, request: web.Request) -> web.Response:
        form = {key: str(value) for key, value in (await request.post()).items()}
        self.asked.append(form)
        begun = self.codes.pop(form.get("code", ""), None)
        login = base64.b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if begun is None or request.headers.get("Authorization") != f"Basic {login}":
            return web.json_response({"error": "invalid_grant"}, status=400)
        if begun["redirect_uri"] != form["redirect_uri"] or not self._proves(begun, form):
            return web.json_response({"error": "invalid_grant"}, status=400)
        return web.json_response({"id_token": self.sign(nonce=begun["nonce"]), "access_token": "access-1"})

    def _proves(self, begun: dict[str, str], form: dict[str, str]) -> bool:
        """Whether the caller knows the verifier whose challenge it sent."""
        if "code_challenge" not in begun:
            return True
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        return base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == begun["code_challenge"]

    async def _userinfo(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != "Bearer access-1":
            return web.Response(status=401)
        return web.json_response(self.about)
