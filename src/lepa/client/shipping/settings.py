"""Pure: who gets what tasks write: `client { ship_logs "NAME" { … } }`, and `logs { ship "NAME" { … } }` of tasks."""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec

from lepa.client.task_env import interpolate
from lepa.model.errors import invalid
from lepa.model.ship_checks import receiver_problems
from lepa.model.task import LogShip

OPT_IN_META = "ship_logs"
NS_IN_S = 1_000_000_000


class ShipSettings(msgspec.Struct, frozen=True):
    """One receiver; what it says beside LogShip:

    address: unix:// too, for syslog and fluentd. jobs, namespaces: patterns of those whose output is sent. opt_in: only
    tasks whose meta `ship_logs` names this receiver. of_job: a job named it, so that it is guarded where the connection
    leads. timeout_s: how long one batch may take.
    """

    name: str
    type: str
    address: str
    jobs: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    streams: tuple[str, ...] = ("stdout", "stderr")
    opt_in: bool = False
    of_job: bool = False
    labels: dict[str, str] = {}
    facility: str = "local0"
    tag: str = "lepa"
    headers: dict[str, str] = {}
    timeout_s: float = 10.0

    @property
    def label(self) -> str:
        """What metrics call it: receivers of jobs are counted together, there may be any number of them."""
        return "of jobs" if self.of_job else self.name


def check(settings: ShipSettings) -> ShipSettings:
    """The same settings; raises LepaError(invalid) with what is wrong with them."""
    where = "logs: ship" if settings.of_job else "client.ship_logs"
    for problem in receiver_problems(settings, of_job=settings.of_job):
        raise invalid(f'{where} "{settings.name}": {problem}')
    return settings


def wants(settings: ShipSettings, job: str, namespace: str, meta: dict[str, str]) -> bool:
    """Whether the output of a job's task goes to this receiver. meta: the task's, with the job's and group's."""
    if settings.opt_in and settings.name not in re.split(r"[\s,]+", meta.get(OPT_IN_META, "")):
        return False
    named = any(fnmatchcase(job, pattern) for pattern in settings.jobs)
    return named and any(fnmatchcase(namespace, pattern) for pattern in settings.namespaces)


def of_job(ship: LogShip, targets: Mapping[str, str]) -> ShipSettings:
    """A job's receiver. targets: what its texts may name. Raises LepaError(invalid)."""

    def known(texts: Mapping[str, str]) -> dict[str, str]:
        return {name: interpolate(text, targets) for name, text in texts.items()}

    address = interpolate(ship.address, targets)
    if "${" in address:
        raise invalid(f'logs: ship "{ship.name}": the address names something that is not known here: "{address}"')
    return check(
        ShipSettings(
            name=ship.name,
            type=ship.type,
            address=address,
            streams=ship.streams,
            of_job=True,
            labels=known(ship.labels),
            facility=ship.facility,
            tag=interpolate(ship.tag, targets),
            headers=known(ship.headers),
            timeout_s=ship.timeout / NS_IN_S,
        )
    )
