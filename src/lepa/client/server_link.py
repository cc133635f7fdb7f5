"""This node and its servers: registered, and heard of often enough.

A node registers when it starts, when something about it changes, and when a server says that it does not know it; in
the last case (`forgotten`) everything else has to be told again too. It sends a heartbeat twice as often as the servers
want one, and more often while none gets through. Each answer tells which servers there are; the node goes on at those,
and still knows the ones that it was given.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.node import Node
from lepa.rpc.channel import HttpCaller
from lepa.rpc.methods import NODE_HEARTBEAT, NODE_REGISTER, Caller, Method
from lepa.rpc.requests import NodeHeartbeatRequest, NodeRegisterRequest, NodeUpdateResponse, Reply, Request

log = logging.getLogger(__name__)

RETRY_S = 1.0
RETRY_MAX_S = 15.0
HEARTBEAT_DEFAULT_S = 10.0
CALL_S = 30.0
BEAT_MIN_S = 3.0
"""A heartbeat that is not answered for this long, or half of what the servers want, is sent again: it may have been
lost on a connection that nobody is at the end of any more."""


class ServerLink:
    """Registration and heartbeats of one node. forgotten: called when the servers turn out not to know it."""

    def __init__(self, caller: Caller, clock: Clock, random: Random, forgotten: Callable[[], None]) -> None:
        self._caller = caller
        self._servers = caller if isinstance(caller, HttpCaller) else None
        self._clock = clock
        self._random = random
        self._forgotten = forgotten
        self._heartbeat_s = HEARTBEAT_DEFAULT_S
        self._has_to_register = asyncio.Event()
        self._has_to_register.set()
        self.registered = asyncio.Event()
        self.last_contact = clock.now()
        self.node = Node()
        self.seen = 0
        """Index up to which this node knows what the servers want."""

    async def call(self, method: Method[Any, Any], request: Request, timeout_s: float = CALL_S) -> Reply[Any]:
        """Ask the servers. Raises LepaError."""
        try:
            async with asyncio.timeout(timeout_s):
                reply = await self._caller.call(method, request)
        except TimeoutError as error:
            raise LepaError("timeout", f"no server answered {method.name} within {timeout_s:g} s") from error
        self.last_contact = self._clock.now()
        return reply

    async def wait(self, method: Method[Any, Any], request: Request, timeout_s: float) -> Reply[Any] | None:
        """Ask the servers for what may take long; None when another server is asked first now: ask again there.

        A server that is cut off from the others lets its callers wait for what has happened elsewhere.
        """
        if self._servers is None:
            return await self.call(method, request, timeout_s)
        async with Tasks("server_link") as tasks:
            ask = tasks.start("ask", self._outcome(method, request, timeout_s))
            moved = tasks.start("moved", self._servers.moved.wait())
            await asyncio.wait({ask, moved}, return_when=asyncio.FIRST_COMPLETED)
            if not ask.done():
                return None
            found: Reply[Any] | LepaError = ask.result()
            if isinstance(found, LepaError):
                raise found
            return found

    async def _outcome(self, method: Method[Any, Any], request: Request, timeout_s: float) -> Reply[Any] | LepaError:
        try:
            return await self.call(method, request, timeout_s)
        except LepaError as error:
            return error

    def change(self, node: Node) -> None:
        """This is what the node is from now on: tell the servers."""
        self.node = node
        self._register_again()

    def not_known(self) -> None:
        """A server does not know this node."""
        log.warning("the servers do not know this node; registering again node_id=%s", self.node.id)
        self._register_again()
        self._forgotten()

    def _register_again(self) -> None:
        self.registered.clear()
        self._has_to_register.set()

    async def register(self) -> None:
        """Register whenever it is needed, for as long as the node lives."""
        delay_s = RETRY_S
        while True:
            await self._has_to_register.wait()
            self._has_to_register.clear()
            request = NodeRegisterRequest(node=replace(self.node, status="ready"))
            try:
                self._take(await self.call(NODE_REGISTER, request))
            except LepaError as error:
                log.warning("node could not register error=%s retry_s=%.1f", error.message, delay_s)
                await self._clock.sleep(delay_s * self._random.uniform(0.75, 1.25))
                delay_s = min(delay_s * 2, RETRY_MAX_S)
                self._has_to_register.set()
                continue
            delay_s = RETRY_S
            if not self._has_to_register.is_set():
                self.registered.set()
            log.info("node registered node_id=%s name=%s", self.node.id, self.node.name)

    def _take(self, reply: Reply[NodeUpdateResponse]) -> None:
        if reply.value.heartbeat_ttl > 0:
            self._heartbeat_s = reply.value.heartbeat_ttl / SECOND
        if reply.value.servers and self._servers is not None:
            self._servers.use(reply.value.servers)

    async def beat(self) -> None:
        """Send heartbeats for as long as the node lives."""
        pause_s = 0.0
        while True:
            await self.registered.wait()
            await self._clock.sleep(pause_s or self._heartbeat_s / 2 * self._random.uniform(0.8, 1.0))
            request = NodeHeartbeatRequest(node_id=self.node.id, secret_id=self.node.secret_id, status="ready")
            try:
                self._take(await self.call(NODE_HEARTBEAT, request, max(BEAT_MIN_S, self._heartbeat_s / 2)))
                pause_s = 0.0
            except LepaError as error:
                if error.code == "not_found":
                    self.not_known()
                else:
                    log.warning("heartbeat failed error=%s", error.message)
                    pause_s = RETRY_S
