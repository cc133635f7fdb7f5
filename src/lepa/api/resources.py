"""Allocations, evaluations, deployments, nodes, services, tenancy, search, operator: what the servers answer."""

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from lepa.api.edge import ByVerb, Edge, Handle, Route, answers, read, write
from lepa.api.request import (
    common,
    empty_response,
    flag,
    json_object,
    json_response,
    member,
    number,
    read_request,
    reply_headers,
    reply_response,
    typed_member,
    with_durations,
)
from lepa.model import wire
from lepa.model.errors import invalid, not_found
from lepa.model.node import DrainSpec
from lepa.model.operator import SchedulerConfiguration
from lepa.model.service import ServiceRegistration
from lepa.model.tenancy import Namespace, NodePool
from lepa.rpc import methods as m
from lepa.rpc import requests as r

ALGORITHMS = ("binpack", "spread")


# Allocations, evaluations, deployments


def _allocation_options(request: web.Request) -> dict[str, Any]:
    query = request.query
    return {"resources": flag(query, "resources"), "task_states": flag(query, "task_states", True)}


@answers(m.ALLOCATION_STOP, query=("no_shutdown_delay", "reschedule"))
async def stop_allocation(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Stop an allocation; its job replaces it."""
    call = r.AllocationStopRequest(
        id=request.match_info["id"],
        no_shutdown_delay=flag(request.query, "no_shutdown_delay"),
        reschedule=flag(request.query, "reschedule"),
        **common(request),
    )
    reply = await edge.caller.call(m.ALLOCATION_STOP, call)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


def _evaluation_options(request: web.Request) -> dict[str, Any]:
    query = request.query
    chosen = {"status": query.get("status", ""), "job": query.get("job", ""), "related": flag(query, "related")}
    if query.get("filter") and (chosen["status"] or chosen["job"]):
        raise invalid("Filter expression cannot be used with other filter parameters")
    return chosen


async def count_evaluations(edge: Edge, request: web.Request) -> web.StreamResponse:
    """How many evaluations there are."""
    query = read_request(request, r.EvaluationListRequest, **_evaluation_options(request))
    reply = await edge.caller.call(m.EVALUATION_COUNT, query)
    return json_response(request, {"Count": reply.value, "Index": reply.index}, headers=reply_headers(reply))


@answers(m.EVALUATION_DELETE, r.EvaluationDeleteRequest)
async def delete_evaluations(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Delete evaluations while the broker is paused, by id or by filter."""
    call = wire.from_builtins(await json_object(request), r.EvaluationDeleteRequest)
    scope = {key: value for key, value in common(request).items() if value}
    reply = await edge.caller.call(m.EVALUATION_DELETE, msgspec.structs.replace(call, **scope))
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


def _deployment(
    method: m.Method[r.DeploymentUpdateRequest, r.DeploymentUpdateResponse], *, body: bool = True
) -> Handle:
    """A change of one deployment."""

    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        given = await json_object(request, required=body)
        wanted = request.match_info["id"]
        if body and not member(given, "DeploymentID"):
            raise invalid("DeploymentID must be specified")
        if member(given, "DeploymentID", wanted) != wanted:
            raise invalid("Deployment ID does not match")
        call = wire.from_builtins(given, r.DeploymentUpdateRequest)
        reply = await edge.caller.call(method, msgspec.structs.replace(call, id=wanted, **common(request)))
        return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})

    return answers(method, r.DeploymentUpdateRequest if body else None)(handle)


# Nodes


def _node_options(request: web.Request) -> dict[str, Any]:
    return {"resources": flag(request.query, "resources"), "os": flag(request.query, "os")}


@answers(m.NODE_GET)
async def get_node(edge: Edge, request: web.Request) -> web.StreamResponse:
    """One node; its secret is never shown."""
    query = read_request(request, r.ReadRequest, id=request.match_info["id"])
    reply = await edge.caller.call(m.NODE_GET, query)
    if reply.value is None:
        raise not_found("node not found")
    node = wire.to_builtins(reply.value) | {"SecretID": "", "Drain": reply.value.drain_strategy is not None}
    return json_response(request, node, headers=reply_headers(reply))


@answers(None, r.NodeDrainRequest)
async def drain_node(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Start, change or cancel a drain."""
    body = await json_object(request)
    spec = member(body, "DrainSpec")
    call = r.NodeDrainRequest(
        id=request.match_info["id"],
        drain_spec=wire.from_builtins(spec, DrainSpec) if spec is not None else None,
        mark_eligible=typed_member(body, "MarkEligible", bool, False),
        meta={key: str(value) for key, value in typed_member(body, "Meta", dict, {}).items()},
        **common(request),
    )
    return _node_changed(request, await edge.caller.call(m.NODE_DRAIN, call))


@answers(None, r.NodeEligibilityRequest)
async def set_eligibility(edge: Edge, request: web.Request) -> web.StreamResponse:
    """May the node get new allocations?"""
    body = await json_object(request)
    if typed_member(body, "NodeID", str, "") not in {request.match_info["id"], ""}:
        raise invalid("Node ID does not match")
    eligibility = typed_member(body, "Eligibility", str, "")
    if eligibility not in {"eligible", "ineligible"}:
        raise invalid(f'Eligibility must be "eligible" or "ineligible", not "{eligibility}"')
    call = r.NodeEligibilityRequest(id=request.match_info["id"], eligibility=eligibility, **common(request))
    return _node_changed(request, await edge.caller.call(m.NODE_ELIGIBILITY, call))


def _node_changed(request: web.Request, reply: r.Reply[r.NodeUpdateResponse]) -> web.Response:
    """What a change by an operator caused; the rest of the reply is for nodes."""
    done = reply.value
    answer = {
        "NodeModifyIndex": done.node_modify_index,
        "EvalIDs": done.eval_ids,
        "EvalCreateIndex": done.eval_create_index,
        "Index": reply.index,
    }
    return json_response(request, answer, headers={"X-Nomad-Index": str(reply.index)})


@answers(m.NODE_LIST, query=("resources", "os"))
async def node_pool_nodes(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Nodes of one pool."""
    _no_prefix(request)
    query = read_request(request, r.NodeListRequest, node_pool=request.match_info["name"], **_node_options(request))
    return reply_response(request, await edge.caller.call(m.NODE_LIST, query))


@answers(m.JOB_LIST)
async def node_pool_jobs(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Jobs of one pool."""
    _no_prefix(request)
    name = request.match_info["name"]
    if name != "all":
        own = f'NodePool == "{name}"'
        given = request.query.get("filter", "")
        query = read_request(request, r.JobListRequest, filter=f"{own} and ({given})" if given else own)
    else:
        query = read_request(request, r.JobListRequest)
    return reply_response(request, await edge.caller.call(m.JOB_LIST, query))


def _no_prefix(request: web.Request) -> None:
    if "prefix" in request.query:
        raise invalid("prefix argument not allowed")


# Namespaces and node pools

Named = Callable[[web.Request], Awaitable[dict[str, Any]]]


def _named(kind: type[Namespace] | type[NodePool], what: str) -> Named:
    """The body as a namespace or pool whose name fits the path, where the path has one."""

    async def fields(request: web.Request) -> dict[str, Any]:
        value = wire.from_builtins(with_durations(await json_object(request), "NodeIdentityTTL"), kind)
        if not value.name:
            raise invalid(f"Missing {what} name")
        if request.match_info.get("name", value.name) != value.name:
            raise invalid(f"{what.capitalize()} name does not match request path")
        return {"value": value, "name": value.name}

    return fields


# Services


@answers(m.SERVICE_GET, query=("choose",))
async def list_instances(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Instances of one service."""
    query = read_request(
        request, r.ServiceReadRequest, id=request.match_info["id"], choose=request.query.get("choose", "")
    )
    return reply_response(request, await edge.caller.call(m.SERVICE_GET, query))


@answers(None, ServiceRegistration)
async def register_instance(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Register an instance from outside the jobs, or change it."""
    names, service = request.match_info, wire.from_builtins(await json_object(request), ServiceRegistration)
    namespace = service.namespace or request.query.get("namespace", "")
    named = msgspec.structs.replace(service, service_name=names["name"], id=names["id"], namespace=namespace)
    call = r.ServiceRegisterRequest(service=named, **common(request))
    return empty_response((await edge.caller.call(m.SERVICE_REGISTER, call)).index)


async def delete_instance(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Remove one instance."""
    names = request.match_info
    call = r.ServiceDeleteRequest(service_name=names["name"], id=names["id"], **common(request))
    return empty_response((await edge.caller.call(m.SERVICE_DELETE, call)).index)


# Search, operator, system, status


def _search(method: m.Method[r.SearchRequest, r.SearchResponse]) -> Handle:
    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        call = wire.from_builtins(await json_object(request), r.SearchRequest)
        scope = {key: value for key, value in common(request).items() if value}
        reply = await edge.caller.call(method, msgspec.structs.replace(call, **scope))
        return json_response(request, reply.value, headers=reply_headers(reply))

    return answers(method, r.SearchRequest)(handle)


async def scheduler_configuration(edge: Edge, request: web.Request) -> web.StreamResponse:
    """How placements are scored, and whether lower priorities are evicted."""
    reply = await edge.caller.call(m.SCHEDULER_CONFIGURATION_GET, read_request(request, r.ReadRequest))
    answer = {
        "SchedulerConfig": reply.value,
        "Index": reply.index,
        "LastContact": reply.last_contact_ms,
        "KnownLeader": reply.known_leader,
    }
    return json_response(request, answer, headers=reply_headers(reply))


@answers(m.SCHEDULER_CONFIGURATION_SET, SchedulerConfiguration, ("cas",))
async def set_scheduler_configuration(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Change it, or (cas) only when nobody else has."""
    body = await json_object(request)
    preemption = {"SystemSchedulerEnabled": False} | typed_member(body, "PreemptionConfig", dict, {})
    configuration = wire.from_builtins(body | {"PreemptionConfig": preemption}, SchedulerConfiguration)
    if configuration.scheduler_algorithm not in ALGORITHMS:
        raise invalid(f"invalid scheduler algorithm: {configuration.scheduler_algorithm}")
    call = r.SchedulerConfigurationRequest(
        configuration=configuration,
        check_index="cas" in request.query,
        cas=number(request.query, "cas"),
        **common(request),
    )
    reply = await edge.caller.call(m.SCHEDULER_CONFIGURATION_SET, call)
    return json_response(request, reply.value)


def _policy_options(request: web.Request) -> dict[str, Any]:
    return {"job": request.query.get("job", ""), "type": request.query.get("type", "")}


def _id(request: web.Request) -> dict[str, Any]:
    return {"id": request.match_info["name"]}


def _read_named(method: m.Method[r.ReadRequest, Any], missing: str) -> Handle:
    async def handle(edge: Edge, request: web.Request) -> web.StreamResponse:
        query = read_request(request, r.ReadRequest, **_id(request))
        return reply_response(request, await edge.caller.call(method, query), missing)

    return answers(method)(handle)


ROUTES = (
    Route("GET", "allocations", read(m.ALLOCATION_LIST, extra=_allocation_options)),
    Route("GET", "allocation/{id}", read(m.ALLOCATION_GET, missing="alloc not found")),
    Route("GET", "allocation/{id}/services", read(m.ALLOCATION_SERVICES, missing="allocation not found")),
    Route("PUT POST", "allocation/{id}/stop", stop_allocation),
    Route("GET", "evaluations", read(m.EVALUATION_LIST, extra=_evaluation_options)),
    Route("DELETE", "evaluations", delete_evaluations),
    Route("GET", "evaluations/count", count_evaluations),
    Route("GET", "evaluation/{id}", read(m.EVALUATION_GET, missing="eval not found", extra=_evaluation_options)),
    Route("GET", "evaluation/{id}/allocations", read(m.EVALUATION_ALLOCATIONS)),
    Route("GET", "deployments", read(m.DEPLOYMENT_LIST)),
    Route("GET", "deployment/{id}", read(m.DEPLOYMENT_GET, missing="deployment not found")),
    Route("GET", "deployment/allocations/{id}", read(m.DEPLOYMENT_ALLOCATIONS)),
    Route("PUT POST", "deployment/fail/{id}", _deployment(m.DEPLOYMENT_FAIL, body=False)),
    Route("PUT POST", "deployment/pause/{id}", _deployment(m.DEPLOYMENT_PAUSE)),
    Route("PUT POST", "deployment/promote/{id}", _deployment(m.DEPLOYMENT_PROMOTE)),
    Route("PUT POST", "deployment/unblock/{id}", _deployment(m.DEPLOYMENT_UNBLOCK)),
    Route("PUT POST", "deployment/allocation-health/{id}", _deployment(m.DEPLOYMENT_SET_HEALTH)),
    Route("GET", "nodes", read(m.NODE_LIST, extra=_node_options)),
    Route("GET", "node/{id}", get_node),
    Route("GET", "node/{id}/allocations", read(m.NODE_ALLOCATIONS)),
    Route("PUT POST", "node/{id}/evaluate", write(m.NODE_EVALUATE)),
    Route("PUT POST", "node/{id}/purge", write(m.NODE_PURGE)),
    Route("PUT POST", "node/{id}/drain", drain_node),
    Route("PUT POST", "node/{id}/eligibility", set_eligibility),
    Route("GET", "node/pools", read(m.NODE_POOL_LIST)),
    Route("PUT POST", "node/pools", write(m.NODE_POOL_UPSERT, fields=_named(NodePool, "node pool"))),
    Route(
        "GET PUT POST DELETE",
        "node/pool/{name}",
        ByVerb(
            {
                "GET": _read_named(m.NODE_POOL_GET, "node pool not found"),
                "PUT": write(m.NODE_POOL_UPSERT, fields=_named(NodePool, "node pool")),
                "DELETE": write(m.NODE_POOL_DELETE),
            }
        ),
    ),
    Route("GET", "node/pool/{name}/nodes", node_pool_nodes),
    Route("GET", "node/pool/{name}/jobs", node_pool_jobs),
    Route("GET", "namespaces", read(m.NAMESPACE_LIST)),
    Route("PUT POST", "namespaces", write(m.NAMESPACE_UPSERT, fields=_named(Namespace, "namespace"))),
    Route("PUT POST", "namespace", write(m.NAMESPACE_UPSERT, fields=_named(Namespace, "namespace"))),
    Route(
        "GET PUT POST DELETE",
        "namespace/{name}",
        ByVerb(
            {
                "GET": _read_named(m.NAMESPACE_GET, "Namespace not found"),
                "PUT": write(m.NAMESPACE_UPSERT, fields=_named(Namespace, "namespace")),
                "DELETE": write(m.NAMESPACE_DELETE),
            }
        ),
    ),
    Route("GET", "overlays", read(m.OVERLAY_LEASES)),
    Route("GET", "overlay/{id}", read(m.OVERLAY_LEASES)),
    Route("GET", "services", read(m.SERVICE_LIST)),
    Route("GET", "service/{id}", list_instances),
    Route("PUT POST", "service/{name}/{id}", register_instance),
    Route("DELETE", "service/{name}/{id}", delete_instance),
    Route("PUT POST", "search", _search(m.SEARCH_PREFIX)),
    Route("PUT POST", "search/fuzzy", _search(m.SEARCH_FUZZY)),
    Route("GET", "scaling/policies", read(m.SCALING_POLICY_LIST, extra=_policy_options)),
    Route("GET", "scaling/policy/{id}", read(m.SCALING_POLICY_GET, missing="policy not found")),
    Route(
        "GET PUT POST",
        "operator/scheduler/configuration",
        ByVerb({"GET": scheduler_configuration, "PUT": set_scheduler_configuration}),
    ),
    Route("PUT", "system/gc", write(m.SYSTEM_GC)),
    Route("PUT", "system/reconcile/summaries", write(m.SYSTEM_RECONCILE_SUMMARIES)),
    Route("GET", "status/leader", read(m.STATUS_LEADER)),
    Route("GET", "status/peers", read(m.STATUS_PEERS)),
    Route("GET", "regions", read(m.STATUS_REGIONS)),
)
