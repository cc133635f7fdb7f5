"""Pure: a view with placements on top that are on their way into it.

Plans wait for the disk while the next ones are made and checked. Whoever does that counts what is under way as if it
were there already, so that two plans are not made for the same room. What plans under way stop still counts: a plan
may yet be refused, and room that is not given back is the safe mistake.
"""

from collections.abc import Iterable, Sequence, Set

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.operator import SchedulerConfiguration
from lepa.model.tenancy import NodePool
from lepa.model.usage import NodeUsage
from lepa.model.volume import CSIClaim, CSIVolume, TaskGroupHostVolumeClaim
from lepa.scheduler.view import View


class Ahead:
    """A `View`. `view` is what it stands on; it grows by `add` and is otherwise the same."""

    def __init__(self, view: View, placements: Iterable[Allocation] = ()) -> None:
        self.view = view
        self._allocs: dict[str, dict[str, Allocation]] = {}
        self._usages: dict[str, NodeUsage] = {}
        self.add(placements)

    def add(self, placements: Iterable[Allocation]) -> None:
        """Let these allocations be there, instead of those with the same ids. Adding one again changes nothing."""
        for alloc in placements:
            node_id = alloc.node_id
            if node_id not in self._allocs:
                self._allocs[node_id] = {present.id: present for present in self.view.node_allocations(node_id)}
                self._usages[node_id] = self.view.node_usage(node_id)
            here = self._allocs[node_id]
            self._usages[node_id] = self._usages[node_id].changed(here.get(alloc.id), alloc)
            here[alloc.id] = alloc

    @property
    def ahead_nodes(self) -> Set[str]:
        """Nodes with something on top."""
        return self._allocs.keys()

    def node_allocations(self, node_id: str) -> Sequence[Allocation]:
        here = self._allocs.get(node_id)
        return self.view.node_allocations(node_id) if here is None else tuple(here.values())

    def node_usage(self, node_id: str) -> NodeUsage:
        usage = self._usages.get(node_id)
        return self.view.node_usage(node_id) if usage is None else usage

    # The rest is as the view has it.

    @property
    def index(self) -> int:
        return self.view.index

    def job(self, namespace: str, job_id: str) -> Job | None:
        return self.view.job(namespace, job_id)

    def job_version(self, namespace: str, job_id: str, version: int) -> Job | None:
        return self.view.job_version(namespace, job_id, version)

    def job_allocations(self, namespace: str, job_id: str) -> Sequence[Allocation]:
        return self.view.job_allocations(namespace, job_id)

    def node(self, node_id: str) -> Node | None:
        return self.view.node(node_id)

    def nodes(self) -> Iterable[Node]:
        return self.view.nodes()

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        return self.view.latest_deployment(namespace, job_id)

    def node_pool(self, name: str) -> NodePool | None:
        return self.view.node_pool(name)

    def scheduler_configuration(self) -> SchedulerConfiguration:
        return self.view.scheduler_configuration()

    def allocation(self, alloc_id: str) -> Allocation | None:
        for here in self._allocs.values():
            if (found := here.get(alloc_id)) is not None:
                return found
        return self.view.allocation(alloc_id)

    def volume_claims(self, namespace: str, job_id: str, group: str) -> Sequence[TaskGroupHostVolumeClaim]:
        return self.view.volume_claims(namespace, job_id, group)

    def csi_volume(self, namespace: str, volume_id: str) -> CSIVolume | None:
        return self.view.csi_volume(namespace, volume_id)

    def csi_claims(self, namespace: str, volume_id: str) -> Sequence[CSIClaim]:
        return self.view.csi_claims(namespace, volume_id)

    def touched_nodes(self, since: int) -> frozenset[str] | None:
        return self.view.touched_nodes(since)
