"""Calls to other servers that show what only servers of the region can know."""

from typing import TypeVar

from msgspec.structs import replace

from lepa.rpc.channel import Peers
from lepa.rpc.methods import Method
from lepa.rpc.requests import Reply, Request
from lepa.server.acl.table import need_of

Q = TypeVar("Q", bound=Request)
A = TypeVar("A")


class Introduced:
    """Fits `lepa.rpc.channel.Peers`. Calls that come from others are passed on with what these show themselves."""

    def __init__(self, peers: Peers, token: str) -> None:
        self._peers = peers
        self._token = token

    async def ask(self, address: str, method: Method[Q, A], request: Q, timeout_s: float) -> Reply[A]:
        """The answer of a server; one that is for servers alone is asked as one."""
        if need_of(method.name).kind == "server":
            request = replace(request, auth_token=self._token)
        return await self._peers.ask(address, method, request, timeout_s)
