"""Pure: namespaces, node pools and the scheduler's settings."""

import re
from typing import Final

from msgspec.structs import replace

from lepa.model.errors import conflict, invalid, not_found
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration, canonical_autopilot
from lepa.model.tenancy import Namespace, NodePool
from lepa.state import keys
from lepa.state.commands.draft import Draft

BUILT_IN_POOLS: Final = ("default", "all")
DESCRIPTION_MAX: Final = 256
NAMESPACE_NAME: Final = re.compile(r"[a-zA-Z0-9-]{1,128}")
POOL_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def upsert_namespace(draft: Draft, namespace: Namespace) -> None:
    """Create or change a namespace."""
    if not NAMESPACE_NAME.fullmatch(namespace.name):
        raise invalid(f'invalid name "{namespace.name}". Must match regex ^[a-zA-Z0-9-]{{1,128}}$')
    if len(namespace.description) > DESCRIPTION_MAX:
        raise invalid(f"description longer than {DESCRIPTION_MAX}")
    draft.overwrite(keys.namespace_key(namespace.name), namespace)


def delete_namespace(draft: Draft, name: str) -> None:
    """Remove a namespace that nothing is in."""
    if name == "default":
        raise invalid("can not delete default namespace")
    if draft.snapshot.namespace(name) is None:
        raise not_found("Namespace not found")
    if next(iter(draft.snapshot.jobs_in(name)), None) is not None:
        raise conflict(f'namespace "{name}" has non-terminal jobs in regions: [global]')
    if any(alloc.namespace == name for alloc in draft.snapshot.allocations()):
        raise conflict(f'namespace "{name}" has allocations in regions: [global]')
    if next(iter(draft.snapshot.variables_in(name)), None) is not None:
        raise conflict(f'namespace "{name}" has variables in regions: [global]')
    draft.erase(keys.namespace_key(name))


def upsert_node_pool(draft: Draft, pool: NodePool) -> None:
    """Create or change a node pool; the built-in ones stay as they are."""
    if pool.name in BUILT_IN_POOLS:
        raise invalid(f'modifying node pool "{pool.name}" is not allowed')
    if not POOL_NAME.fullmatch(pool.name):
        raise invalid(f'invalid name "{pool.name}", must match regex ^[a-zA-Z0-9-_]{{1,128}}$')
    if len(pool.description) > DESCRIPTION_MAX:
        raise invalid(f"description longer than {DESCRIPTION_MAX}")
    draft.overwrite(keys.node_pool_key(pool.name), pool)


def delete_node_pool(draft: Draft, name: str) -> None:
    """Remove a node pool that no node and no job uses."""
    if name in BUILT_IN_POOLS:
        raise invalid(f'node pool "{name}" can not be deleted')
    if draft.snapshot.node_pool(name) is None:
        raise not_found("node pool not found")
    if draft.snapshot.pool_nodes(name):
        raise conflict(f'node pool "{name}" has nodes in regions: [global]')
    if any(job.node_pool == name and job.status != "dead" for job in draft.snapshot.jobs()):
        raise conflict(f'node pool "{name}" has non-terminal jobs in regions: [global]')
    draft.erase(keys.node_pool_key(name))


def set_scheduler_configuration(
    draft: Draft, wanted: SchedulerConfiguration, *, check_index: int | None = None
) -> bool:
    """Store the settings; False when check_index is given and they were last modified at another index."""
    if wanted.scheduler_algorithm not in ("binpack", "spread", ""):
        raise invalid(f"invalid scheduler algorithm: {wanted.scheduler_algorithm}")
    present = draft.snapshot.scheduler_configuration()
    if check_index is not None and present.modify_index != check_index:
        return False
    algorithm = wanted.scheduler_algorithm or "binpack"
    draft.overwrite(keys.scheduler_configuration_key(), replace(wanted, scheduler_algorithm=algorithm))
    return True


def set_autopilot(draft: Draft, wanted: AutopilotConfiguration, *, check_index: int | None = None) -> bool:
    """Store how servers look after each other; check_index: as for the scheduler's settings."""
    wanted = canonical_autopilot(wanted)
    if check_index is not None and draft.snapshot.autopilot().modify_index != check_index:
        return False
    draft.overwrite(keys.autopilot_key(), wanted)
    return True
