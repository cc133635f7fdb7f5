"""Pure: services and their checks, as a job declares them and as the catalog holds them. Durations are nanoseconds."""

from typing import Any

from lepa.model.identity import WorkloadIdentity
from lepa.model.wire import Wire


class ServiceWeights(Wire, frozen=True):
    """Share of traffic in DNS SRV answers by status."""

    passing: int = 1
    warning: int = 1


class CheckRestart(Wire, frozen=True):
    """Restart the task after `limit` failures in a row; grace in nanoseconds after a start."""

    limit: int = 0
    grace: int = 1_000_000_000
    ignore_warnings: bool = False


class ServiceCheck(Wire, frozen=True):
    """A health check of a service."""

    name: str = ""
    type: str = ""
    command: str = ""
    args: tuple[str, ...] = ()
    path: str = ""
    protocol: str = ""
    port_label: str = ""
    expose: bool = False
    address_mode: str = ""
    advertise: str = ""
    interval: int = 0
    timeout: int = 0
    initial_status: str = ""
    notes: str = ""
    tls_server_name: str = ""
    tls_skip_verify: bool = False
    header: dict[str, tuple[str, ...]] = {}
    method: str = ""
    check_restart: CheckRestart | None = None
    grpc_service: str = ""
    grpc_use_tls: bool = False
    task_name: str = ""
    success_before_passing: int = 0
    failures_before_critical: int = 0
    failures_before_warning: int = 0
    body: str = ""
    on_update: str = ""


class Service(Wire, frozen=True):
    """A named endpoint of a group or task."""

    name: str = ""
    tags: tuple[str, ...] = ()
    canary_tags: tuple[str, ...] = ()
    enable_tag_override: bool = False
    port_label: str = ""
    address_mode: str = "auto"
    address: str = ""
    checks: tuple[ServiceCheck, ...] = ()
    check_restart: CheckRestart | None = None
    connect: dict[str, Any] | None = None
    meta: dict[str, str] = {}
    canary_meta: dict[str, str] = {}
    tagged_addresses: dict[str, str] = {}
    task_name: str = ""
    on_update: str = "require_healthy"
    identity: WorkloadIdentity | None = None
    weights: ServiceWeights | None = None
    provider: str = "consul"
    cluster: str = "default"
    kind: str = ""


class CheckState(Wire, frozen=True):
    """One check of an instance, and what it said last. status: "passing", "warning" or "critical".

    definition: how it is asked, in the words of whoever registered it; only the agent that asks reads it.
    """

    id: str = ""
    name: str = ""
    type: str = ""
    status: str = "critical"
    output: str = ""
    notes: str = ""
    definition: dict[str, Any] = {}


class ServiceRegistration(Wire, frozen=True):
    """One instance of a service in the catalog.

    What Nomad's clients do not read: status is "passing", "warning" or "critical", the worst of its checks as its node
    last saw them; checks are listed where whoever registered it told of them. weight and warning_weight: its share in
    SRV answers while it passes and while it warns.

    An instance from outside the jobs has no alloc_id. Then either node_id is the node of the agent that took it, or
    node_name and node_address are a machine that is no node of the cluster. agent: the name of the agent that asks its
    checks; empty when nobody does.
    """

    id: str = ""
    service_name: str = ""
    namespace: str = ""
    node_id: str = ""
    datacenter: str = ""
    job_id: str = ""
    alloc_id: str = ""
    tags: tuple[str, ...] = ()
    address: str = ""
    port: int = 0
    status: str = "passing"
    weight: int = 1
    warning_weight: int = 1
    meta: dict[str, str] = {}
    checks: tuple[CheckState, ...] = ()
    node_name: str = ""
    node_address: str = ""
    agent: str = ""
    create_index: int = 0
    modify_index: int = 0


class CheckQueryResult(Wire, frozen=True):
    """The last result of one check of an allocation."""

    id: str = ""
    mode: str = ""
    status: str = ""
    status_code: int = 0
    output: str = ""
    timestamp: int = 0
    group: str = ""
    task: str = ""
    service: str = ""
    check: str = ""
