"""Pure: which user and group ids an operator keeps from tasks."""

from lepa.drivers.supervisor.messages import Identity
from lepa.model.errors import invalid

ID_MAX = 2**32 - 1


def parse_ranges(text: str) -> tuple[tuple[int, int], ...]:
    """ "0,100-200" as inclusive ranges. Raises LepaError(invalid)."""
    ranges = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        low, _, high = part.partition("-")
        if not low.strip().isdigit() or not (high or low).strip().isdigit():
            raise invalid(f"{part!r} is not an id or a range of ids such as 100-200")
        ends = int(low), int(high or low)
        if not ends[0] <= ends[1] <= ID_MAX:
            raise invalid(f"{part!r} is not a range of ids in 0-{ID_MAX}")
        ranges.append(ends)
    return tuple(ranges)


def denied(identity: Identity, uids: str, gids: str) -> str:
    """Why an identity may not run tasks; "" when it may."""
    if _within(identity.uid, uids):
        return f"uid {identity.uid} is in denied_host_uids {uids}"
    for gid in (identity.gid, *identity.groups):
        if _within(gid, gids):
            return f"gid {gid} is in denied_host_gids {gids}"
    return ""


def _within(number: int, ranges: str) -> bool:
    return any(low <= number <= high for low, high in parse_ranges(ranges))
