"""Pure: a request to look at a job again, and the reasons that scheduling it gave."""

from typing import Any

from msgspec import field

from lepa.kit.durations import ZERO_TIME
from lepa.model.resources import Resources
from lepa.model.wire import OmitEmpty, Wire


class NodeScoreMeta(Wire, frozen=True):
    """Scores of one node; norm_score is their mean."""

    node_id: str = ""
    scores: dict[str, float] = {}
    norm_score: float = 0.0


class AllocMetric(Wire, frozen=True):
    """Why a placement went where it did, or why it could not be made."""

    nodes_evaluated: int = 0
    nodes_filtered: int = 0
    nodes_in_pool: int = 0
    node_pool: str = ""
    nodes_available: dict[str, int] = {}
    class_filtered: dict[str, int] = {}
    constraint_filtered: dict[str, int] = {}
    nodes_exhausted: int = 0
    class_exhausted: dict[str, int] = {}
    dimension_exhausted: dict[str, int] = {}
    quota_exhausted: tuple[str, ...] = ()
    resources_exhausted: dict[str, Resources] = {}
    scores: dict[str, float] = {}
    score_meta_data: tuple[NodeScoreMeta, ...] = ()
    allocation_time: int = 0
    coalesced_failures: int = 0


class EvaluationStub(Wire, frozen=True):
    """A related evaluation, shortened."""

    id: str = ""
    namespace: str = ""
    priority: int = 0
    type: str = ""
    triggered_by: str = ""
    job_id: str = ""
    node_id: str = ""
    deployment_id: str = ""
    status: str = ""
    status_description: str = ""
    wait_until: str = ZERO_TIME
    next_eval: str = ""
    previous_eval: str = ""
    blocked_eval: str = ""
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0


class Evaluation(OmitEmpty, frozen=True, omit_defaults=True):
    """A request to look at a job again, and what came of it. wait is nanoseconds."""

    id: str = ""
    namespace: str = ""
    priority: int = 0
    type: str = ""
    triggered_by: str = ""
    job_id: str = ""
    job_modify_index: int = 0
    node_id: str = ""
    node_modify_index: int = 0
    deployment_id: str = ""
    status: str = ""
    status_description: str = ""
    wait: int = 0
    wait_until: str = ZERO_TIME
    next_eval: str = ""
    previous_eval: str = ""
    blocked_eval: str = ""
    related_evals: tuple[EvaluationStub, ...] = ()
    failed_tg_allocs: dict[str, AllocMetric] = field(default_factory=dict, name="FailedTGAllocs")
    plan_annotations: dict[str, Any] | None = None
    class_eligibility: dict[str, bool] = {}
    quota_limit_reached: str = ""
    missing_non_node_resources: tuple[str, ...] = ()
    escaped_computed_class: bool = False
    annotate_plan: bool = False
    queued_allocations: dict[str, int] = {}
    leader_acl: str = ""
    snapshot_index: int = 0
    create_index: int = 0
    modify_index: int = 0
    create_time: int = 0
    modify_time: int = 0
