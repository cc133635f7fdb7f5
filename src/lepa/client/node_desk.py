"""Does what servers ask of this node: follows the requests, carries each out once at a time, and answers.

A request that was being carried out when the agent ended is found again by the next agent; so everything that nodes are
asked must be harmless to repeat.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from lepa.client.server_link import ServerLink
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError
from lepa.model.node_work import NodeWork
from lepa.rpc import methods as m
from lepa.rpc.requests import WAIT_MAX_NS
from lepa.rpc.volume_requests import NodeWorkDone, NodeWorkRequest

log = logging.getLogger(__name__)

RETRY_S: Final = 1.0
ANSWER_TRIES: Final = 30
FOLLOW_S: Final = WAIT_MAX_NS / SECOND * 1.2

Handler = Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]


class NodeDesk:
    """handlers: what can be asked, by kind."""

    def __init__(self, link: ServerLink, clock: Clock, handlers: Mapping[str, Handler]) -> None:
        self._link = link
        self._clock = clock
        self._handlers = handlers
        self._tasks = Tasks("client.desk")
        self._doing: set[str] = set()

    async def run(self) -> None:
        """Follow, for as long as the node lives."""
        index = 0
        async with self._tasks:
            while True:
                await self._link.registered.wait()
                node = self._link.node
                query = NodeWorkRequest(id=node.id, secret_id=node.secret_id, index=index, stale=True)
                try:
                    reply = await self._link.call(m.NODE_WORK, query, timeout_s=FOLLOW_S)
                except LepaError as error:
                    log.debug("requests could not be followed error=%s", error.message)
                    index = 0
                    await self._clock.sleep(RETRY_S)
                    continue
                index = reply.index
                for work in reply.value.work:
                    if work.id not in self._doing:
                        self._doing.add(work.id)
                        self._tasks.start(f"work.{work.kind}", self._do(work))

    async def _do(self, work: NodeWork) -> None:
        try:
            answer, error = await self._answer(work)
            await self._tell(work, answer, error)
        finally:
            self._doing.discard(work.id)

    async def _answer(self, work: NodeWork) -> tuple[bytes, str]:
        handler = self._handlers.get(work.kind)
        if handler is None:
            return b"", f'this node does not know how to do "{work.kind}"; its agent may be older than the servers'
        try:
            answer = await handler(json.loads(work.body))
        except LepaError as error:
            log.warning("request failed kind=%s error=%s", work.kind, error.message)
            return b"", error.message
        except Exception as error:  # whoever asked must not wait for nothing
            log.exception("request failed kind=%s", work.kind)
            return b"", f"internal error: {error}"
        return json.dumps(answer).encode(), ""

    async def _tell(self, work: NodeWork, answer: bytes, error: str) -> None:
        node = self._link.node
        done = NodeWorkDone(node_id=node.id, secret_id=node.secret_id, work_id=work.id, error=error, answer=answer)
        for _ in range(ANSWER_TRIES):
            try:
                await self._link.call(m.NODE_WORK_DONE, done)
                return
            except LepaError as problem:
                log.debug("answer could not be sent kind=%s error=%s", work.kind, problem.message)
                await self._clock.sleep(RETRY_S)
