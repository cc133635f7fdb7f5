"""Pure: CSI plugins as the nodes that run them tell of them, and CSI volumes with what their plugins can do now."""

from collections.abc import Iterator

from msgspec.structs import replace

from lepa.model.node import Node
from lepa.model.volume import CSIInfo, CSIPlugin, CSIPluginListStub, CSIVolListStub, CSIVolume
from lepa.model.wire import shortened
from lepa.server.endpoints.stubs import alloc_stub
from lepa.state.snapshot import Snapshot


def plugin(snapshot: Snapshot, plugin_id: str) -> CSIPlugin | None:
    """One plugin, None when no node runs it."""
    controllers = dict(_running(snapshot, plugin_id, controllers=True))
    nodes = dict(_running(snapshot, plugin_id, controllers=False))
    infos = [*controllers.values(), *nodes.values()]
    if not infos:
        return None
    allocs = [alloc for info in infos if (alloc := snapshot.allocation(info.alloc_id)) is not None]
    return CSIPlugin(
        id=plugin_id,
        provider=infos[0].provider,
        version=infos[0].provider_version,
        controller_required=any(info.requires_controller_plugin for info in infos),
        controllers=controllers,
        nodes=nodes,
        allocations=tuple(alloc_stub(snapshot, alloc) for alloc in {alloc.id: alloc for alloc in allocs}.values()),
        controllers_healthy=sum(info.healthy for info in controllers.values()),
        controllers_expected=len(controllers),
        nodes_healthy=sum(info.healthy for info in nodes.values()),
        nodes_expected=len(nodes),
        create_index=1,
        modify_index=snapshot.table_index("nodes"),
    )


def _running(snapshot: Snapshot, plugin_id: str, *, controllers: bool) -> Iterator[tuple[str, CSIInfo]]:
    for node in snapshot.nodes():
        info = (node.csi_controller_plugins if controllers else node.csi_node_plugins).get(plugin_id)
        if info is not None:
            yield node.id, replace(info, healthy=info.healthy and node.status == "ready")


def plugin_ids(snapshot: Snapshot) -> list[str]:
    """All plugins, sorted."""
    return sorted(
        {name for node in snapshot.nodes() for name in (*node.csi_controller_plugins, *node.csi_node_plugins)}
    )


def plugin_stub(found: CSIPlugin) -> CSIPluginListStub:
    """A plugin in a list."""
    return shortened(found, CSIPluginListStub)


def volume(snapshot: Snapshot, stored: CSIVolume) -> CSIVolume:
    """A volume with its users and the state of its plugin; its secrets are nobody's business."""
    found = plugin(snapshot, stored.plugin_id) or CSIPlugin()
    claims = snapshot.csi_claims(stored.namespace, stored.id)
    users = [alloc for claim in claims if (alloc := snapshot.allocation(claim.alloc_id)) is not None]
    return replace(
        stored,
        secrets=dict.fromkeys(stored.secrets, "[REDACTED]"),
        access_mode=claims[0].access_mode if claims else "",
        attachment_mode=claims[0].attachment_mode if claims else "",
        read_allocs={claim.alloc_id: None for claim in claims if claim.mode == "read"},
        write_allocs={claim.alloc_id: None for claim in claims if claim.mode == "write"},
        allocations=tuple(alloc_stub(snapshot, alloc) for alloc in users),
        schedulable=found.nodes_healthy > 0 and (not found.controller_required or found.controllers_healthy > 0),
        provider=found.provider,
        provider_version=found.version,
        controller_required=found.controller_required,
        controllers_healthy=found.controllers_healthy,
        controllers_expected=found.controllers_expected,
        nodes_healthy=found.nodes_healthy,
        nodes_expected=found.nodes_expected,
    )


def volume_stub(shown: CSIVolume) -> CSIVolListStub:
    """A volume in a list."""
    readers, writers = len(shown.read_allocs), len(shown.write_allocs)
    return shortened(shown, CSIVolListStub, current_readers=readers, current_writers=writers)


def controller_node(snapshot: Snapshot, plugin_id: str) -> Node | None:
    """A node whose controller plugin works, the first by id."""
    fitting = [
        node
        for node in snapshot.nodes()
        if node.status == "ready" and (info := node.csi_controller_plugins.get(plugin_id)) is not None and info.healthy
    ]
    return min(fitting, key=lambda node: node.id, default=None)
