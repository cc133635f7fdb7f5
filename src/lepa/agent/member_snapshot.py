"""Who the members were when this server ran last: it joins them again by itself.

The file is Serf's: a line for each that was there, and a last word when this server left for good.

    alive: two.global 10.0.0.2:4648
    leave
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from lepa.gossip.serf_members import Member
from lepa.gossip.transport import unpacked

MEMBERS_MAX: Final = 4096
FILE_MAX: Final = 1024 * 1024


def read_snapshot(path: Path, *, after_leave: bool) -> list[str]:
    """Addresses as `name/host:port`; none when this server left, unless `after_leave`. What cannot be read is none."""
    try:
        lines = path.read_bytes()[:FILE_MAX].decode("utf-8", "replace").splitlines()
    except OSError:
        return []
    found: dict[str, str] = {}
    for line in lines[:MEMBERS_MAX]:
        word, _, rest = line.partition(": ")
        name, _, address = rest.rpartition(" ")
        if word == "alive" and name and address:
            found[name] = f"{name}/{address}"
        elif word == "not-alive":
            found.pop(rest, None)
    return [] if "leave" in lines and not after_leave else list(found.values())


def write_snapshot(path: Path, members: Iterable[Member], *, left: bool) -> None:
    """Keep who is there, and whether this server left."""
    there = [member for member in members if member.status in ("alive", "failed")][:MEMBERS_MAX]
    lines = [f"alive: {member.name} {_address(member)}\n" for member in there]
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.write_text("".join([*lines, *(["leave\n"] if left else [])]), encoding="utf-8", errors="replace")
    fresh.rename(path)


def _address(member: Member) -> str:
    host = unpacked(member.addr)
    return f"[{host}]:{member.port}" if ":" in host else f"{host}:{member.port}"
