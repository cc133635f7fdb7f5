"""Pure: settings that operators change while the cluster runs."""

from typing import Final

from msgspec.structs import replace

from lepa.kit.durations import SECOND, format_duration, parse_duration
from lepa.model.errors import invalid
from lepa.model.wire import Wire


class PreemptionConfig(Wire, frozen=True):
    """For which job types a higher priority may evict a lower one."""

    system_scheduler_enabled: bool = True
    sys_batch_scheduler_enabled: bool = False
    batch_scheduler_enabled: bool = False
    service_scheduler_enabled: bool = False


class SchedulerConfiguration(Wire, frozen=True):
    """How placements are scored. scheduler_algorithm: "binpack" fills nodes up, "spread" keeps them even.

    node_limit_for_feasibility_checks is kept for Nomad's clients: every node is looked at, whatever it says.
    """

    scheduler_algorithm: str = "binpack"
    preemption_config: PreemptionConfig = PreemptionConfig()
    memory_oversubscription_enabled: bool = False
    reject_job_registration: bool = False
    pause_eval_broker: bool = False
    node_limit_for_feasibility_checks: int = 100
    create_index: int = 0
    modify_index: int = 0


class AutopilotConfiguration(Wire, frozen=True):
    """How servers look after each other. Durations are texts, as Nomad shows them.

    cleanup_dead_servers: take servers that are gone out of the members of etcd; at least min_quorum voters stay.
    last_contact_threshold, max_trailing_logs: how far behind a server may be and count as healthy.
    server_stabilization_time: how long a new server is a member before it votes. The other keys are Enterprise's in
    Nomad: they are kept and shown.
    """

    cleanup_dead_servers: bool = False
    last_contact_threshold: str = "200ms"
    max_trailing_logs: int = 250
    min_quorum: int = 0
    server_stabilization_time: str = "10s"
    enable_redundancy_zones: bool = False
    disable_upgrade_migration: bool = False
    enable_custom_upgrades: bool = False
    create_index: int = 0
    modify_index: int = 0

    @property
    def last_contact_max_s(self) -> float:
        """last_contact_threshold in seconds."""
        return parse_duration(self.last_contact_threshold) / SECOND

    @property
    def stabilization_s(self) -> float:
        """server_stabilization_time in seconds."""
        return parse_duration(self.server_stabilization_time) / SECOND


AUTOPILOT_DURATIONS: Final = ("last_contact_threshold", "server_stabilization_time")


def canonical_autopilot(wanted: AutopilotConfiguration) -> AutopilotConfiguration:
    """The settings with their durations in Go's form. Raises LepaError(invalid), naming what cannot be."""
    texts = {}
    for name in AUTOPILOT_DURATIONS:
        try:
            ns = parse_duration(getattr(wanted, name))
        except ValueError as error:
            raise invalid(f"autopilot: {name}: {error}") from error
        if ns < 0:
            raise invalid(f"autopilot: {name} is {getattr(wanted, name)}; it must not be negative")
        texts[name] = format_duration(ns)
    for name in ("max_trailing_logs", "min_quorum"):
        if getattr(wanted, name) < 0:
            raise invalid(f"autopilot: {name} is {getattr(wanted, name)}; it must not be negative")
    return replace(wanted, **texts)
