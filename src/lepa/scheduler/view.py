"""Pure: what a scheduler may see: one immutable view of the state. `lepa.state.snapshot.Snapshot` fits it."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from lepa.model.allocation import Allocation
from lepa.model.deployment import Deployment
from lepa.model.job import Job
from lepa.model.node import Node
from lepa.model.operator import SchedulerConfiguration
from lepa.model.tenancy import NodePool
from lepa.model.usage import NodeUsage
from lepa.model.volume import CSIClaim, CSIVolume, TaskGroupHostVolumeClaim


class View(Protocol):
    """The state at one index. Every answer is immutable and stays the same however often it is asked."""

    @property
    def index(self) -> int:
        """The revision of the newest change in it."""

    def job(self, namespace: str, job_id: str) -> Job | None:
        """The newest version of a job."""

    def job_version(self, namespace: str, job_id: str, version: int) -> Job | None:
        """One version of a job, as far back as versions are kept."""

    def job_allocations(self, namespace: str, job_id: str) -> Sequence[Allocation]:
        """All allocations of a job, of every version and status, oldest first."""

    def node_allocations(self, node_id: str) -> Sequence[Allocation]:
        """All allocations on a node, of every status."""

    def node_usage(self, node_id: str) -> NodeUsage:
        """What the allocations on a node occupy together."""

    def node(self, node_id: str) -> Node | None:
        """One node."""

    def nodes(self) -> Iterable[Node]:
        """All nodes in no particular order."""

    def latest_deployment(self, namespace: str, job_id: str) -> Deployment | None:
        """The newest deployment of a job, whatever its status."""

    def node_pool(self, name: str) -> NodePool | None:
        """One node pool."""

    def scheduler_configuration(self) -> SchedulerConfiguration:
        """The settings in force."""

    def allocation(self, alloc_id: str) -> Allocation | None:
        """One allocation."""

    def volume_claims(self, namespace: str, job_id: str, group: str) -> Sequence[TaskGroupHostVolumeClaim]:
        """The volumes that instances of a group keep, oldest first."""

    def csi_volume(self, namespace: str, volume_id: str) -> CSIVolume | None:
        """One CSI volume."""

    def csi_claims(self, namespace: str, volume_id: str) -> Sequence[CSIClaim]:
        """Who holds a CSI volume."""

    def touched_nodes(self, since: int) -> frozenset[str] | None:
        """Ids of nodes that changed, appeared or vanished, or whose allocations changed, after index `since`.

        None when that is too long ago to tell: look at every node again.
        """
