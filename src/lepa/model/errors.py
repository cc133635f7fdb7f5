"""Pure: the error tree.

    LepaError(code, message, **facts)
      invalid       what the caller sent cannot be taken as it is
      not_found     what was named does not exist
      conflict      the state is not what the caller expected (check-and-set, a name taken)
      denied        the caller may not do this
      no_leader     nobody can answer now; try again
      timeout       it took longer than was allowed
      unsupported   this build or this host cannot do it
      internal      our fault

Each edge (api, rpc, cli) maps codes once. Expected outcomes (no node fits, plan partly refused) are values, not errors.
"""

from typing import Any, Literal

Code = Literal["invalid", "not_found", "conflict", "denied", "no_leader", "timeout", "unsupported", "internal"]


class LepaError(Exception):
    """What went wrong, for a person (`message`) and for a program (`code`, `facts`).

    message: one sentence: what was wanted, what was found, what to do. facts: extra values for logs; never secrets.
    """

    def __init__(self, code: Code, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.code: Code = code
        self.message = message
        self.facts = facts

    def __repr__(self) -> str:
        return f"LepaError({self.code!r}, {self.message!r})"


def invalid(message: str, **facts: Any) -> LepaError:
    """What the caller sent cannot be taken as it is."""
    return LepaError("invalid", message, **facts)


def not_found(message: str, **facts: Any) -> LepaError:
    """What was named does not exist."""
    return LepaError("not_found", message, **facts)


def denied(message: str = "Permission denied", **facts: Any) -> LepaError:
    """The caller may not do this."""
    return LepaError("denied", message, **facts)


def conflict(message: str, **facts: Any) -> LepaError:
    """The state is not what the caller expected."""
    return LepaError("conflict", message, **facts)
