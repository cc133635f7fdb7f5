"""Pure: the older, flat settings of a node, `client { options { "driver.allowlist" = "docker,exec" } }`.

Names are Nomad's, old spellings (whitelist, blacklist) included. Lists have commas.
"""

from collections.abc import Mapping

DENIED_USERS = ("root", "Administrator")
CHECKED_DRIVERS = ("exec", "qemu", "java")
_OLD = {"allowlist": "whitelist", "denylist": "blacklist"}


def allowed(options: Mapping[str, str], kind: str, name: str) -> bool:
    """Whether a driver (kind "driver") or a fingerprinter ("fingerprint") may be used."""
    listed, denied = _list(options, f"{kind}.allowlist"), _list(options, f"{kind}.denylist")
    return (not listed or name in listed) and name not in denied


def hidden_variables(options: Mapping[str, str]) -> tuple[str, ...]:
    """Variables of the agent that tasks do not get, beyond those that no task gets."""
    return _list(options, "env.denylist")


def user_problem(options: Mapping[str, str], driver: str, user: str) -> str:
    """Why a task of a driver may not run as a user that it names; "" when it may."""
    denied = _list(options, "user.denylist") if "user.denylist" in options else DENIED_USERS
    checked = _list(options, "user.checked_drivers") if "user.checked_drivers" in options else CHECKED_DRIVERS
    if driver in checked and user in denied:
        return f"running as user {user!r} is disallowed on this node (client.options user.denylist)"
    return ""


def _list(options: Mapping[str, str], name: str) -> tuple[str, ...]:
    head, _, kind = name.rpartition(".")
    text = options.get(name) or options.get(f"{head}.{_OLD.get(kind, kind)}", "")
    return tuple(filter(None, (part.strip() for part in text.split(","))))
