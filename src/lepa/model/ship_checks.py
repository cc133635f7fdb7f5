"""Pure: whether output can be sent to a receiver that an operator or a job names."""

import re
from collections.abc import Iterator, Sequence
from typing import Protocol
from urllib.parse import urlsplit

from lepa.model.task import LogShip

SCHEMES = {
    "syslog": ("udp", "tcp", "unix"),
    "fluentd": ("tcp", "unix"),
    "loki": ("http", "https"),
}
FACILITIES = (
    *("kern", "user", "mail", "daemon", "auth", "syslog", "lpr", "news", "uucp", "cron", "authpriv", "ftp"),
    *("ntp", "audit", "alert", "clock"),
    *(f"local{number}" for number in range(8)),
)
"""By their numbers (RFC 5424, table 1)."""
JOB_RECEIVERS_MAX = 8
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Receiver(Protocol):
    """What both kinds of receivers say (LogShip)."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def streams(self) -> Sequence[str]: ...
    @property
    def facility(self) -> str: ...


def receiver_problems(receiver: Receiver, *, of_job: bool) -> Iterator[str]:
    """Everything that is wrong with a receiver. of_job: a job names it, so no socket of the node will do.

    An address that holds a reference is known only where it is used.
    """
    if not _NAME.fullmatch(receiver.name):
        yield 'a name has letters, digits, "-" and "_" only, at most 64'
    schemes = [scheme for scheme in SCHEMES.get(receiver.type, ()) if not (of_job and scheme == "unix")]
    if not schemes:
        yield f'type must be one of {", ".join(SCHEMES)}, found "{receiver.type}"'
    elif not _complete(receiver.address, schemes):
        wanted = " or ".join(f"{scheme}://…" for scheme in schemes)
        yield f'address must be {wanted}, with a port for udp and tcp; found "{receiver.address}"'
    if receiver.facility not in FACILITIES:
        yield f'facility must be one of {", ".join(FACILITIES)}, found "{receiver.facility}"'
    if unknown := set(receiver.streams) - {"stdout", "stderr"}:
        yield f'streams are "stdout" and "stderr", found {", ".join(sorted(unknown))}'


def job_receiver_problems(receivers: Sequence[LogShip]) -> Iterator[str]:
    """Everything that is wrong with the receivers of one task."""
    if len(receivers) > JOB_RECEIVERS_MAX:
        yield f"logs: at most {JOB_RECEIVERS_MAX} receivers; got {len(receivers)}"
    seen: set[str] = set()
    for receiver in receivers:
        where = f'logs: ship "{receiver.name}"'
        yield from (f"{where}: {problem}" for problem in receiver_problems(receiver, of_job=True))
        if receiver.timeout <= 0:
            yield f"{where}: timeout must be positive"
        if receiver.name in seen:
            yield f"{where}: there are two receivers of that name"
        seen.add(receiver.name)


def _complete(address: str, schemes: Sequence[str]) -> bool:
    scheme, _, rest = address.partition("://")
    if scheme not in schemes or not rest:
        return False
    if "${" in rest:
        return True
    try:
        parts = urlsplit(address)
        place = parts.path if scheme == "unix" else parts.hostname
        return bool(place) and (scheme not in ("udp", "tcp") or parts.port is not None)
    except ValueError:
        return False
