"""Services: what is offered where."""

import hashlib
from itertools import groupby
from struct import pack

from lepa.model.errors import invalid
from lepa.model.service import ServiceRegistration
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, namespace_of, table
from lepa.server.pages import Page, in_namespace, namespaced_token, page_of, since
from lepa.state.commands import catalog as commands
from lepa.state.commands.draft import Draft
from lepa.state.commands.nodes import check_secret
from lepa.state.snapshot import Snapshot
from lepa.state.tables import Watch

SERVICES_PER_WRITE = 100


def list_services(snapshot: Snapshot, request: r.ReadRequest) -> tuple[r.NamespaceServices, ...]:
    """Names and tags of services by namespace."""
    mine = [service for service in snapshot.services() if in_namespace(request)(service)]
    return tuple(
        r.NamespaceServices(namespace=namespace, services=tuple(_stubs(list(services))))
        for namespace, services in groupby(mine, key=lambda service: service.namespace)
    )


def _stubs(services: list[ServiceRegistration]) -> list[r.ServiceListStub]:
    return [
        r.ServiceListStub(
            service_name=name, tags=tuple(sorted({tag for instance in instances for tag in instance.tags}))
        )
        for name, instances in groupby(services, key=lambda service: service.service_name)
    ]


def list_instances(snapshot: Snapshot, request: r.ServiceReadRequest) -> Page:
    """Instances of one service, whatever their checks say."""
    namespace = namespace_of(request)
    if namespace == "*":
        found = [service for service in snapshot.services() if service.service_name == request.id]
    else:
        found = sorted(snapshot.service_instances(namespace, request.id), key=namespaced_token)
    if request.choose:
        found = choose(found, request.choose)
    return page_of(since(found, request, namespaced_token), request, token=namespaced_token)


def choose(instances: list[ServiceRegistration], text: str) -> list[ServiceRegistration]:
    """The N instances that a key always gets while they are there: those with the lowest digests of both, as in Nomad,
    so that a mixed fleet agrees."""
    number, _, key = text.partition("|")
    if not number.isdigit() or not int(number) or not key:
        raise invalid("failed to parse choose parameter: expected the form N|key")
    return sorted(instances, key=lambda instance: _rank(instance, key))[: int(number)]


def _rank(instance: ServiceRegistration, key: str) -> bytes:
    texts = (instance.alloc_id, instance.id, instance.namespace, instance.address, instance.service_name)
    digest = hashlib.sha256(pack(">Q", instance.port))
    for text in (*texts, *instance.tags, key):
        digest.update(text.encode())
    return digest.digest()


def _watched(request: r.ServiceReadRequest) -> tuple[Watch, ...]:
    namespace = namespace_of(request)
    if namespace == "*":
        return (Watch("services"),)
    return (Watch("services", "name", (namespace, request.id)),)


QUERIES: Answerable = {
    m.SERVICE_LIST: Query(table("services"), list_services),
    m.SERVICE_GET: Query(_watched, list_instances),
}


class ServiceEndpoints:
    """Writes about services."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def upsert(self, request: r.ServiceUpsertRequest) -> Reply[None]:
        """A node registers instances."""
        await self._context.catch_up(request.seen)
        index = 0
        for at in range(0, max(1, len(request.services)), SERVICES_PER_WRITE):
            index = await self._upsert(request, request.services[at : at + SERVICES_PER_WRITE])
        return Reply(value=None, index=index)

    async def _upsert(self, request: r.ServiceUpsertRequest, services: tuple[ServiceRegistration, ...]) -> int:
        def command(draft: Draft) -> None:
            if request.node_id:
                check_secret(draft, request.node_id, request.secret_id)
            commands.register_services(draft, request.node_id, services)

        return (await self._context.write(command)).revision

    async def register(self, request: r.ServiceRegisterRequest) -> Reply[None]:
        """Register an instance from outside the jobs."""
        written = await self._context.write(lambda draft: commands.register_outside(draft, request.service))
        return Reply(value=None, index=written.revision)

    async def delete(self, request: r.ServiceDeleteRequest) -> Reply[None]:
        """Remove instances: one by its names, or those of a node by id."""

        def command(draft: Draft) -> None:
            if request.node_id:
                check_secret(draft, request.node_id, request.secret_id)
                ids = request.ids or ((request.id,) if request.id else ())
                commands.withdraw_node_services(draft, request.node_id, ids)
            else:
                commands.withdraw_service(draft, request.namespace or "default", request.service_name, request.id)

        return Reply(value=None, index=(await self._context.write(command)).revision)

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        writes: Answers = {
            m.SERVICE_UPSERT: self.upsert,
            m.SERVICE_REGISTER: self.register,
            m.SERVICE_DELETE: self.delete,
        }
        return {**queries.answers(QUERIES), **writes}
