"""Takes CSI volumes away from allocations that have ended: off their node, then off the storage, then out of the books.

A node that is well takes its volumes off itself and says so. What is left is found here: allocations that ended with
their node, or whose node forgot them. A node that is ready is asked; of one that is gone the storage is told to let go,
for the volume would be lost to everybody otherwise.
"""

import logging
from typing import Final

from lepa.model.errors import LepaError
from lepa.model.usage import is_stopped
from lepa.model.volume import CSIClaim
from lepa.server.csi_views import controller_node
from lepa.server.endpoints.context import Context
from lepa.server.node_desk import ask
from lepa.state.commands import csi as commands
from lepa.state.job_tally import TERMINAL_CLIENT_STATUSES
from lepa.state.snapshot import Snapshot

log = logging.getLogger(__name__)

LOOK_S: Final = 5.0
AT_ONCE_MAX: Final = 20
NODE_S: Final = 60.0


def abandoned(snapshot: Snapshot) -> list[CSIClaim]:
    """Claims of allocations that have ended or are forgotten, or that were to end when their node went down."""
    found = []
    for claim in snapshot.all_csi_claims():
        alloc, node = snapshot.allocation(claim.alloc_id), snapshot.node(claim.node_id)
        node_is_gone = node is None or node.status == "down"
        if alloc is None or alloc.client_status in TERMINAL_CLIENT_STATUSES or (node_is_gone and is_stopped(alloc)):
            found.append(claim)
    return found


async def release_abandoned(context: Context) -> None:
    """One look; claims that cannot be released now are tried again with the next one."""
    for claim in abandoned(context.parts.replica.snapshot)[:AT_ONCE_MAX]:
        try:
            await release(context, claim)
            log.info("volume released volume=%s alloc_id=%s", claim.volume_id, claim.alloc_id)
        except LepaError as error:
            if error.code == "no_leader":
                raise
            log.warning(
                "volume not released volume=%s alloc_id=%s error=%s", claim.volume_id, claim.alloc_id, error.message
            )


async def release(context: Context, claim: CSIClaim) -> None:
    """Take a volume off its node (when that is there), off the storage, and out of the books. Raises LepaError."""
    snapshot = context.parts.replica.snapshot
    node = snapshot.node(claim.node_id)
    if node is not None and node.status == "ready":
        body = {"VolumeID": claim.volume_id, "Namespace": claim.namespace, "AllocID": claim.alloc_id}
        await ask(context, claim.node_id, "csi.node-detach", body, NODE_S)
    await detach_controller(context, claim)
    await context.write(lambda draft: commands.free_claim(draft, claim))


async def detach_controller(context: Context, claim: CSIClaim) -> None:
    """Let the storage detach the volume from a node that nobody else uses it on. Raises LepaError."""
    snapshot = context.parts.replica.snapshot
    volume = snapshot.csi_volume(claim.namespace, claim.volume_id)
    others = [
        each
        for each in snapshot.csi_claims(claim.namespace, claim.volume_id)
        if each.alloc_id != claim.alloc_id and each.node_id == claim.node_id
    ]
    if volume is None or not claim.external_node or others:
        return
    controller = controller_node(snapshot, volume.plugin_id)
    if controller is None:
        raise LepaError("timeout", f"no healthy controller of CSI plugin {volume.plugin_id}", http_status=500)
    body = {
        "PluginID": volume.plugin_id,
        "ExternalID": volume.external_id,
        "ExternalNode": claim.external_node,
        "Secrets": volume.secrets,
    }
    await ask(context, controller.id, "csi.detach", body, NODE_S)
