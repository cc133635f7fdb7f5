"""Overlay networks: nodes ask for their shares, and follow those of the others."""

from lepa.model.overlay import OverlayLease
from lepa.rpc import methods as m
from lepa.rpc.overlay_requests import OverlayLeaseRequest
from lepa.rpc.requests import ReadRequest, Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query
from lepa.state.commands import nodes, overlays
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch


def _watched(request: ReadRequest) -> tuple[Watch, ...]:
    return (Watch("overlays", "name", request.id) if request.id else Watch("overlays"),)


def list_leases(snapshot: Snapshot, request: ReadRequest) -> tuple[OverlayLease, ...]:
    """Shares of the overlay asked for, or of all."""
    return tuple(snapshot.overlay_leases(request.id))


QUERIES: Answerable = {m.OVERLAY_LEASES: Query(_watched, list_leases)}


class OverlayEndpoints:
    """Writes about overlays."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def lease(self, request: OverlayLeaseRequest) -> Reply[OverlayLease]:
        """Give a node its share."""

        def command(draft: Draft) -> OverlayLease:
            nodes.check_secret(draft, request.lease.node_id, request.secret_id)
            return overlays.lease_share(draft, request.lease)

        written = await self._context.write(command)
        return Reply(value=written.value, index=written.revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        return {**queries.answers(QUERIES), m.OVERLAY_LEASE: self.lease}
