"""Search, namespaces, the scheduler's settings, garbage."""

import asyncio
from collections.abc import Callable
from typing import Any

from lepa.model.errors import denied, invalid
from lepa.model.operator import AutopilotConfiguration, SchedulerConfiguration
from lepa.model.tenancy import Namespace
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.acl.access import Access
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Answer, Queries
from lepa.server.endpoints.query import Answerable, Query, row, table
from lepa.server.endpoints.search import SEARCHES
from lepa.server.pages import Page, page_of, since
from lepa.server.settings import SearchSettings
from lepa.state.commands import tenancy
from lepa.state.snapshot import Snapshot


def list_namespaces(snapshot: Snapshot, request: r.ReadRequest, access: Access) -> Page:
    """Namespaces by name in which the caller may do something."""
    rows = since(snapshot.namespaces(), request, lambda one: one.name)
    return page_of(
        rows,
        request,
        token=lambda one: one.name,
        where=lambda one: one.name.startswith(request.prefix) and access.sees_namespace(one.name),
    )


def scheduler_configuration(snapshot: Snapshot, request: r.ReadRequest) -> SchedulerConfiguration:
    """The settings in force."""
    return snapshot.scheduler_configuration()


def autopilot(snapshot: Snapshot, request: r.ReadRequest) -> AutopilotConfiguration:
    """How servers look after each other."""
    return snapshot.autopilot()


QUERIES: Answerable = {
    m.SCHEDULER_CONFIGURATION_GET: Query(table("config"), scheduler_configuration),
    m.AUTOPILOT_GET: Query(table("autopilot"), autopilot),
}


class OperatorEndpoints:
    """What operators write."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts

    def _access(self, snapshot: Snapshot, request: r.Request) -> Access:
        return self._parts.guard.access(snapshot, request.auth_token)

    def list_namespaces(self, snapshot: Snapshot, request: r.ReadRequest) -> Page:
        """Namespaces that the caller may know of."""
        return list_namespaces(snapshot, request, self._access(snapshot, request))

    def get_namespace(self, snapshot: Snapshot, request: r.ReadRequest) -> Namespace | None:
        """One namespace that the caller may know of."""
        if not self._access(snapshot, request).sees_namespace(request.id):
            raise denied()
        return snapshot.namespace(request.id)

    async def upsert_namespace(self, request: r.NamespaceWriteRequest) -> Reply[None]:
        """Create or change a namespace."""
        namespace = request.value
        if namespace is None:
            raise invalid("missing namespace")
        written = await self._context.write(lambda draft: tenancy.upsert_namespace(draft, namespace))
        return Reply(value=None, index=written.revision)

    async def delete_namespace(self, request: r.NamespaceWriteRequest) -> Reply[None]:
        """Remove a namespace."""
        written = await self._context.write(lambda draft: tenancy.delete_namespace(draft, request.name))
        return Reply(value=None, index=written.revision)

    async def set_scheduler_configuration(
        self, request: r.SchedulerConfigurationRequest
    ) -> Reply[r.SchedulerConfigurationWritten]:
        """Change the scheduler's settings."""
        check_index = request.cas if request.check_index else None
        written = await self._context.write(
            lambda draft: tenancy.set_scheduler_configuration(draft, request.configuration, check_index=check_index)
        )
        answer = r.SchedulerConfigurationWritten(updated=written.value, index=written.revision)
        return Reply(value=answer, index=written.revision)

    async def set_autopilot(self, request: r.AutopilotRequest) -> Reply[bool]:
        """Change how servers look after each other."""
        check_index = request.cas if request.check_index else None
        written = await self._context.write(
            lambda draft: tenancy.set_autopilot(draft, request.configuration, check_index=check_index)
        )
        return Reply(value=written.value, index=written.revision)

    async def collect_garbage(self, request: r.Request) -> Reply[None]:
        """Forget everything that has ended."""
        await (await self._context.leading()).collect_garbage(force=True)
        return self._reply(None)

    async def reconcile_summaries(self, request: r.Request) -> Reply[None]:
        """Summaries are counted from what is there with every change, so there is nothing to put right."""
        return self._reply(None)

    def _reply(self, value: Any) -> Reply[Any]:
        return Reply(value=value, index=max(1, self._parts.replica.snapshot.index))

    def _search(self, find: Callable[[Snapshot, r.SearchRequest, Access, SearchSettings], r.SearchResponse]) -> Answer:
        async def answer(request: r.SearchRequest) -> Reply[Any]:
            snapshot = self._parts.replica.snapshot
            access = self._access(snapshot, request)
            return self._reply(await asyncio.to_thread(find, snapshot, request, access, self._parts.settings.search))

        return answer

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        others: Answers = {
            m.NAMESPACE_UPSERT: self.upsert_namespace,
            m.NAMESPACE_DELETE: self.delete_namespace,
            m.SCHEDULER_CONFIGURATION_SET: self.set_scheduler_configuration,
            m.AUTOPILOT_SET: self.set_autopilot,
            m.SYSTEM_GC: self.collect_garbage,
            m.SYSTEM_RECONCILE_SUMMARIES: self.reconcile_summaries,
        }
        searches = {method: self._search(find) for method, find in SEARCHES.items()}
        namespaces: Answerable = {
            m.NAMESPACE_LIST: Query(table("namespaces"), self.list_namespaces),
            m.NAMESPACE_GET: Query(row("namespaces"), self.get_namespace),
        }
        return {**queries.answers({**QUERIES, **namespaces}), **searches, **others}
