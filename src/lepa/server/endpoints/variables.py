"""Variables: encrypted before they are written, decrypted for those who may read them."""

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec.structs import replace

from lepa.model.acl import Variable
from lepa.model.errors import denied, invalid
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.acl_requests import VariableApplied, VariableApplyRequest, VariableView
from lepa.rpc.requests import Reply
from lepa.server.acl.access import Access
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, namespace_of, table
from lepa.server.keyring import place
from lepa.server.pages import Page, page_of
from lepa.state.commands import variables as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

NEEDED = {"delete": "destroy", "delete-cas": "destroy"}


def as_seen(variable: VariableView, access: Access) -> VariableView:
    """The variable as a caller sees it: the lock's ID is for those who may write, as it lets its owner write."""
    if variable.lock is None or access.variable(variable.namespace, variable.path, "write"):
        return variable
    return replace(variable, lock=replace(variable.lock, id=""))


class VariableEndpoints:
    """Reads and writes of variables."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._guard = context.parts.guard
        self._keyring = context.parts.keyring

    # Reads

    def list(self, snapshot: Snapshot, request: r.ReadRequest) -> Page:
        """Variables whose path begins with the prefix and that the caller may list, without their items."""
        access = self._guard.access(snapshot, request.auth_token)
        namespace = namespace_of(request)
        rows = snapshot.variables(_start(request)) if namespace == "*" else snapshot.variables_in(namespace)
        return page_of(
            (as_seen(view(row), access) for row in rows if f"{row.namespace}.{row.path}" >= request.next_token),
            request,
            token=lambda row: f"{row.namespace}.{row.path}",
            where=lambda row: row.path.startswith(request.prefix) and access.variable(row.namespace, row.path, "list"),
        )

    def get(self, snapshot: Snapshot, request: r.ReadRequest) -> VariableView | None:
        """One variable with its items."""
        namespace = namespace_of(request)
        access = self._guard.access(snapshot, request.auth_token)
        if not access.variable(namespace, request.id, "read"):
            raise denied()
        found = snapshot.variable(namespace, request.id)
        return as_seen(self._opened(snapshot, found), access) if found is not None else None

    def _opened(self, snapshot: Snapshot, variable: Variable) -> VariableView:
        return replace(view(variable), items=self._items(snapshot, variable))

    def _items(self, snapshot: Snapshot, variable: Variable) -> dict[str, str]:
        if not variable.key_id:
            return {}
        plain = self._keyring.decrypt(snapshot, variable.key_id, variable.data, place(variable))
        return msgspec.json.decode(plain, type=dict[str, str])

    # Writes

    async def apply(self, request: VariableApplyRequest) -> Reply[VariableApplied]:
        """Carry out one operation, unless something stands in its way."""
        namespace = request.namespace or "default"
        if namespace == "*":
            raise invalid('can not target wildcard ("*") namespace: name the namespace of the variable')
        snapshot = self._context.parts.replica.snapshot
        access = self._guard.access(snapshot, request.auth_token)
        if not access.variable(namespace, request.path, NEEDED.get(request.operation, "write")):
            raise denied()
        may_read = access.variable(namespace, request.path, "read")
        if request.operation == "lock-renew":
            return await self._renew(namespace, request)
        wanted = await self._wanted(namespace, request)
        written = await self._context.write(self._command(request, wanted))
        return self._answer(request, written.value, written.revision, may_read)

    async def _wanted(self, namespace: str, request: VariableApplyRequest) -> Variable:
        """The variable as it would be stored. Raises LepaError(invalid) when it cannot be."""
        wanted = Variable(namespace=namespace, path=request.path, lock=request.lock)
        sets = request.operation in ("set", "cas")
        if sets or request.operation == "lock-acquire":
            commands.check_path(request.path)
        if sets or request.items:
            if request.operation == "lock-release":
                raise invalid("lock release operation doesn't take variable items")
            commands.check_items(request.items)
        if not request.items or request.operation.startswith("delete"):
            return wanted
        key_id, data = await self._keyring.encrypt(msgspec.json.encode(request.items), place(wanted))
        return replace(wanted, key_id=key_id, data=data)

    def _command(self, request: VariableApplyRequest, wanted: Variable) -> Callable[[Draft], commands.Applied]:
        operation: Any = request.operation

        def command(draft: Draft) -> commands.Applied:
            present = draft.snapshot.variable(wanted.namespace, wanted.path)
            same = False
            if present is not None and operation in ("set", "cas"):
                same = self._items(draft.snapshot, present) == request.items
            return commands.apply_variable(draft, operation, wanted, same=same, cas=request.cas)

        return command

    def _answer(
        self, request: VariableApplyRequest, applied: commands.Applied, revision: int, may_read: bool
    ) -> Reply[VariableApplied]:
        snapshot = self._context.parts.replica.snapshot
        if applied.conflict is not None:
            stands = applied.conflict
            shown = self._opened(snapshot, stands) if may_read and stands.modify_index else view(stands)
            if request.operation == "lock-acquire" and shown.lock is not None:
                shown = replace(shown, lock=replace(shown.lock, id=""))
            return Reply(value=VariableApplied(conflict=shown), index=stands.modify_index)
        if applied.variable is None:
            return Reply(value=VariableApplied(), index=revision)
        stored = applied.variable
        if applied.changed:
            stored = replace(stored, modify_index=revision, create_index=stored.create_index or revision)
        shown = view(stored)
        items = request.items or (self._items(snapshot, stored) if may_read else None)
        return Reply(value=VariableApplied(output=replace(shown, items=items)), index=revision)

    async def _renew(self, namespace: str, request: VariableApplyRequest) -> Reply[VariableApplied]:
        lock_id = request.lock.id if request.lock is not None else ""
        written = await self._context.write(lambda draft: commands.renew_lock(draft, namespace, request.path, lock_id))
        return Reply(value=VariableApplied(output=view(written.value)), index=written.revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        reads: Answerable = {
            m.VARIABLE_LIST: Query(table("variables"), self.list),
            m.VARIABLE_GET: Query(_watched, self.get),
        }
        return {**queries.answers(reads), m.VARIABLE_APPLY: self.apply}


def _watched(request: r.ReadRequest) -> tuple[Watch, ...]:
    return (Watch("variables", "id", (namespace_of(request), request.id)),)


def _start(request: r.ReadRequest) -> tuple[str, str] | None:
    if not request.next_token:
        return None
    namespace, _, path = request.next_token.partition(".")
    return namespace, path


def view(variable: Variable) -> VariableView:
    """A variable without its items."""
    return VariableView(
        namespace=variable.namespace,
        path=variable.path,
        lock=variable.lock,
        create_index=variable.create_index,
        create_time=variable.create_time,
        modify_index=variable.modify_index,
        modify_time=variable.modify_time,
    )
