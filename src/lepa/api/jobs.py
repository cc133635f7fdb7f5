"""Jobs: `/v1/jobs`, `/v1/job/…`, `/v1/validate/job`.

A job's id may hold slashes, escaped or not; what follows it is recognised by its suffix (`/allocations`, `/plan`, …).
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec
from aiohttp import web

from lepa import jobspec
from lepa.api.edge import ByVerb, Edge, Handle, Route, answers
from lepa.api.request import (
    common,
    flag,
    json_object,
    json_response,
    member,
    number,
    read_request,
    reply_response,
    typed_member,
)
from lepa.api.streams import action_of_job
from lepa.model import job_rules, wire
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.job import Job
from lepa.model.job_views import JobSubmission
from lepa.rpc import methods as m
from lepa.rpc import requests as r

PAYLOAD_MAX = 16 * 1024

JOB_FILE_MAX = 1024 * 1024
"""Bytes of a job file, and of its variables, that are parsed for others. Working one out may take a second of CPU."""

NODES_SHOWN, NODES_MAX = 200, 10_000
"""Nodes of an explanation, for each group."""

TAG = "versions/{tag}/tag"
_TAGGED = re.compile(r"[^/].*/versions/[^/]+/tag")

JobHandle = Callable[[Edge, web.Request, str], Awaitable[web.StreamResponse]]


class ParseRequest(wire.Wire, frozen=True):
    """A job file, values of its variables (the text of a variable file, and flags), and whether defaults are to be
    filled in."""

    job_hcl: str = msgspec.field(default="", name="JobHCL")
    variables: str = ""
    variable_flags: dict[str, str] = {}
    canonicalize: bool = False


@answers(m.JOB_LIST, query=("meta",))
async def list_jobs(edge: Edge, request: web.Request) -> web.StreamResponse:
    """All jobs of a namespace, shortened."""
    query = read_request(request, r.JobListRequest, meta=flag(request.query, "meta"))
    return reply_response(request, await edge.caller.call(m.JOB_LIST, query))


@answers(m.JOB_STATUSES, query=("include_children",))
async def statuses(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Jobs with their allocations; a body names the wanted ones."""
    body = await json_object(request, required=False)
    wanted: list[Any] = typed_member(body, "Jobs", list, [])
    if body and not wanted and request.method != "GET":
        raise invalid("no jobs in request")
    if not all(isinstance(job, dict) for job in wanted):
        raise invalid("Jobs must be a list of objects with Namespace and ID")
    pairs = tuple((typed_member(job, "Namespace", str, "default"), typed_member(job, "ID", str, "")) for job in wanted)
    children = flag(request.query, "include_children") or typed_member(body, "IncludeChildren", bool, False)
    query = read_request(request, r.JobStatusesRequest, jobs=pairs, include_children=children)
    if body and not query.namespace:
        query = msgspec.structs.replace(query, namespace="*")
    return reply_response(request, await edge.caller.call(m.JOB_STATUSES, query))


@answers(m.JOB_REGISTER, r.JobRegisterRequest)
async def register(edge: Edge, request: web.Request, expected_id: str = "") -> web.StreamResponse:
    """Register a job."""
    body = await json_object(request)
    job = await _job_of(edge, request, body, expected_id)
    if expected_id and job.id != expected_id:
        raise invalid("Job ID does not match name")
    options = wire.from_builtins(
        {k: v for k, v in body.items() if k.lower() not in {"job", "submission"}}, r.JobRegisterRequest
    )
    submission = member(body, "Submission")
    call = msgspec.structs.replace(
        options,
        job=job,
        submission=wire.from_builtins(submission, JobSubmission) if submission else None,
        **_scope(request, job),
    )
    reply = await edge.caller.call(m.JOB_REGISTER, call)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


def _scope(request: web.Request, job: Job) -> dict[str, Any]:
    return {**common(request), "namespace": job.namespace, "region": job.region}


async def _job_of(edge: Edge, request: web.Request, body: Mapping[str, Any], default_id: str = "") -> Job:
    """The job of a body in canonical form. Namespace: the query's, the body's, then the job's own.

    default_id: the id that the path names, for a job that names none. A body may hold a hundred thousand tasks, which
    take seconds, so it is worked on in a thread. A job that names no priority has 0: the servers know their default.
    """
    await edge.admit(request, "Jobs.Body")
    raw = member(body, "Job")
    if raw is None:
        raise invalid("Job must be specified")
    if not isinstance(raw, dict):
        raise invalid("Job must be a JSON object")
    if not member(raw, "ID", default_id):
        raise invalid("Job ID hasn't been provided")
    namespace = request.query.get("namespace") or member(body, "Namespace") or member(raw, "Namespace") or "default"
    region = member(body, "Region") or request.query.get("region") or member(raw, "Region") or edge.settings.region
    region = edge.settings.region if region == "global" else region
    edge.check_region(region)
    raw = {key: value for key, value in raw.items() if key.lower() not in {"namespace", "region"}}
    raw = {"ID": default_id} | raw if default_id else raw
    raw |= {"Namespace": namespace, "Region": region}
    return await asyncio.to_thread(job_rules.canonicalise, raw, priority=0)


@answers(m.JOB_PLAN, r.JobPlanRequest)
async def plan(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """What registering would change."""
    body = await json_object(request)
    if not isinstance(member(body, "Job"), dict):
        raise invalid("Job must be specified")
    if not member(member(body, "Job"), "ID"):
        raise invalid("Job must have a valid ID")
    job = await _job_of(edge, request, body)
    if job.id != job_id:
        raise invalid("Job ID does not match")
    query = r.JobPlanRequest(job=job, diff=typed_member(body, "Diff", bool, False), **_scope(request, job))
    reply = await edge.caller.call(m.JOB_PLAN, query)
    return json_response(request, reply.value, headers={"X-Nomad-Index": str(reply.index)})


@answers(m.JOB_VALIDATE, r.JobPlanRequest)
async def validate(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Everything wrong with a job; 200 whatever is found."""
    body = await json_object(request)
    if member(body, "Job") is None:
        raise invalid("Job must be specified")
    try:
        job = await _job_of(edge, request, body)
    except LepaError as error:
        if error.code == "denied":
            raise
        found = r.JobValidateResponse(validation_errors=(error.message,), error=error.message)
        return json_response(request, found)
    reply = await edge.caller.call(m.JOB_VALIDATE, r.JobPlanRequest(job=job, **_scope(request, job)))
    return json_response(request, reply.value)


@answers(None, ParseRequest)
async def parse(edge: Edge, request: web.Request) -> web.StreamResponse:
    """A job file of at most 1 MiB as JSON. Functions that read files are not available here.

    VariableFlags is lepa's own: with it what `/v1/job/ID/submission` answers can be parsed again.
    """
    body = await json_object(request)
    text = _bounded_text(body, "JobHCL")
    if not text.strip():
        raise invalid("Job spec is empty")
    job = await asyncio.to_thread(_parsed, text, _bounded_text(body, "Variables"), _flags(body))
    if typed_member(body, "Canonicalize", bool, False):
        return json_response(request, await asyncio.to_thread(job_rules.canonicalise, job))
    return json_response(request, _with_nulls(job))


def _bounded_text(body: Mapping[str, Any], name: str) -> str:
    text = typed_member(body, name, str, "")
    size = len(text.encode())
    if size > JOB_FILE_MAX:
        raise invalid(f"{name} has {size} bytes; at most {JOB_FILE_MAX} are parsed here. Parse a larger file locally.")
    return text


def _flags(body: Mapping[str, Any]) -> dict[str, str]:
    if member(body, "VariableFlags") is None:
        return {}
    flags: dict[str, Any] = typed_member(body, "VariableFlags", dict, {})
    for name, value in flags.items():
        if not isinstance(value, str):
            raise invalid(f"VariableFlags maps names to texts, as -var has them; {name} is {type(value).__name__}")
    if sum(len(value.encode()) for value in flags.values()) > JOB_FILE_MAX:
        raise invalid(f"VariableFlags has more than {JOB_FILE_MAX} bytes. Parse a larger file locally.")
    return flags


def _parsed(text: str, variables: str, flags: dict[str, str]) -> dict[str, Any]:
    files = [("variables", variables)] if variables else ()
    parsed = jobspec.parse(text, filename="input.hcl", var_files=files, variables=flags)
    if parsed.job is None:
        raise invalid("Failed to parse job: " + "\n".join(d.render() for d in parsed.diagnostics))
    return parsed.job


def _with_nulls(job: Mapping[str, Any]) -> dict[str, Any]:
    """What the file says, and null for each field of a job that it does not mention."""
    return {field.encode_name: None for field in msgspec.structs.fields(Job)} | dict(job)


@answers(m.JOB_GET)
async def get(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """One job."""
    reply = await edge.caller.call(m.JOB_GET, read_request(request, r.JobReadRequest, id=job_id))
    return reply_response(request, reply, "job not found")


@answers(m.JOB_DEREGISTER, query=("purge", "eval_priority", "no_shutdown_delay", "global"))
async def deregister(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Stop a job, or purge it."""
    query = request.query
    priority = number(query, "eval_priority")
    if priority > 100:  # 0 is what Go's client sends for the job's own
        raise invalid("eval priority must be between 1 and 100 inclusively")
    call = r.JobDeregisterRequest(
        id=job_id,
        purge=flag(query, "purge"),
        everywhere=flag(query, "global"),
        eval_priority=priority,
        no_shutdown_delay=flag(query, "no_shutdown_delay"),
        **common(request),
    )
    reply = await edge.caller.call(m.JOB_DEREGISTER, call)
    answer = wire.to_builtins(reply.value) | {"VolumeEvalID": "", "VolumeEvalIndex": 0}
    return json_response(request, answer, headers={"X-Nomad-Index": str(reply.index)})


def _about(method: m.Method[r.JobReadRequest, Any], missing: str = "") -> JobHandle:
    """A read about one job."""

    async def handle(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
        query = read_request(request, r.JobReadRequest, id=job_id, all=flag(request.query, "all"))
        return reply_response(request, await edge.caller.call(method, query), missing)

    return answers(method, query=("all",))(handle)


@answers(m.JOB_VERSIONS, query=("diffs", "diff_tag", "diff_version"))
async def versions(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Versions, newest first."""
    query = request.query
    call = read_request(
        request,
        r.JobReadRequest,
        id=job_id,
        diffs=flag(query, "diffs"),
        diff_tag=query.get("diff_tag", ""),
        diff_version=number(query, "diff_version") if "diff_version" in query else None,
    )
    reply = await edge.caller.call(m.JOB_VERSIONS, call)
    if not reply.value.versions:
        raise not_found("job versions not found")
    return reply_response(request, reply)


@answers(m.JOB_SUBMISSION, query=("version",))
async def submission(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """The text of one version."""
    text = request.query.get("version", "")
    if not text.isdigit():
        raise invalid("Unable to parse job submission version parameter")
    query = read_request(request, r.JobReadRequest, id=job_id, version=int(text))
    return reply_response(request, await edge.caller.call(m.JOB_SUBMISSION, query), "job source not found")


@answers(m.JOB_EVALUATE, r.JobEvaluateRequest)
async def evaluate(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Look at a job again."""
    body = await json_object(request, required=False)
    _same_job(body, job_id)
    options: dict[str, Any] = typed_member(body, "EvalOptions", dict, {})
    call = r.JobEvaluateRequest(
        id=job_id, force_reschedule=typed_member(options, "ForceReschedule", bool, False), **common(request)
    )
    return json_response(request, (await edge.caller.call(m.JOB_EVALUATE, call)).value)


def _same_job(body: Mapping[str, Any], job_id: str) -> None:
    if member(body, "JobID", job_id) != job_id:
        raise invalid("Job ID does not match")


@answers(m.JOB_PERIODIC_FORCE)
async def force_periodic(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Launch a periodic job now."""
    reply = await edge.caller.call(m.JOB_PERIODIC_FORCE, r.JobEvaluateRequest(id=job_id, **common(request)))
    answer = {"EvalID": reply.value.eval_id, "EvalCreateIndex": reply.value.eval_create_index, "Index": reply.index}
    return json_response(request, answer)


@answers(m.JOB_REVERT, r.JobRevertRequest)
async def revert(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Register an earlier version again."""
    body = await json_object(request)
    if not member(body, "JobID"):
        raise invalid("JobID must be specified")
    _same_job(body, job_id)
    call = wire.from_builtins(body, r.JobRevertRequest)
    call = msgspec.structs.replace(call, id=job_id, **common(request))
    return json_response(request, (await edge.caller.call(m.JOB_REVERT, call)).value)


@answers(None, r.JobStabilityRequest)
async def stable(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Mark a version as stable or not."""
    body = await json_object(request)
    _same_job(body, job_id)
    call = msgspec.structs.replace(wire.from_builtins(body, r.JobStabilityRequest), id=job_id, **common(request))
    reply = await edge.caller.call(m.JOB_STABLE, call)
    return json_response(request, {"Index": reply.index})


@answers(m.JOB_SCALE, r.JobScaleRequest)
async def scale(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Set the count of a group."""
    body = await json_object(request)
    target: dict[str, Any] = typed_member(body, "Target", dict, {})
    call = wire.from_builtins(body, r.JobScaleRequest)
    call = msgspec.structs.replace(call, id=job_id, group=typed_member(target, "Group", str, ""), **common(request))
    return json_response(request, (await edge.caller.call(m.JOB_SCALE, call)).value)


@answers(m.JOB_EXPLAIN, query=("group", "nodes"))
async def explain(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Why each node was or was not chosen for each group, worked out on the present state and as it was recorded."""
    query = request.query
    nodes_max = number(query, "nodes", NODES_SHOWN)
    if nodes_max > NODES_MAX:
        raise invalid(f"nodes: at most {NODES_MAX} nodes are shown, not {nodes_max}")
    call = read_request(request, r.JobExplainRequest, id=job_id, group=query.get("group", ""), nodes_max=nodes_max)
    return reply_response(request, await edge.caller.call(m.JOB_EXPLAIN, call), "job not found")


@answers(m.JOB_TAG, r.JobTagRequest)
async def tag(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Name a version of a job, or take its name away."""
    job_id, name = split_tag(job_id)
    remove = request.method == "DELETE"
    body = {} if remove else await json_object(request, required=False)
    latest = typed_member(body, "Latest", bool, False)
    version = None if latest else member(body, "Version")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
        raise invalid(f"Version must be a version's number, not {version!r}")
    call = r.JobTagRequest(
        id=job_id,
        name=name,
        version=version,
        description=typed_member(body, "Description", str, ""),
        remove=remove,
        **common(request),
    )
    return json_response(request, (await edge.caller.call(m.JOB_TAG, call)).value)


def split_tag(rest: str) -> tuple[str, str]:
    """The job's id and the tag's name of what stands before `/tag`."""
    job_id, found, name = rest.rpartition("/versions/")
    if not found or not job_id or not name or "/" in name:
        raise not_found("invalid job tag endpoint")
    return job_id, name


@answers(m.JOB_DISPATCH, r.JobDispatchRequest, ("idempotency_token",))
async def dispatch(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Make a child of a parameterized job. The token may be in the body, too, as python-nomad sends it."""
    body = await json_object(request, required=False)
    _same_job(body, job_id)
    token = body.pop("idempotency_token", None)
    call = wire.from_builtins({"IdempotencyToken": token, **body} if token else body, r.JobDispatchRequest)
    return await _dispatch(edge, request, job_id, call)


@answers(m.JOB_DISPATCH, query=("idempotency_token",))
async def dispatch_payload(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """The same with the raw body as payload."""
    return await _dispatch(edge, request, job_id, r.JobDispatchRequest(payload=await request.read()))


async def _dispatch(edge: Edge, request: web.Request, job_id: str, call: r.JobDispatchRequest) -> web.StreamResponse:
    if len(call.payload) > PAYLOAD_MAX:
        raise invalid(f"Payload exceeds maximum size; {len(call.payload)} > {PAYLOAD_MAX}")
    token = request.query.get("idempotency_token", call.idempotency_token)
    call = msgspec.structs.replace(call, id=job_id, idempotency_token=token, **common(request))
    return json_response(request, (await edge.caller.call(m.JOB_DISPATCH, call)).value)


async def actions(edge: Edge, request: web.Request, job_id: str) -> web.StreamResponse:
    """Commands that a person may run in the job's tasks."""
    reply = await edge.caller.call(m.JOB_GET, read_request(request, r.JobReadRequest, id=job_id))
    if reply.value is None:
        raise not_found("job not found")
    found = [
        {
            "Name": action.name,
            "Command": action.command,
            "Args": action.args,
            "TaskName": task.name,
            "TaskGroupName": group.name,
            "JobID": job_id,
        }
        for group in reply.value.task_groups
        for task in group.tasks
        for action in task.actions
    ]
    return json_response(request, found)


OF_ONE_JOB: Mapping[tuple[str, str], JobHandle] = {
    ("GET", ""): get,
    ("PUT", ""): register,
    ("DELETE", ""): deregister,
    ("GET", "versions"): versions,
    ("GET", "submission"): submission,
    ("GET", "allocations"): _about(m.JOB_ALLOCATIONS),
    ("GET", "evaluations"): _about(m.JOB_EVALUATIONS),
    ("GET", "deployments"): _about(m.JOB_DEPLOYMENTS),
    ("GET", "deployment"): _about(m.JOB_LATEST_DEPLOYMENT),
    ("GET", "summary"): _about(m.JOB_SUMMARY, "job not found"),
    ("GET", "services"): _about(m.JOB_SERVICES),
    ("GET", "actions"): actions,
    ("GET", "action"): action_of_job,
    ("GET", "scale"): _about(m.JOB_SCALE_STATUS, "job not found"),
    ("PUT", "scale"): scale,
    ("PUT", "evaluate"): evaluate,
    ("PUT", "plan"): plan,
    ("PUT", "periodic/force"): force_periodic,
    ("PUT", "dispatch"): dispatch,
    ("PUT", "dispatch/payload"): dispatch_payload,
    ("PUT", "revert"): revert,
    ("PUT", "stable"): stable,
    ("GET", "explain"): explain,
    ("PUT", TAG): tag,
    ("DELETE", TAG): tag,
}
ROUTES_OF_ONE_JOB = sorted({suffix for _, suffix in OF_ONE_JOB}, key=len, reverse=True)
"""What may follow a job's id, longest first; "" for the job itself."""


def split_job_path(tail: str) -> tuple[str, str]:
    """The job's id (decoded) and the suffix of a raw path after `/v1/job/`."""
    if _TAGGED.fullmatch(tail):
        return unquote(tail[: -len("/tag")]), TAG
    for suffix in ROUTES_OF_ONE_JOB:
        if suffix and tail.endswith("/" + suffix):
            return unquote(tail[: -len(suffix) - 1]), suffix
    return unquote(tail), ""


async def one_job(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Everything below `/v1/job/`."""
    job_id, suffix = split_job_path(request.raw_path.partition("?")[0].partition("/v1/job/")[2])
    if not job_id:
        raise invalid("Missing job ID")
    verb = "PUT" if request.method == "POST" else request.method
    handle = OF_ONE_JOB.get((verb, suffix))
    if handle is None:
        raise LepaError("invalid", "Invalid method", http_status=405)
    return await handle(edge, request, job_id)


def _put_or_get(on_get: Handle, on_put: Handle) -> Handle:
    return ByVerb({"GET": on_get, "PUT": on_put})


ROUTES = (
    Route("GET PUT POST", "jobs", _put_or_get(list_jobs, register)),
    Route("PUT POST", "jobs/parse", parse),
    Route("GET PUT POST", "jobs/statuses", statuses),
    Route("PUT POST", "validate/job", validate),
    Route("GET PUT POST DELETE", "job/{tail:.+}", one_job),
)
