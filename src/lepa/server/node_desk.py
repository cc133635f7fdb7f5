"""Asks nodes to do things, and waits for their answers.

What is asked is written into the state, where the node finds it; so it does not matter which server the node talks to.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from lepa.model.errors import LepaError, not_found
from lepa.server.endpoints.context import Context
from lepa.state.commands import node_work
from lepa.state.tables import Watch

ASK_S: Final = 60.0
"""How long a node may take, unless whoever asks says otherwise."""


async def ask(
    context: Context, node_id: str, kind: str, body: Mapping[str, Any], timeout_s: float = ASK_S
) -> dict[str, Any]:
    """A node's answer. Raises LepaError: what the node says went wrong, or that it does not answer."""
    replica, clock = context.parts.replica, context.parts.clock
    node = replica.snapshot.node(node_id)
    if node is None:
        raise not_found(f'Unknown node "{node_id}"')
    if node.status != "ready":
        raise LepaError("timeout", f"node {node.name or node_id} is {node.status}; it has to be ready", http_status=500)
    told = json.dumps(body).encode()
    work_id = (await context.write(lambda draft: node_work.ask_node(draft, node_id, kind, told))).value
    watch, deadline = (Watch("node_work", "id", (node_id, work_id)),), clock.now() + timeout_s
    try:
        while True:
            snapshot = replica.snapshot
            work = snapshot.work(node_id, work_id)
            if work is None or work.done:
                break
            left_s = deadline - clock.now()
            if left_s <= 0:
                raise LepaError("timeout", f"node {node.name} did not answer within {timeout_s:g} s", http_status=500)
            await replica.changed(watch, snapshot.index_of(watch[0]), left_s)
    finally:
        await context.write(lambda draft: node_work.forget_work(draft, node_id, work_id))
    if work is None:
        raise LepaError("timeout", f"node {node.name} was asked, and its answer got lost; try again", http_status=500)
    if work.error:
        raise LepaError("invalid", work.error, http_status=500)
    answer: dict[str, Any] = json.loads(work.answer or b"{}")
    return answer
