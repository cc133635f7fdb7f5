"""Registering: services and checks of this agent, and machines outside the cluster."""

from urllib.parse import quote

from aiohttp import web

from lepa.catalog.table import Instance
from lepa.consul import bodies
from lepa.consul.edge import Guest, Handle, Route, flag, forward, json_object, shown_response
from lepa.consul.registrations import STATUSES, outside_of
from lepa.model.errors import LepaError, invalid
from lepa.sdk.async_connection import AsyncConnection


def _done() -> web.Response:
    return web.Response(content_type="application/json")


def _caller(guest: Guest) -> AsyncConnection | None:
    return guest.api if guest.acl else None


async def _may_tell(guest: Guest, request: web.Request) -> None:
    if guest.acl:
        await guest.local.prove(request.match_info["id"], guest.api)


async def register_service(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Register a service on this agent, or change it."""
    body = await json_object(request)
    replace_checks = flag(request.query, "replace-existing-checks")
    await guest.local.register(body, replace_checks=replace_checks, caller=_caller(guest))
    return _done()


async def deregister_service(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Remove a service of this agent with its checks."""
    await guest.local.deregister(request.match_info["id"], _caller(guest))
    return _done()


async def service_maintenance(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Take a service of this agent out of use, or back."""
    if "enable" not in request.query:
        raise invalid("Missing value for enable")
    enable = flag(request.query, "enable")
    reason = request.query.get("reason", "")
    await guest.local.maintain(request.match_info["id"], enable=enable, reason=reason, caller=_caller(guest))
    return _done()


async def node_maintenance(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Refused: lepa has its own way to take a node out of use."""
    raise LepaError("unsupported", "use `lepa node drain` or `lepa node eligibility` to take a node out of use")


async def register_check(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Add a check to a service of this agent."""
    await guest.local.register_check(await json_object(request), _caller(guest))
    return _done()


async def deregister_check(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Remove a check."""
    await guest.local.deregister_check(request.match_info["id"], _caller(guest))
    return _done()


def _tell(status: str) -> Handle:
    """The owner of a ttl check says that it is in `status`."""

    async def handle(guest: Guest, request: web.Request) -> web.StreamResponse:
        await _may_tell(guest, request)
        guest.local.tell(request.match_info["id"], status, request.query.get("note", ""))
        return _done()

    return handle


async def update_check(guest: Guest, request: web.Request) -> web.StreamResponse:
    """The owner of a ttl check says how it is, with some output."""
    body = bodies.lowered(await json_object(request))
    status = bodies.text(body, "status").lower()
    if status not in STATUSES:
        raise invalid(f"Invalid check status: '{status}'")
    await _may_tell(guest, request)
    guest.local.tell(request.match_info["id"], status, bodies.text(body, "output"))
    return _done()


async def register_outside(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Register a service of a machine outside the cluster."""
    service = outside_of(await json_object(request), guest.settings.datacenter)
    path = f"/v1/service/{quote(service.service_name, safe='')}/{quote(service.id, safe='')}"
    await forward(guest, "PUT", path, service, {"namespace": service.namespace or None})
    return shown_response(request, True)


async def deregister_outside(guest: Guest, request: web.Request) -> web.StreamResponse:
    """Remove a machine outside the cluster: all of its services, or one."""
    body = bodies.lowered(await json_object(request))
    node, service_id = bodies.text(body, "node"), bodies.text(body, "serviceid")
    if not node:
        raise invalid("Must provide node")
    for instance in (await guest.catalog.first()).table.instances_on(node):
        if not instance.alloc_id and not instance.agent and service_id in ("", instance.id):
            await _remove(guest, instance)
    return shown_response(request, True)


async def _remove(guest: Guest, instance: Instance) -> None:
    path = f"/v1/service/{quote(instance.service, safe='')}/{quote(instance.id, safe='')}"
    try:
        await forward(guest, "DELETE", path, None, {"namespace": instance.namespace})
    except LepaError as error:
        if error.code != "not_found":
            raise


ROUTES = (
    Route("PUT", "agent/service/register", register_service),
    Route("PUT", "agent/service/deregister/{id}", deregister_service),
    Route("PUT", "agent/service/maintenance/{id}", service_maintenance),
    Route("PUT", "agent/maintenance", node_maintenance),
    Route("PUT", "agent/check/register", register_check),
    Route("PUT", "agent/check/deregister/{id}", deregister_check),
    Route("PUT", "agent/check/pass/{id}", _tell("passing")),
    Route("PUT", "agent/check/warn/{id}", _tell("warning")),
    Route("PUT", "agent/check/fail/{id}", _tell("critical")),
    Route("PUT", "agent/check/update/{id}", update_check),
    Route("PUT", "catalog/register", register_outside),
    Route("PUT", "catalog/deregister", deregister_outside),
)
