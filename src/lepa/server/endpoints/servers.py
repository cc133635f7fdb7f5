"""The servers: who leads, who there is, and what they say to each other.

What servers say to each other is a leader's to answer: a call that reaches another server is refused or passed on.
"""

from typing import Any

from lepa.model.errors import invalid
from lepa.model.plan import PlanResult
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc import server_requests as s
from lepa.rpc.requests import Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries

GOSSIP_PORT = 4648


class ServerEndpoints:
    """What the asked server knows of the servers, and pulses."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts

    async def leader(self, request: r.ReadRequest) -> Reply[str]:
        """Internal address of the leader, "" when there is none."""
        return self._reply(self._context.leadership.leader_address)

    async def peers(self, request: r.ReadRequest) -> Reply[tuple[str, ...]]:
        """Internal addresses of all servers, those that have failed included."""
        return self._reply(tuple(server.rpc_address for server in self._context.roster.servers()))

    async def servers(self, request: r.ReadRequest) -> Reply[tuple[s.ServerRecord, ...]]:
        """All servers by name, with their addresses."""
        return self._reply(self._context.roster.servers())

    async def regions(self, request: r.ReadRequest) -> Reply[tuple[str, ...]]:
        """Names of all regions."""
        return self._reply((self._parts.settings.region,))

    async def members(self, request: r.ReadRequest) -> Reply[r.Members]:
        """All servers as this one sees them."""
        settings = self._parts.settings
        statuses = self._context.contact.statuses()
        servers = self._context.roster.servers()
        answer = r.Members(
            server_name=settings.name,
            server_region=settings.region,
            server_dc=settings.datacenter,
            members=tuple(_member(server, statuses[server.name], len(servers)) for server in servers),
        )
        return self._reply(answer)

    async def dequeue(self, request: s.EvalDequeueRequest) -> Reply[tuple[s.EvalDelivery, ...]]:
        """Evaluations for another server's workers."""
        leading = await self._context.leading()
        if not request.server or request.most < 1:
            raise invalid("a server that asks for evaluations has to name itself and ask for one at least")
        return self._reply(await leading.lending.dequeue(request))

    async def done(self, request: s.EvalDoneRequest) -> Reply[None]:
        """Another server's worker is done with a delivery."""
        (await self._context.leading()).lending.done(request)
        return self._reply(None)

    async def close(self, request: s.EvalCloseRequest) -> Reply[None]:
        """An evaluation of another server's worker needs no plan."""
        index = await (await self._context.leading()).lending.close(request)
        return Reply(value=None, index=index)

    async def submit(self, request: s.PlanSubmitRequest) -> Reply[PlanResult]:
        """A plan of another server's worker."""
        result = await (await self._context.leading()).lending.submit(request)
        return Reply(value=result, index=result.applied_index)

    async def pulse(self, request: s.PulseRequest) -> Reply[s.Pulse]:
        """A follower lives."""
        return self._reply(self._context.contact.answer(request))

    def _reply(self, value: Any) -> Reply[Any]:
        return Reply(value=value, index=max(1, self._parts.replica.snapshot.index))

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        return {
            m.STATUS_LEADER: self.leader,
            m.STATUS_PEERS: self.peers,
            m.STATUS_MEMBERS: self.members,
            m.STATUS_SERVERS: self.servers,
            m.STATUS_REGIONS: self.regions,
            m.SERVER_PULSE: self.pulse,
            m.EVAL_DEQUEUE: self.dequeue,
            m.EVAL_DONE: self.done,
            m.EVAL_CLOSE: self.close,
            m.PLAN_SUBMIT: self.submit,
        }


def _member(server: s.ServerRecord, status: str, servers: int) -> r.Member:
    host, _, port = server.rpc_address.rpartition(":")
    tags = {
        "role": "nomad",
        "region": server.region,
        "dc": server.datacenter,
        "port": port,
        "rpc_addr": host,
        "id": server.name,
        "expect": str(servers),
        "vsn": "1",
        "build": server.build,
        "raft_vsn": "3",
    }
    if servers == 1:
        tags["bootstrap"] = "1"
    return r.Member(name=server.name, addr=host, port=GOSSIP_PORT, tags=tags, status=status)
