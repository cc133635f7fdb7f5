"""Signed identities of this node's tasks, from the servers."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from lepa.client.task_env import Place
from lepa.model.errors import LepaError
from lepa.model.node import Node
from lepa.rpc.acl_requests import IdentityWanted, SignedIdentity, SignIdentitiesRequest
from lepa.rpc.methods import IDENTITY_SIGN, Caller

CALL_S: Final = 30.0


class Identities:
    """Asks for identities. node: this node, whose secret proves that it may ask."""

    def __init__(self, caller: Caller, node: Callable[[], Node]) -> None:
        self._caller = caller
        self._node = node

    async def sign(self, place: Place, names: Iterable[str]) -> list[SignedIdentity]:
        """Identities of a task by their names in the job. Raises LepaError when one of them is refused."""
        node = self._node()
        wanted = tuple(IdentityWanted(alloc_id=place.alloc.id, task=place.task.name, identity=name) for name in names)
        request = SignIdentitiesRequest(node_id=node.id, secret_id=node.secret_id, wanted=wanted)
        try:
            async with asyncio.timeout(CALL_S):
                signed = (await self._caller.call(IDENTITY_SIGN, request)).value
        except TimeoutError as error:
            raise LepaError("timeout", f"no server signed the task's identity within {CALL_S:g} s") from error
        for each in signed:
            if each.error:
                raise LepaError("internal", f'identity "{each.wanted.identity}": {each.error}')
        return list(signed)

    async def default(self, place: Place) -> str:
        """The identity that stands for the task itself."""
        (signed,) = await self.sign(place, ["default"])
        return signed.jwt
