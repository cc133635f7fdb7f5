"""Pure: settings of the receivers: `client { ship_logs "NAME" { … } }`."""

import re
from fnmatch import fnmatchcase
from urllib.parse import urlsplit

import msgspec

from lepa.model.errors import invalid

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
OPT_IN_META = "ship_logs"
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


class ShipSettings(msgspec.Struct, frozen=True):
    """One receiver.

    type: "syslog" (RFC 5424), "fluentd" (the forward protocol, which Fluent Bit and Vector speak too) or "loki" (its
    push API, by JSON). address: udp://, tcp:// or unix:// for syslog, tcp:// or unix:// for fluentd, http(s):// for
    loki. jobs, namespaces: patterns of those whose output is sent. streams: "stdout", "stderr". opt_in: only tasks
    whose meta `ship_logs` names this receiver. labels: added to every line. facility: of syslog. tag: of fluentd.
    headers: of loki's requests. timeout_s: how long one batch may take.
    """

    name: str
    type: str
    address: str
    jobs: tuple[str, ...] = ("*",)
    namespaces: tuple[str, ...] = ("*",)
    streams: tuple[str, ...] = ("stdout", "stderr")
    opt_in: bool = False
    labels: dict[str, str] = {}
    facility: str = "local0"
    tag: str = "lepa"
    headers: dict[str, str] = {}
    timeout_s: float = 10.0


def check(settings: ShipSettings) -> ShipSettings:
    """The same settings; raises LepaError(invalid) with what is wrong with them."""
    where = f'client.ship_logs "{settings.name}"'
    if not _NAME.fullmatch(settings.name):
        raise invalid(f'{where}: a name has letters, digits, "-" and "_" only')
    schemes = SCHEMES.get(settings.type)
    if schemes is None:
        raise invalid(f'{where}: type must be one of {", ".join(SCHEMES)}, found "{settings.type}"')
    parts = urlsplit(settings.address)
    place = parts.path if parts.scheme == "unix" else parts.hostname
    try:
        complete = bool(place) and (parts.scheme not in ("udp", "tcp") or parts.port is not None)
    except ValueError:
        complete = False
    if parts.scheme not in schemes or not complete:
        wanted = " or ".join(f"{scheme}://…" for scheme in schemes)
        raise invalid(f'{where}: address must be {wanted}, with a port for udp and tcp; found "{settings.address}"')
    if settings.facility not in FACILITIES:
        raise invalid(f'{where}: facility must be one of {", ".join(FACILITIES)}, found "{settings.facility}"')
    if unknown := set(settings.streams) - {"stdout", "stderr"}:
        raise invalid(f'{where}: streams are "stdout" and "stderr", found {", ".join(sorted(unknown))}')
    return settings


def wants(settings: ShipSettings, job: str, namespace: str, meta: dict[str, str]) -> bool:
    """Whether the output of a job's task goes to this receiver. meta: the task's, with the job's and group's."""
    if settings.opt_in and settings.name not in re.split(r"[\s,]+", meta.get(OPT_IN_META, "")):
        return False
    named = any(fnmatchcase(job, pattern) for pattern in settings.jobs)
    return named and any(fnmatchcase(namespace, pattern) for pattern in settings.namespaces)
