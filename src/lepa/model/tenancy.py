"""Pure: namespaces and node pools."""

from typing import Any

from lepa.model.wire import Wire


class NodePoolSchedulerConfiguration(Wire, frozen=True):
    """Scheduler settings of one pool."""

    scheduler_algorithm: str = ""
    memory_oversubscription_enabled: bool | None = None


class NodePool(Wire, frozen=True):
    """A set of nodes that jobs choose by name."""

    name: str = ""
    description: str = ""
    meta: dict[str, str] = {}
    scheduler_configuration: NodePoolSchedulerConfiguration | None = None
    node_identity_ttl: int = 0
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0


class NamespaceCapabilities(Wire, frozen=True):
    """Drivers and network modes that jobs of the namespace may use."""

    enabled_task_drivers: tuple[str, ...] = ()
    disabled_task_drivers: tuple[str, ...] = ()
    enabled_network_modes: tuple[str, ...] = ()
    disabled_network_modes: tuple[str, ...] = ()


class NamespaceNodePoolConfiguration(Wire, frozen=True):
    """Node pools that jobs of the namespace may use."""

    default: str = ""
    allowed: tuple[str, ...] = ()
    denied: tuple[str, ...] = ()


class Namespace(Wire, frozen=True):
    """A scope for names of jobs, variables and services."""

    name: str = ""
    description: str = ""
    quota: str = ""
    capabilities: NamespaceCapabilities | None = None
    node_pool_configuration: NamespaceNodePoolConfiguration | None = None
    vault_configuration: dict[str, Any] | None = None
    consul_configuration: dict[str, Any] | None = None
    meta: dict[str, str] = {}
    hash: bytes = b""
    create_index: int = 0
    modify_index: int = 0
    required_extra_claims: dict[str, str] = {}
    optional_extra_claims: dict[str, str] = {}
