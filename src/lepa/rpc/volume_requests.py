"""Pure: requests and answers about volumes, and about what servers ask nodes to do."""

from lepa.model.job import CSIMountOptions
from lepa.model.node_work import NodeWork
from lepa.model.volume import CSISnapshot, CSIVolume, CSIVolumeExternalStub, HostVolume
from lepa.model.wire import Wire
from lepa.rpc.requests import ReadRequest, Request


class VolumeListRequest(ReadRequest, frozen=True):
    """List volumes; each given field narrows the list."""

    plugin_id: str = ""
    node_id: str = ""
    node_pool: str = ""


class HostVolumeWriteRequest(Request, frozen=True):
    """Create or register a host volume."""

    volume: HostVolume = HostVolume()


class HostVolumeWritten(Wire, frozen=True):
    """The volume as it is now."""

    volume: HostVolume = HostVolume()
    warnings: str = ""
    index: int = 0


class VolumeRequest(Request, frozen=True):
    """One volume. force: though its node is away. node: to detach it from. secrets: for the plugin."""

    id: str = ""
    force: bool = False
    node: str = ""
    secrets: dict[str, str] = {}


class ClaimListRequest(ReadRequest, frozen=True):
    """List the volumes that instances of groups keep."""

    job_id: str = ""
    task_group: str = ""
    volume_name: str = ""


class CSIVolumeWriteRequest(Request, frozen=True):
    """Register CSI volumes, or create them."""

    volumes: tuple[CSIVolume, ...] = ()


class CSIVolumesWritten(Wire, frozen=True):
    """The volumes as they are now."""

    volumes: tuple[CSIVolume, ...] = ()
    warnings: str = ""


class CSIClaimRequest(Request, frozen=True):
    """A node asks for a volume on behalf of an allocation. Its namespace is the request's."""

    volume_id: str = ""
    alloc_id: str = ""
    node_id: str = ""
    secret_id: str = ""
    mode: str = "read"
    access_mode: str = ""
    attachment_mode: str = ""
    mount_options: CSIMountOptions | None = None


class CSIClaimed(Wire, frozen=True):
    """What the node needs to mount it."""

    volume: CSIVolume = CSIVolume()
    publish_context: dict[str, str] = {}


class CSIReleaseRequest(Request, frozen=True):
    """A node has taken a volume off: the storage may let go of it too."""

    volume_id: str = ""
    alloc_id: str = ""
    node_id: str = ""
    secret_id: str = ""


class CSISnapshotRequest(Request, frozen=True):
    """Make or remove snapshots. plugin_id, snapshot_id: to remove one."""

    snapshots: tuple[CSISnapshot, ...] = ()
    plugin_id: str = ""
    snapshot_id: str = ""
    secrets: dict[str, str] = {}


class CSIExternalRequest(Request, frozen=True):
    """What the storage of a plugin knows."""

    plugin_id: str = ""
    per_page: int = 0
    next_token: str = ""
    secrets: dict[str, str] = {}


class CSIExternalVolumes(Wire, frozen=True):
    """A page of the volumes that a plugin knows."""

    volumes: tuple[CSIVolumeExternalStub, ...] = ()
    next_token: str = ""


class CSISnapshots(Wire, frozen=True):
    """A page of snapshots."""

    snapshots: tuple[CSISnapshot, ...] = ()
    next_token: str = ""


class NodeWorkRequest(ReadRequest, frozen=True):
    """A node asks what it is asked to do; id is the node's."""

    secret_id: str = ""


class NodeWorkDone(Request, frozen=True):
    """A node answers a piece of work, with an error or with an answer (JSON)."""

    node_id: str = ""
    secret_id: str = ""
    work_id: str = ""
    error: str = ""
    answer: bytes = b""


class NodeWorkList(Wire, frozen=True):
    """What a node is asked to do, oldest first."""

    work: tuple[NodeWork, ...] = ()
