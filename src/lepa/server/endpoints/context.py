"""What endpoints share: the parts they use, and the shape of a write's answer."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple, TypeVar

from lepa.model.errors import LepaError
from lepa.model.evaluation import Evaluation
from lepa.rpc.methods import Method
from lepa.server.contact import Contact
from lepa.server.endpoints.queries import Answer
from lepa.server.leadership import Leadership, Leading, Parts
from lepa.server.roster import Roster
from lepa.server.writer import Written
from lepa.state.commands.draft import Draft

CATCH_UP_S: Final = 5.0

R = TypeVar("R")

Answers = Mapping[Method[Any, Any], Answer]


class Context(NamedTuple):
    """The parts that endpoints use."""

    parts: Parts
    leadership: Leadership
    roster: Roster
    contact: Contact

    async def leading(self) -> Leading:
        """The leading parts. Raises LepaError(no_leader): whoever passes calls on waits for a leader."""
        return await self.leadership.leader(0)

    async def catch_up(self, index: int) -> None:
        """Wait until this server has what a node has seen at another one, as long as that may take."""
        if index > self.parts.replica.snapshot.index:
            with suppress(LepaError):
                await self.parts.replica.wait_for(index, CATCH_UP_S)

    async def write(self, command: Callable[[Draft], R]) -> Written[R]:
        """Write as the leader."""
        await self.leading()
        return await self.parts.writer.write(command)


def eval_ids(evaluations: tuple[Evaluation, ...]) -> tuple[str, ...]:
    """Their ids."""
    return tuple(evaluation.id for evaluation in evaluations)
