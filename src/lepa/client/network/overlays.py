"""This node's part in overlays: its share of each, its end of the tunnel, and the way to the other nodes.

For each overlay of the settings a loop asks the servers for the node's share, makes the devices, and from then on
follows the shares of the others: what the kernel forwards to is what the servers say. An overlay is `ready` once its
devices are there; until then, and where it cannot work, the node does not offer it, and says why.

Devices outlive the agent like the tasks that use them. A development agent, which ends its tasks, takes them away.
"""

import asyncio
import contextlib
import logging
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import psutil
from msgspec.structs import replace

from lepa.client import programs
from lepa.client.fingerprint import host
from lepa.client.local_state import LocalState
from lepa.client.network import conflists, tunnels
from lepa.client.network.cni import PluginList
from lepa.client.network.tunnels import Entry
from lepa.client.server_link import ServerLink
from lepa.client.settings import ClientSettings, OverlaySettings
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid
from lepa.model.overlay import OverlayLease
from lepa.model.wire import from_json, to_json
from lepa.rpc import methods as m
from lepa.rpc.overlay_requests import OverlayLeaseRequest
from lepa.rpc.requests import WAIT_MAX_NS, ReadRequest

log = logging.getLogger(__name__)

RETRY_S: Final = 5.0
COMMAND_S: Final = 20.0
SHOWN_WORDS: Final = 4
FOLLOW_S: Final = WAIT_MAX_NS / 1e9 * 1.2
KEY_FACT: Final = "overlay-key:"
MADE_FACT: Final = "overlay-made:"
MTU_UNKNOWN: Final = 1500
READY_S: Final = 30.0
"""How long an allocation waits for its overlay after the agent has started."""


class Overlays:
    """Overlays of one node. changed: called when one has become ready, or has ceased to be."""

    def __init__(
        self, settings: ClientSettings, state: LocalState, link: ServerLink, clock: Clock, changed: Callable[[], None]
    ) -> None:
        self._settings = settings
        self._state = state
        self._link = link
        self._clock = clock
        self._changed = changed
        self._tasks = Tasks("client.overlays")
        self._leases: dict[str, OverlayLease] = {}
        self._ready = {overlay.name: asyncio.Event() for overlay in settings.overlays}
        self.reasons: dict[str, str] = {}

    def ready(self) -> dict[str, OverlayLease]:
        """Overlays that work here, by name, with this node's share."""
        return {name: lease for name, lease in self._leases.items() if self._ready[name].is_set()}

    def start(self) -> None:
        """Take part in all of them."""
        for overlay in self._settings.overlays:
            self._tasks.start(f"overlay.{overlay.name}", self._take_part(overlay))

    async def close(self) -> None:
        """Let go; devices stay, unless the tasks ended with the agent."""
        await self._tasks.close()
        if self._settings.exit_with_agent and self._leases:
            await self._remove()

    # What allocations need

    async def plugin_list(self, name: str) -> PluginList:
        """The overlay on this node, ready to be attached to. Raises LepaError."""
        if name not in self._ready:
            raise invalid(f'this node takes part in no overlay "{name}"; add an overlay block to its client block')
        try:
            async with asyncio.timeout(READY_S):
                await self._ready[name].wait()
        except TimeoutError as error:
            reason = self.reasons.get(name) or "no server has given this node a share of it yet"
            raise LepaError("timeout", f'overlay "{name}" is not ready: {reason}') from error
        lease = self._leases[name]
        size = tunnels.mtu(_mtu_below(self._settings), encrypted=lease.encrypted)
        device = tunnels.names(lease.vni).bridge
        return conflists.overlay(f"overlay-{name}", device, lease.subnet, size, str(self._settings.directory / "cni"))

    async def enter(self, name: str, path: Path) -> tuple[str, ...]:
        """Let a namespace ask this agent for names; the address to ask at, none when the agent answers only itself."""
        port = self._settings.dns_port
        if not port:
            return ()
        server = tunnels.gateway(self._leases[name].subnet)
        if port != 53:
            rules = tunnels.name_service(server, port)
            await _run("nsenter", f"--net={path}", "iptables-restore", "--noflush", stdin=rules)
        return (server,)

    # Taking part

    async def _take_part(self, overlay: OverlaySettings) -> None:
        forwarded: dict[str, Entry] = {}
        while True:
            await self._link.registered.wait()
            try:
                lease = await self._lease(overlay)
                await self._make(lease, forwarded)
                await self._follow(lease, forwarded)
            except LepaError as error:
                if self.reasons.get(overlay.name) != error.message:
                    log.warning("overlay does not work here overlay=%s reason=%s", overlay.name, error.message)
                self.reasons[overlay.name] = error.message
            await self._clock.sleep(RETRY_S)

    async def _lease(self, overlay: OverlaySettings) -> OverlayLease:
        """This node's share. Raises LepaError."""
        node = self._link.node
        public_key = await self._public_key(overlay) if overlay.encrypted else ""
        wanted = OverlayLease(
            overlay=overlay.name,
            node_id=node.id,
            node_name=node.name,
            pool=overlay.pool,
            subnet_prefix=overlay.subnet_prefix,
            vni=overlay.vni or tunnels.default_vni(overlay.name),
            port=overlay.port,
            encrypted=overlay.encrypted,
            endpoint=await asyncio.to_thread(host.host_address, self._settings),
            public_key=public_key,
        )
        reply = await self._link.call(m.OVERLAY_LEASE, OverlayLeaseRequest(lease=wanted, secret_id=node.secret_id))
        lease: OverlayLease = reply.value
        return lease

    async def _public_key(self, overlay: OverlaySettings) -> str:
        """Of this node in an encrypted overlay; its private half is made once and kept in the node's own state."""
        name = KEY_FACT + overlay.name
        if name not in self._state.facts():
            await self._state.save_facts({name: (await _run("wg", "genkey")).strip()})
        return (await _run("wg", "pubkey", stdin=self._state.facts()[name])).strip()

    async def _make(self, lease: OverlayLease, forwarded: dict[str, Entry]) -> None:
        """The node's end of the tunnel, and the rules for what it carries. Raises LepaError."""
        before = self._leases.get(lease.overlay) or self._made_before(lease.overlay)
        tunnel = tunnels.names(lease.vni).tunnel
        if before is None or _lasting(before) != _lasting(lease) or not _is_there(tunnel):
            await _remove_device(tunnel)
            forwarded.clear()
            size = tunnels.mtu(_mtu_below(self._settings), encrypted=lease.encrypted)
            if lease.encrypted:
                await self._make_wireguard(lease, size)
            else:
                for words in tunnels.make_vxlan(lease, host.chosen_interface(self._settings), size):
                    await _run("ip", *words)
            await self._state.save_facts({MADE_FACT + lease.overlay: to_json(_lasting(lease)).decode()})
        self._leases[lease.overlay] = lease
        await self._set_firewall()

    def _made_before(self, name: str) -> OverlayLease | None:
        """For what share an earlier agent made the devices."""
        text = self._state.facts().get(MADE_FACT + name)
        return from_json(text.encode(), OverlayLease) if text else None

    async def _make_wireguard(self, lease: OverlayLease, size: int) -> None:
        tunnel = tunnels.names(lease.vni).tunnel
        try:
            await _run("ip", "link", "add", tunnel, "type", "wireguard")
        except LepaError as error:
            if shutil.which("wireguard-go") is None:
                raise LepaError(
                    "unsupported",
                    f'overlay "{lease.overlay}" is encrypted, and this kernel has no WireGuard ({error.message}); load '
                    "its module, install wireguard-go, or set encrypted = false on all nodes",
                ) from error
            await _run("wireguard-go", tunnel, listen=False)
        key = self._state.facts()[KEY_FACT + lease.overlay]
        await _run("wg", "set", tunnel, "listen-port", str(lease.port), "private-key", "/dev/stdin", stdin=key)
        for words in tunnels.make_wireguard(lease, size):
            await _run("ip", *words)

    async def _set_firewall(self) -> None:
        pools = sorted({lease.pool for lease in self._leases.values()})
        await _run("iptables-restore", "--noflush", "--wait", stdin=tunnels.firewall(pools))
        for table, chain in tunnels.JUMPS:
            jump = (chain, "-j", tunnels.CHAIN)
            try:
                await _run("iptables", "--wait", "-t", table, "-C", *jump)
            except LepaError:
                await _run("iptables", "--wait", "-t", table, "-I", *jump)

    async def _follow(self, lease: OverlayLease, forwarded: dict[str, Entry]) -> None:
        """Forward to the nodes that hold shares; returns when this node's own has changed."""
        index, tunnel = 0, tunnels.names(lease.vni).tunnel
        while True:
            secret = self._link.node.secret_id
            query = ReadRequest(id=lease.overlay, index=index, stale=True, auth_token=secret)
            reply = await self._link.call(m.OVERLAY_LEASES, query, timeout_s=FOLLOW_S)
            leases: Sequence[OverlayLease] = reply.value
            own = next((each for each in leases if each.node_id == lease.node_id), None)
            if own is None or own.subnet != lease.subnet:
                return
            wanted = tunnels.entries(leases, lease.node_id)
            for node_id in forwarded.keys() | wanted.keys():
                await self._forward(tunnel, forwarded, node_id, wanted.get(node_id), encrypted=lease.encrypted)
            self._is_ready(lease.overlay)
            index = reply.index

    async def _forward(
        self, tunnel: str, forwarded: dict[str, Entry], node_id: str, wanted: Entry | None, *, encrypted: bool
    ) -> None:
        before = forwarded.pop(node_id, None)
        if before is not None and before != wanted:
            for words in tunnels.forward(tunnel, before, None, encrypted=encrypted):
                with contextlib.suppress(LepaError):  # what is not there needs no removing
                    await _run(*words)
            before = None
        for words in tunnels.forward(tunnel, before, wanted, encrypted=encrypted):
            await _run(*words)
        if wanted is not None:
            forwarded[node_id] = wanted

    def _is_ready(self, name: str) -> None:
        self.reasons.pop(name, None)
        if not self._ready[name].is_set():
            log.info("overlay is ready overlay=%s subnet=%s", name, self._leases[name].subnet)
            self._ready[name].set()
            self._changed()

    async def _remove(self) -> None:
        for lease in self._leases.values():
            for device in tunnels.names(lease.vni):
                await _remove_device(device)
        for table, chain in tunnels.JUMPS:
            for words in (("-D", chain, "-j", tunnels.CHAIN), ("-F", tunnels.CHAIN), ("-X", tunnels.CHAIN)):
                with contextlib.suppress(LepaError):
                    await _run("iptables", "--wait", "-t", table, *words)


def _lasting(lease: OverlayLease) -> OverlayLease:
    return replace(lease, create_index=0, modify_index=0)


def _is_there(device: str) -> bool:
    return Path(f"/sys/class/net/{device}").exists() or device in psutil.net_if_stats()


def _mtu_below(settings: ClientSettings) -> int:
    stats = psutil.net_if_stats().get(host.chosen_interface(settings))
    return stats.mtu if stats is not None and stats.mtu > 0 else MTU_UNKNOWN


async def _remove_device(device: str) -> None:
    if _is_there(device):
        await _run("ip", "link", "delete", device)


async def _run(*words: str, stdin: str = "", listen: bool = True) -> str:
    """What a program prints. Raises LepaError with what it complained of."""
    ended = await programs.run(*words, timeout_s=COMMAND_S, stdin=stdin.encode(), listen=listen)
    if ended.code != 0:
        shown = " ".join(words[:SHOWN_WORDS])
        raise LepaError("internal", f'"{shown} …" failed: {ended.errors.decode(errors="replace").strip()[:300]}')
    return ended.output.decode(errors="replace")
