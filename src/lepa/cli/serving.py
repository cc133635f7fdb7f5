"""What the commands of serving share: the cluster they talk to. Its parts are jobs like any other."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lepa.cli.flags import option
from lepa.cli.session import Session, api, segment
from lepa.kit.durations import MICROSECOND, parse_duration
from lepa.model.errors import invalid, not_found

if TYPE_CHECKING:
    from lepa.serving.connection import ClipperConnection
    from lepa.serving.container_managers.jobs import JobsContainerManager

DEFAULT_CLUSTER = "default-cluster"
DEFAULT_SLO = "100ms"


@dataclass(frozen=True)
class Cluster:
    """One serving cluster, as jobs of the agent that the session talks to."""

    session: Session
    name: str

    def start(self) -> "ClipperConnection":
        """Its parts, started where they do not run."""
        from lepa.serving.connection import ClipperConnection

        connection = ClipperConnection(self._manager())
        connection.start_clipper()
        return connection

    def running(self) -> "ClipperConnection":
        """Its parts, which have to run already. Raises LepaError(not_found)."""
        from lepa.serving.connection import ClipperConnection

        manager = self._manager()
        if not self.session.nomad.get(f"/v1/service/{segment(manager.plan.management_service)}").value:
            raise not_found(f'no serving cluster "{self.name}" runs; `lepa app register` starts one')
        connection = ClipperConnection(manager)
        connection.connect()
        return connection

    def _manager(self) -> "JobsContainerManager":
        from lepa.serving.container_managers.jobs import JobsContainerManager

        to = self.session.nomad.target
        host = f"[{to.host}]" if ":" in to.host else to.host
        return JobsContainerManager(f"{host}:{to.port}", self.name, namespace=to.namespace or "default", token=to.token)


def serving(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command a `Cluster` as its first argument."""

    @functools.wraps(function)
    def run(session: Session, cluster: str, **values: Any) -> Any:
        return function(Cluster(session, cluster), **values)

    named = option("cluster", "Name of the serving cluster.", default=DEFAULT_CLUSTER, metavar="name")
    return named(api(run))


def slo_micros(text: str) -> int:
    """The microseconds of `-slo`."""
    found = duration("slo", text) // MICROSECOND
    if found <= 0:
        raise invalid("-slo is longer than nothing, such as 20ms")
    return found


def duration(name: str, text: str) -> int:
    """The nanoseconds that a flag was given."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise invalid(f"-{name}: {error}") from error
