"""Pure: settings that operators change while the cluster runs."""

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
