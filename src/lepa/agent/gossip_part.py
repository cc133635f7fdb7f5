"""This server among the servers of all regions, by gossip: who they are, where they answer, and whether they live.

Servers of every region are members of one pool, as Nomad's are. Others in this agent ask `servers(region)` and
`members()`; what members hear of each other is in `lepa.gossip`.
"""

import logging
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from lepa.agent import gossip_settings as chosen
from lepa.agent.config import Config
from lepa.agent.join_settings import given_up
from lepa.agent.member_snapshot import read_snapshot, write_snapshot
from lepa.agent.store_settings import server_folder
from lepa.gossip import internal_queries as internal
from lepa.gossip.keyring import key_bytes
from lepa.gossip.node import GossipNode, address_text
from lepa.gossip.orders import Conflict
from lepa.gossip.profile import PROFILES
from lepa.gossip.serf import Event, KeysChanged, Settings
from lepa.gossip.serf_members import Member, MemberEvent
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError, conflict, invalid
from lepa.rpc import requests as r

log = logging.getLogger(__name__)

RECONNECT_S: Final = 72 * 3600.0
"""How long a failed server is tried to be reached and shown."""
REJOIN_ATTEMPTS: Final = 10
REJOIN_S: Final = 3.0
METRICS_S: Final = 10.0
CONFLICTS_MAX: Final = 256
KEY_OPERATIONS: Final = {
    "list": internal.LIST_KEYS,
    "install": internal.INSTALL_KEY,
    "use": internal.USE_KEY,
    "remove": internal.REMOVE_KEY,
}

HAPPENED: Final = {"join": "joined", "leave": "left", "failed": "failed", "update": "changed", "reap": "forgotten"}


class GossipPart:
    """The gossip of an agent with a server, as an async context manager; before it is entered it knows only itself."""

    def __init__(
        self,
        config: Config,
        build: str,
        clock: Clock,
        random: Random,
        metrics: Metrics,
        give_up: Callable[[LepaError], None],
        *,
        shares_state: bool,
    ) -> None:
        """build: the version that it says. shares_state: with others of its region.

        give_up: is told when nobody could be joined in as many attempts as are allowed.
        """
        self._config = config
        self._give_up = give_up
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._folder = server_folder(config)
        self._joins = chosen.joins(config)
        self._build = build
        self._tasks = Tasks("gossip_part")
        self._stack = AsyncExitStack()
        self._node: GossipNode | None = None
        self._left = False
        self._conflicts: set[Conflict] = set()
        self._shares_state = shares_state
        if shares_state:  # they start one after the other, and wait for each other
            self._joins = self._joins._replace(
                at_start=(), until_joined=tuple(dict.fromkeys([*self._joins.until_joined, *self._joins.at_start]))
            )

    async def __aenter__(self) -> "GossipPart":
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()
        self._node = None

    async def _start(self) -> None:
        config = self._config
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        former = read_snapshot(self._snapshot, after_leave=config.server.rejoin_after_leave)
        settings = Settings(
            name=chosen.member_name(config),
            addr=b"",
            port=0,
            tags=chosen.member_tags(config, self._build),
            profile=PROFILES[config.server.gossip_profile],
            reconnect_s=RECONNECT_S,
            admit=chosen.admit_servers,
        )
        listen = chosen.listen_on(config)
        node = GossipNode(
            settings,
            listen,
            self._clock,
            self._random,
            self._told,
            keyring=chosen.load_keyring(self._folder, config.server.encrypt),
        )
        try:
            await self._stack.enter_async_context(node)
        except OSError as error:
            raise conflict(
                f"cannot listen on {listen.host}:{listen.port} for gossip: {error.strerror or error}; "
                "stop the other process, or set `ports { serf = … }`"
            ) from error
        except ValueError as error:
            raise invalid(f"configuration: {error}; shorten the name, the region or the datacenter") from error
        self._node = node
        await self._stack.enter_async_context(self._tasks)
        if self._joins.at_start:
            joined, errors = await node.join(self._joins.at_start, config.ports.serf)
            if not joined:
                raise LepaError("timeout", f"cannot join other servers: {'; '.join(errors)}")
        if self._joins.until_joined:
            self._tasks.start("retry-join", self._retry_join(node))
        if former:
            self._tasks.start("rejoin", self._rejoin(node, former))
        self._tasks.start("metrics", self._measure(node))

    # What others ask

    def members(self) -> list[r.Member]:
        """Servers of all regions, those that failed or left included."""
        return [_shown(member) for member in (self._node.members() if self._node else [])]

    def regions(self) -> tuple[str, ...]:
        """Regions with a server that lives, sorted; this one always."""
        alive = {member.tags.get("region", "") for member in self.members() if member.status == "alive"}
        return tuple(sorted({self._config.region, *alive} - {""}))

    def servers(self, region: str) -> list[str]:
        """Internal addresses of a region's servers that live."""
        there = [member for member in self.members() if member.status == "alive"]
        return [_rpc_address(member) for member in there if member.tags.get("region") == region]

    def stats(self) -> dict[str, str]:
        """Figures under the names that Nomad's `agent-info` has them."""
        if self._node is None:
            return {}
        serf, members = self._node.serf, self._node.members()
        return {
            "members": str(len(members)),
            "failed": str(sum(member.status == "failed" for member in members)),
            "left": str(sum(member.status == "left" for member in members)),
            "health_score": str(serf.membership.health),
            "member_time": str(serf.clock.time),
            "event_time": str(serf.event_clock.time),
            "query_time": str(serf.query_clock.time),
            "encrypted": str(serf.framing.keyring is not None).lower(),
        }

    async def join(self, addresses: Sequence[str]) -> tuple[int, str, str]:
        """Join other servers: how many were reached, why none, and what is doubtful."""
        node = self._running()
        joined, errors = await node.join(addresses, self._config.ports.serf)
        if not joined:
            return 0, "; ".join(errors), ""
        return joined, "", "; ".join([*errors, *self._doubts()])

    def force_leave(self, name: str, *, prune: bool) -> None:
        """Forget that a failed server should be here. A name that nobody has is forgotten already, as for Nomad."""
        node, full = self._running(), f"{name}.{self._config.region}"
        for each in (name, full):
            if any(member.name == each for member in node.members()):
                if not node.force_leave(each, prune=prune):
                    raise invalid(f'"{each}" is this server itself: stop it, with leave_on_terminate = true')
                return

    async def keyring(self, operation: str, key: str) -> dict[str, object]:
        """list, install, use or remove a key on all servers, in the shape of Nomad's API. Raises LepaError."""
        node = self._running()
        if node.framing.keyring is None:
            raise invalid(
                'gossip is not encrypted here: set server { encrypt = "…" } on every server; '
                "`lepa operator gossip keyring generate` makes a key"
            )
        try:
            wanted = key_bytes(key) if operation != "list" else b""
        except ValueError as error:
            raise invalid(str(error)) from None
        report = await node.ask_about_keys(KEY_OPERATIONS[operation], wanted)
        if report.failed or report.answered < report.members:
            raise LepaError("internal", _unfinished(operation, report.members, report.answered, report.messages))
        return {"Messages": report.messages, "Keys": report.keys, "NumNodes": report.members}

    async def leave(self) -> None:
        """Tell the others that this server leaves for good; returns once they had time to hear it."""
        if self._node is not None and not self._left:
            self._left = True
            log.info("server leaves")
            await self._node.leave()
            write_snapshot(self._snapshot, self._node.members(), left=True)

    def _running(self) -> GossipNode:
        if self._node is None:
            raise LepaError("no_leader", "gossip has not started yet; try again")
        return self._node

    # Joining

    async def _retry_join(self, node: GossipNode) -> None:
        attempt = 0
        while True:
            attempt += 1
            joined, errors = await node.join(self._joins.until_joined, self._config.ports.serf)
            if joined and (len(self.members()) > 1 or len(self._joins.until_joined) == 1):
                log.info("joined other servers reached=%d", joined)
                return
            if attempt == self._joins.retry.attempts:
                if sum(member.status == "alive" for member in self.members()) > 1:
                    log.error("gave up joining by retry_join attempts=%d: %s", attempt, "; ".join(errors))
                else:
                    self._give_up(given_up(attempt, errors))
                return
            pause = self._joins.retry.interval_s
            log.warning("cannot join other servers yet; tried again in %g s: %s", pause, "; ".join(errors))
            await self._clock.sleep(pause)

    async def _rejoin(self, node: GossipNode, former: Sequence[str]) -> None:
        """Those who were there before are there again, or some of them."""
        own = chosen.member_name(self._config)
        others = [address for address in former if not address.startswith(f"{own}/")]
        for attempt in range(REJOIN_ATTEMPTS if others else 0):
            joined, _ = await node.join(others, self._config.ports.serf)
            if joined:
                log.info("joined former members reached=%d of=%d", joined, len(others))
                return
            await self._clock.sleep(REJOIN_S * (attempt + 1))

    # What is told

    def _told(self, event: Event) -> None:
        if isinstance(event, KeysChanged) and self._node is not None and self._node.framing.keyring is not None:
            chosen.save_keyring(self._folder, self._node.framing.keyring)
            log.info("keys of gossip changed installed=%d", len(self._node.framing.keyring.keys))
        if isinstance(event, Conflict):
            self._told_conflict(event)
        if isinstance(event, MemberEvent):
            member = event.member
            if member.name != chosen.member_name(self._config):
                log.info(
                    "member %s name=%s address=%s:%d region=%s",
                    HAPPENED[event.kind],
                    member.name,
                    address_text(member.addr),
                    member.port,
                    member.tags.get("region", ""),
                )
                for doubt in self._doubts() if event.kind == "join" else ():
                    log.warning("%s", doubt)
            if self._node is not None and not self._left:
                write_snapshot(self._snapshot, self._node.members(), left=False)

    def _told_conflict(self, conflict: Conflict) -> None:
        """Once for each pair: it is said again and again."""
        if conflict in self._conflicts or len(self._conflicts) >= CONFLICTS_MAX:
            return
        self._conflicts.add(conflict)
        known, said = (f"{address_text(addr)}:{port}" for addr, port in (conflict.known, conflict.said))
        if conflict.name == chosen.member_name(self._config):
            log.error('another server calls itself "%s", at %s: give one of the two another name', conflict.name, said)
        else:
            log.warning(
                '"%s" is known at %s and now says that it is at %s: if it has moved, `lepa server force-leave %s` '
                "lets it in; else give one of the two another name",
                conflict.name,
                known,
                said,
                conflict.name,
            )

    def _doubts(self) -> list[str]:
        """What is wrong about the members, for people."""
        own = chosen.member_name(self._config)
        same = [m.name for m in self.members() if m.tags.get("region") == self._config.region and m.name != own]
        if not same or self._shares_state:
            return []
        return [
            f'{", ".join(sorted(same))}: also of region "{self._config.region}", but this server keeps its state alone '
            "and shares none with it: give one of them another region, or set bootstrap_expect on all"
        ]

    async def _measure(self, node: GossipNode) -> None:
        while True:
            for name, value in node.counts().items():
                self._metrics.gauge(f"lepa.gossip.{name}", value)
            for status in ("alive", "leaving", "left", "failed"):
                count = sum(member.status == status for member in node.members())
                self._metrics.gauge("lepa.gossip.members", count, status=status)
            await self._clock.sleep(METRICS_S)

    @property
    def _snapshot(self) -> Path:
        return chosen.members_file(self._folder)


def _shown(member: Member) -> r.Member:
    low, high, spoken, dlow, dhigh, dspoken = member.versions or bytes(6)
    return r.Member(
        name=member.name,
        addr=address_text(member.addr),
        port=member.port,
        tags=dict(member.tags),
        status=member.status,
        protocol_min=low,
        protocol_max=high,
        protocol_cur=spoken,
        delegate_min=dlow,
        delegate_max=dhigh,
        delegate_cur=dspoken,
    )


def _rpc_address(member: r.Member) -> str:
    host = member.tags.get("rpc_addr") or member.addr
    return f"[{host}]:{member.tags['port']}" if ":" in host else f"{host}:{member.tags['port']}"


def _unfinished(operation: str, members: int, answered: int, messages: dict[str, str]) -> str:
    parts = [f"{answered}/{members} servers answered the request to {operation} keys"]
    parts += [f"{name}: {why}" for name, why in sorted(messages.items())]
    return "; ".join(parts)
