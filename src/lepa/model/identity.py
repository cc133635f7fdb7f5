"""Pure: the signed identity of a workload."""

from lepa.model.wire import Wire


class WorkloadIdentity(Wire, frozen=True):
    """A signed token for the task."""

    name: str = "default"
    audience: tuple[str, ...] = ()
    change_mode: str = ""
    change_signal: str = ""
    env: bool = False
    file: bool = False
    filepath: str = ""
    service_name: str = ""
    ttl: int = 0
    extra_claims: tuple[str, ...] = ()
