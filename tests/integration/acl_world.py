"""A server with access control and its HTTP edge in this process, and people who ask it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.test_utils import TestServer
from msgspec.structs import replace
from tests.integration.server_cluster import Cluster, cluster
from tests.unit.api.conftest import QuietAgent

from lepa.api.app import build
from lepa.api.edge import Edge, Settings
from lepa.kit.sources import SystemClock
from lepa.kit.telemetry import Metrics
from lepa.model.acl import AclPolicy, AclToken
from lepa.model.tenancy import Namespace
from lepa.rpc import acl_requests as a
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.server.acl.guard import Guard
from lepa.server.key_file import load_or_make
from lepa.server.keyring import Keyring
from lepa.server.settings import AclSettings, ServerSettings
from lepa.store.protocol import Store

GOSSIP_KEY = "what the servers of a region share"


class Answer:
    """An HTTP answer, read whole."""

    def __init__(self, status: int, headers: Any, body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.text = body.decode("utf-8", "replace")

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class AclWorld:
    """The server, a management token, and requests with any token."""

    def __init__(self, made: Cluster, url: str, session: aiohttp.ClientSession, root: str) -> None:
        self.cluster = made
        wrapping, replica, clock = load_or_make(None, GOSSIP_KEY), made.server.replica, SystemClock()
        self.keyring = Keyring(replica, made.writer, clock, wrapping)
        """Opens what the server has sealed, as another server of its region does."""
        self.guard = Guard(
            replica,
            clock,
            self.keyring,
            enabled=True,
            guest_token=wrapping.guest_token,
            server_token=wrapping.server_token,
        )
        """Decides as the server does, without a call."""
        self.caller = made.caller
        self.url = url
        self.session = session
        self.root = root

    @property
    def snapshot(self) -> Any:
        return self.cluster.server.replica.snapshot

    async def ask(self, verb: str, path: str, token: str = "", body: Any = None) -> Answer:
        """An answer to anybody. token "": none is shown."""
        headers = {"X-Nomad-Token": token} if token else {}
        data = None if body is None else json.dumps(body)
        async with self.session.request(verb, f"{self.url}{path}", headers=headers, data=data) as answer:
            return Answer(answer.status, answer.headers, await answer.read())

    async def policy(self, name: str, rules: str, **fields: Any) -> None:
        policy = AclPolicy(name=name, rules=rules, **fields)
        await self.caller.call(m.ACL_POLICY_UPSERT, a.PolicyWriteRequest(value=policy, auth_token=self.root))

    async def token(self, rules: str, name: str = "made", **fields: Any) -> str:
        """The secret of a client token whose only policy has these rules."""
        await self.policy(name, rules)
        token = AclToken(name=name, type="client", policies=(name,), **fields)
        request = a.TokenWriteRequest(value=token, auth_token=self.root)
        return (await self.caller.call(m.ACL_TOKEN_UPSERT, request)).value.secret_id

    async def namespace(self, name: str) -> None:
        request = r.NamespaceWriteRequest(value=Namespace(name=name), auth_token=self.root)
        await self.caller.call(m.NAMESPACE_UPSERT, request)


@asynccontextmanager
async def acl_world(store: Store | None = None, **settings: Any) -> AsyncIterator[AclWorld]:
    """A server that leads and wants tokens, bootstrapped. settings: of access control."""
    wanted = ServerSettings(acl=AclSettings(enabled=True, shared_secret=GOSSIP_KEY, **settings))
    async with cluster(store, wanted) as made:
        edge = Edge(
            caller=made.caller,
            agent=QuietAgent(),
            node=None,
            clock=SystemClock(),
            metrics=Metrics(),
            settings=replace_acl(Settings()),
        )
        async with TestServer(build(edge)) as http, aiohttp.ClientSession() as session:
            root = (await made.caller.call(m.ACL_BOOTSTRAP, a.BootstrapRequest())).value.secret_id
            yield AclWorld(made, str(http.make_url("")).rstrip("/"), session, root)


def replace_acl(settings: Settings) -> Settings:
    return settings._replace(acl=True)


def with_token(request: Any, token: str) -> Any:
    """The request as somebody with `token` makes it."""
    return replace(request, auth_token=token)
