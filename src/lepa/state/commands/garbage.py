"""Pure: removing what nobody needs any more."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lepa.model.job import Job
from lepa.state import keys
from lepa.state.commands.catalog import withdraw_all_of_node
from lepa.state.commands.draft import Draft
from lepa.state.commands.jobs import forget_job
from lepa.state.commands.overlays import release_shares
from lepa.store.protocol import Limits

OPERATIONS_PER_JOB: Final = 40
"""At most about this many keys belong to one job beside its evaluations and allocations: versions and events."""


class Garbage(NamedTuple):
    """What can go. jobs: namespace and id; the rest: ids."""

    evaluations: tuple[str, ...] = ()
    allocations: tuple[str, ...] = ()
    jobs: tuple[tuple[str, str], ...] = ()
    deployments: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()

    @property
    def empty(self) -> bool:
        """Whether there is none."""
        return not any(self)

    def parts(self, limits: Limits) -> Iterator["Garbage"]:
        """In parts that fit a transaction each. Allocations go before what they belong to, jobs last."""
        size = max(1, limits.operations_max // 2)
        for name, chunk in (
            ("allocations", self.allocations),
            ("evaluations", self.evaluations),
            ("deployments", self.deployments),
            ("nodes", self.nodes),
        ):
            for at in range(0, len(chunk), size):
                yield Garbage(**{name: chunk[at : at + size]})  # type: ignore[arg-type]
        few = max(1, size // OPERATIONS_PER_JOB)
        for at in range(0, len(self.jobs), few):
            yield Garbage(jobs=self.jobs[at : at + few])


def collect(draft: Draft, garbage: Garbage) -> None:
    """Remove it, as far as it is still there."""
    for alloc_id in garbage.allocations:
        _remove(draft, keys.alloc_key(alloc_id), draft.snapshot.allocation(alloc_id))
        for service in draft.snapshot.allocation_services(alloc_id):
            draft.erase(keys.service_key(service.namespace, service.service_name, service.id))
    for eval_id in garbage.evaluations:
        _remove(draft, keys.eval_key(eval_id), draft.snapshot.evaluation(eval_id))
    for deployment_id in garbage.deployments:
        _remove(draft, keys.deployment_key(deployment_id), draft.snapshot.deployment(deployment_id))
    for node_id in garbage.nodes:
        _remove(draft, keys.node_key(node_id), draft.snapshot.node(node_id))
        withdraw_all_of_node(draft, node_id)
        release_shares(draft, node_id)
    for job in _present_jobs(draft, garbage.jobs):
        forget_job(draft, job)


def _remove(draft: Draft, key: str, present: object) -> None:
    if present is not None:
        draft.delete(key, present)


def _present_jobs(draft: Draft, wanted: Iterable[tuple[str, str]]) -> Iterator[Job]:
    return (job for key in wanted if (job := draft.snapshot.job(*key)) is not None)
