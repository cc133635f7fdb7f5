"""Pure: which evaluations are with workers of which other server.

A server says with every request what it still works on. What it was given and does not name got lost on the way; what
a silent server has is lost with it. Both are given to somebody else at once, and not only when a delivery's own time is
over. Times are monotonic seconds.
"""

from typing import Final, NamedTuple

SILENT_S: Final = 5.0
"""A server that asks for nothing for that long has lost what it was given; it asks every second."""


class Loan(NamedTuple):
    """A delivery that is with another server."""

    eval_id: str
    token: str


class Loans:
    """Deliveries by server and token."""

    def __init__(self) -> None:
        self._by_server: dict[str, dict[str, Loan]] = {}
        self._heard: dict[str, float] = {}

    def asked(self, server: str, holding: tuple[str, ...], now: float) -> list[Loan]:
        """A server asks for work and says what it has; what it should have and has not."""
        self._heard[server] = now
        loans = self._by_server.setdefault(server, {})
        lost = [loan for token, loan in loans.items() if token not in holding]
        for loan in lost:
            del loans[loan.token]
        return lost

    def lent(self, server: str, loan: Loan) -> None:
        """A server gets a delivery."""
        self._by_server.setdefault(server, {})[loan.token] = loan

    def done(self, token: str) -> None:
        """A delivery is with nobody any more."""
        for loans in self._by_server.values():
            loans.pop(token, None)

    def overdue(self, now: float) -> list[Loan]:
        """What silent servers have; they have nothing after that."""
        silent = [server for server, heard in self._heard.items() if now - heard >= SILENT_S]
        lost: list[Loan] = []
        for server in silent:
            del self._heard[server]
            lost += self._by_server.pop(server, {}).values()
        return lost
