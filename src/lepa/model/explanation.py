"""Pure: why a job's allocations are where they are, node by node, in a person's words."""

from lepa.model.wire import Wire


class NodeVerdict(Wire, frozen=True):
    """What placing a group now would make of one node.

    verdict: "chosen", "fits", "exhausted", "closed" (by distinct_hosts or distinct_property), "filtered", "not ready"
    or "elsewhere" (another datacenter or pool). reasons: sentences about the node. score: of the first placement;
    scores: the terms that it is the mean of. rank: 1 for the best of those that fit, 0 for one that does not.
    running: allocations of the group on it now. placed: how many placing the whole group anew would put there.
    """

    node_id: str = ""
    node_name: str = ""
    datacenter: str = ""
    node_pool: str = ""
    node_class: str = ""
    verdict: str = ""
    reasons: tuple[str, ...] = ()
    score: float = 0.0
    scores: dict[str, float] = {}
    rank: int = 0
    running: int = 0
    placed: int = 0


class GroupExplanation(Wire, frozen=True):
    """One group. nodes: best first, at most as many as were asked for. verdicts: how many nodes of each verdict."""

    name: str = ""
    wanted: int = 0
    running: int = 0
    summary: str = ""
    verdicts: dict[str, int] = {}
    nodes: tuple[NodeVerdict, ...] = ()
    nodes_omitted: int = 0


class RecordedDecision(Wire, frozen=True):
    """What a scheduling wrote down: of one allocation, or (allocation_id "") of a group that it could not place."""

    group: str = ""
    allocation_id: str = ""
    name: str = ""
    node_id: str = ""
    node_name: str = ""
    eval_id: str = ""
    time: int = 0
    reasons: tuple[str, ...] = ()


class JobExplanation(Wire, frozen=True):
    """A job. groups: worked out on the state at `index`. recorded: newest first. waiting: what it waits for, or ""."""

    namespace: str = ""
    job_id: str = ""
    job_version: int = 0
    index: int = 0
    waiting: str = ""
    groups: tuple[GroupExplanation, ...] = ()
    recorded: tuple[RecordedDecision, ...] = ()
