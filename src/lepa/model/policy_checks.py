"""Pure: whether the policies of a job and its groups make sense: restart, reschedule, update, scaling, periodic."""

from collections.abc import Iterator
from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

from lepa.kit.cron import parse_cron
from lepa.kit.durations import SECOND
from lepa.kit.durations import format_duration as text
from lepa.model.policies import (
    DisconnectStrategy,
    MigrateStrategy,
    Multiregion,
    ParameterizedJobConfig,
    PeriodicConfig,
    ReschedulePolicy,
    RestartPolicy,
    ScalingPolicy,
    UpdateStrategy,
)

RESTART_INTERVAL_MIN = 5 * SECOND
RESCHEDULE_INTERVAL_MIN = 15 * SECOND
RESCHEDULE_DELAY_MIN = 5 * SECOND

_DELAY_FUNCTIONS = ("constant", "exponential", "fibonacci")
_HEALTH_CHECKS = ("checks", "task_states", "manual")
_RECONCILE = ("best_score", "longest_running", "keep_original", "keep_replacement")
_PAYLOADS = ("optional", "required", "forbidden")
_FINITE = ("batch", "sysbatch")


def restart_problems(policy: RestartPolicy) -> Iterator[str]:
    """A policy must be possible to follow: attempts times delay fit into the interval."""
    if policy.mode not in ("fail", "delay"):
        yield f'Unsupported restart mode: "{policy.mode}"'
    if policy.attempts < 0:
        yield f"Restart attempts can't be negative (got {policy.attempts})"
    if policy.attempts == 0 and policy.mode == "delay":
        yield 'Restart policy "delay" with 0 attempts is ambiguous'
    if policy.delay < 0:
        yield f"Delay can not be negative (got {text(policy.delay)})"
    if policy.attempts > 0 and policy.interval < RESTART_INTERVAL_MIN:
        yield f"Interval can not be less than {text(RESTART_INTERVAL_MIN)} (got {text(policy.interval)})"
    elif policy.attempts * policy.delay > policy.interval:
        yield (
            f"Nomad can't restart the TaskGroup {policy.attempts} times in an interval of {text(policy.interval)} "
            f"with a delay of {text(policy.delay)}"
        )


def reschedule_problems(policy: ReschedulePolicy, job_type: str) -> Iterator[str]:
    """A policy that reschedules nothing (no attempts, not unlimited) is fine whatever else it says."""
    if job_type in ("system", "sysbatch"):
        yield "System or sysbatch jobs should not have a reschedule policy"
        return
    if policy.attempts <= 0 and not policy.unlimited:
        return
    if policy.attempts > 0 and policy.unlimited:
        yield (
            f"Reschedule Policy with Attempts = {policy.attempts}, Interval = {text(policy.interval)}, "
            "and Unlimited = true is ambiguous"
        )
    if policy.attempts > 0 and policy.interval < RESCHEDULE_INTERVAL_MIN:
        yield f"Interval cannot be less than {text(RESCHEDULE_INTERVAL_MIN)} (got {text(policy.interval)})"
    if policy.delay < RESCHEDULE_DELAY_MIN:
        yield f"Delay cannot be less than {text(RESCHEDULE_DELAY_MIN)} (got {text(policy.delay)})"
    if policy.delay_function not in _DELAY_FUNCTIONS:
        choices = ", ".join(_DELAY_FUNCTIONS)
        yield f'Invalid delay function "{policy.delay_function}", must be one of [{choices}]'
    elif policy.delay_function != "constant" and policy.max_delay < policy.delay:
        yield f"Max Delay cannot be less than Delay {text(policy.delay)} (got {text(policy.max_delay)})"


def update_problems(update: UpdateStrategy) -> Iterator[str]:
    """Times must nest: min_healthy_time < healthy_deadline < progress_deadline."""
    if update.health_check not in _HEALTH_CHECKS:
        yield f'Invalid health check given: "{update.health_check}"'
    if update.max_parallel < 0:
        yield f"Max parallel can not be less than zero: {update.max_parallel} < 0"
    if update.canary < 0:
        yield f"Canary count can not be less than zero: {update.canary} < 0"
    if update.canary == 0 and update.auto_promote:
        yield "Auto Promote requires a Canary count greater than zero"
    if update.stagger <= 0:
        yield f"Stagger must be greater than zero: {text(update.stagger)}"
    if update.progress_deadline < 0:
        yield f"Progress deadline must be zero or greater: {text(update.progress_deadline)}"
    elif 0 < update.progress_deadline <= update.healthy_deadline:
        yield (
            "Healthy deadline must be less than progress deadline: "
            f"{text(update.healthy_deadline)} > {text(update.progress_deadline)}"
        )
    yield from _healthy_times(update.min_healthy_time, update.healthy_deadline)


def migrate_problems(migrate: MigrateStrategy) -> Iterator[str]:
    """As for updates."""
    if migrate.max_parallel < 0:
        yield f"MaxParallel must be >= 0 but found {migrate.max_parallel}"
    if migrate.health_check not in ("checks", "task_states"):
        yield f'Invalid health check given: "{migrate.health_check}"'
    yield from _healthy_times(migrate.min_healthy_time, migrate.healthy_deadline)


def _healthy_times(min_healthy_time: int, healthy_deadline: int) -> Iterator[str]:
    if min_healthy_time < 0:
        yield f"Minimum healthy time may not be less than zero: {text(min_healthy_time)}"
    if healthy_deadline <= 0:
        yield f"Healthy deadline must be greater than zero: {text(healthy_deadline)}"
    elif min_healthy_time >= healthy_deadline:
        yield (
            "Minimum healthy time must be less than healthy deadline: "
            f"{text(min_healthy_time)} > {text(healthy_deadline)}"
        )


def disconnect_problems(disconnect: DisconnectStrategy, job_type: str) -> Iterator[str]:
    """Waiting for the node and giving up on it exclude each other."""
    stop_after = disconnect.stop_on_client_after
    if disconnect.lost_after < 0:
        yield f"lost_after cannot be a negative duration: {text(disconnect.lost_after)}"
    if stop_after is not None:
        if stop_after < 0:
            yield f"stop_after cannot be a negative duration: {text(stop_after)}"
        if disconnect.lost_after:
            yield "Disconnect cannot be configured with both lost_after and stop_after"
        if job_type not in ("service", "batch"):
            yield "stop_after can only be used with service or batch job types"
    if disconnect.reconcile not in _RECONCILE:
        yield f'Invalid reconcile option "{disconnect.reconcile}", must be one of [{", ".join(_RECONCILE)}]'


def scaling_problems(scaling: ScalingPolicy, count: int, job_type: str) -> Iterator[str]:
    """The count lies within the bounds; a maximum is required."""
    if job_type in ("system", "sysbatch"):
        yield f"Task groups with job type {job_type} do not support scaling blocks"
        return
    if scaling.type != "horizontal":
        yield f'scaling policy type "{scaling.type}" is not supported on a task group, must be "horizontal"'
    if scaling.max < 0:
        yield "maximum count must be specified and non-negative"
    elif scaling.max < scaling.min:
        yield "maximum count must not be less than minimum count"
    elif count > scaling.max:
        yield "task group count must not be greater than maximum count in scaling policy"
    if scaling.min < 0:
        yield "minimum count must be specified and non-negative"
    elif count < scaling.min:
        yield "task group count must not be less than minimum count in scaling policy"


def periodic_problems(periodic: PeriodicConfig, job_type: str) -> Iterator[str]:
    """Expressions and zone must be readable; a disabled block is left alone."""
    if job_type not in _FINITE:
        yield 'Periodic can only be used with "batch" or "sysbatch" scheduler'
    if not periodic.enabled:
        return
    if periodic.spec and periodic.specs:
        yield "Only cron or crons may be used"
    specs = periodic_specs(periodic)
    if not specs:
        yield "Must specify a spec"
    if periodic.spec_type != "cron":
        yield f'Unknown periodic specification type "{periodic.spec_type}"'
    try:
        time_zone(periodic.time_zone)
    except ValueError as error:
        yield f'Invalid time zone "{periodic.time_zone}": {error}'
    for spec in specs:
        try:
            parse_cron(spec)
        except ValueError as error:
            yield f'Invalid cron spec "{spec}": {error}'


def periodic_specs(periodic: PeriodicConfig) -> tuple[str, ...]:
    """All cron expressions of the block, whichever of its two fields holds them."""
    return (*((periodic.spec,) if periodic.spec else ()), *periodic.specs)


def time_zone(name: str) -> tzinfo:
    """The zone of that name in the time zone database. Raises ValueError when there is none."""
    if name in ("", "UTC"):
        return UTC
    try:
        return ZoneInfo(name)
    except (LookupError, OSError, ValueError) as error:
        raise ValueError("not in the time zone database, expected a name such as Europe/Berlin") from error


def parameterized_problems(parameterized: ParameterizedJobConfig, job_type: str) -> Iterator[str]:
    """Keys are required or optional, not both."""
    if job_type not in _FINITE:
        yield 'Parameterized job can only be used with "batch" or "sysbatch" scheduler'
    if parameterized.payload not in _PAYLOADS:
        yield f'Unknown payload requirement: "{parameterized.payload}"'
    both = sorted(set(parameterized.meta_required) & set(parameterized.meta_optional))
    if both:
        yield f"Required and optional meta keys should be disjoint. Following keys exist in both: {', '.join(both)}"


ON_FAILURE = ("", "fail_all", "fail_local")


def multiregion_problems(multiregion: Multiregion) -> Iterator[str]:
    """What is wrong with a job's regions."""
    names = [region.name for region in multiregion.regions]
    if not names:
        yield "Multiregion: no regions; name each in a region block"
    if "" in names:
        yield "Multiregion: a region without a name"
    for name in sorted({name for name in names if name and names.count(name) > 1}):
        yield f'Multiregion: region "{name}" is named twice'
    for region in multiregion.regions:
        if region.count < 0:
            yield f'Multiregion: region "{region.name}": count is {region.count}; it must not be negative'
    strategy = multiregion.strategy
    if strategy is not None and strategy.max_parallel < 0:
        yield f"Multiregion: max_parallel is {strategy.max_parallel}; it must not be negative"
    if strategy is not None and strategy.on_failure not in ON_FAILURE:
        yield f'Multiregion: on_failure is "{strategy.on_failure}"; it must be "", fail_all or fail_local'
