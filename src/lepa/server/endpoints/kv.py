"""Keys and sessions."""

from lepa.model.kv import Session
from lepa.rpc import methods as m
from lepa.rpc.kv_requests import KvApplied, KvApplyRequest, SessionCreateRequest, SessionRequest
from lepa.rpc.requests import Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, row, table
from lepa.state.commands import kv, sessions

QUERIES: Answerable = {
    m.KV_GET: Query(row("kv"), lambda snapshot, request: snapshot.kv_entry(request.id)),
    m.KV_LIST: Query(table("kv"), lambda snapshot, request: tuple(snapshot.kv_entries(request.prefix))),
    m.SESSION_LIST: Query(table("sessions"), lambda snapshot, request: tuple(snapshot.sessions())),
    m.SESSION_GET: Query(row("sessions"), lambda snapshot, request: snapshot.session(request.id)),
}


class KvEndpoints:
    """Writes of keys and sessions."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def apply(self, request: KvApplyRequest) -> Reply[KvApplied]:
        """Carry out a transaction."""
        written = await self._context.write(lambda draft: kv.apply_operations(draft, request.operations))
        applied = written.value
        answer = KvApplied(
            applied=not applied.errors, entries=applied.entries_at(written.revision), errors=applied.errors
        )
        return Reply(value=answer, index=written.revision)

    async def create(self, request: SessionCreateRequest) -> Reply[str]:
        """Begin a session."""
        written = await self._context.write(lambda draft: sessions.create_session(draft, request.session))
        return Reply(value=written.value, index=written.revision)

    async def renew(self, request: SessionRequest) -> Reply[Session]:
        """Its owner is alive."""
        written = await self._context.write(lambda draft: sessions.renew_session(draft, request.id))
        return Reply(value=written.value, index=written.revision)

    async def destroy(self, request: SessionRequest) -> Reply[None]:
        """End a session."""
        written = await self._context.write(lambda draft: sessions.end_session(draft, request.id))
        return Reply(value=None, index=written.revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {
            m.KV_APPLY: self.apply,
            m.SESSION_CREATE: self.create,
            m.SESSION_RENEW: self.renew,
            m.SESSION_DESTROY: self.destroy,
        }
        return {**queries.answers(QUERIES), **writes}
