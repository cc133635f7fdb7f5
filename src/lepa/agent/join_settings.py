"""How often those are asked whom an agent has to join: `retry_max` and `retry_interval`, for servers and for nodes.

As with Nomad an agent that has tried so often in vain ends with exit code 1, so that whoever watches over it starts it
anew, on another machine perhaps.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from lepa.agent.config import seconds
from lepa.model.errors import LepaError, invalid

JOIN_KEYS: Final = ("retry_join", "start_join", "retry_max", "retry_interval")
INTERVAL: Final = "30s"


class Retry(NamedTuple):
    """attempts: 0 for no end."""

    interval_s: float
    attempts: int


def retry(block: Mapping[str, Any], part: str, attempts: int = 0, interval: str = INTERVAL) -> Retry:
    """From `server_join` of a part, "server" or "client", over what is set outside it. Raises LepaError(invalid)."""
    wanted = block.get("retry_max", attempts)
    if isinstance(wanted, bool) or not isinstance(wanted, int) or wanted < 0:
        raise invalid(f"configuration: {part}.retry_max: {wanted!r} is not a number of attempts; 0 means no end")
    pause = seconds(str(block.get("retry_interval", interval)), f"{part}.retry_interval")
    if pause <= 0:
        raise invalid(f"configuration: {part}.retry_interval has to be more than 0s")
    return Retry(pause, wanted)


def given_up(attempts: int, errors: Sequence[str]) -> LepaError:
    """Why an agent ends that could join nobody."""
    why = "; ".join(dict.fromkeys(errors))
    times = "1 attempt" if attempts == 1 else f"{attempts} attempts"
    return LepaError("timeout", f"no server could be joined in {times} (retry_max), so the agent ends: {why}")
