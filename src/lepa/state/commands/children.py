"""Pure: children of periodic and parameterized jobs."""

import hashlib
import re
from collections.abc import Mapping
from typing import Final

from msgspec.structs import replace

from lepa.model.errors import invalid, not_found
from lepa.model.ids import dispatched_child_id, periodic_child_id
from lepa.model.job import Job
from lepa.state.commands.draft import Draft
from lepa.state.commands.jobs import JobWritten, existing_job, launch_child

PAYLOAD_MAX: Final = 16 * 1024

_LAUNCH = re.compile(r".*/periodic-(\d+)")


def dispatch_job(
    draft: Draft,
    namespace: str,
    job_id: str,
    *,
    payload: bytes = b"",
    meta: Mapping[str, str] | None = None,
    template: str = "",
    idempotency_token: str = "",
    priority: int = 0,
    max_priority: int = 100,
) -> JobWritten:
    """Make a child of a parameterized job; with a token that a child has already, answer with that child."""
    parent = draft.job(namespace, job_id)
    if parent is None:
        raise not_found("parameterized job not found")
    meta = meta or {}
    _check_dispatch(parent, payload, meta, priority, max_priority)
    if idempotency_token:
        for child in draft.snapshot.children(namespace, job_id):
            if child.dispatch_idempotency_token == idempotency_token:
                return JobWritten(child, None, False)
    child = replace(
        parent,
        id=dispatched_child_id(parent.id, draft.now_ns // 1_000_000_000, _suffix(draft.new_id()), template),
        parent_id=parent.id,
        dispatched=True,
        dispatch_idempotency_token=idempotency_token,
        payload=payload or None,
        meta={**parent.meta, **meta},
        priority=priority or parent.priority,
    )
    return launch_child(draft, replace(child, name=child.id), "job-register")


def launch_periodic(draft: Draft, namespace: str, job_id: str, launch_s: int) -> JobWritten:
    """Launch the child that is due at `launch_s` Unix seconds."""
    parent = existing_job(draft, namespace, job_id)
    if parent.periodic is None:
        raise invalid("can't force launch non-periodic job")
    if parent.stop:
        raise invalid(f'Specified job "{job_id}" is stopped')
    child_id = periodic_child_id(parent.id, launch_s)
    child = replace(parent, id=child_id, name=child_id, parent_id=parent.id, periodic=None)
    return launch_child(draft, child, "periodic-job")


def launched_at(child: Job) -> int:
    """Unix seconds at which a periodic job's child was due; 0 for other jobs."""
    found = _LAUNCH.fullmatch(child.id)
    return int(found[1]) if found else 0


def _check_dispatch(parent: Job, payload: bytes, meta: Mapping[str, str], priority: int, most: int) -> None:
    rules = parent.parameterized_job
    if rules is None or parent.dispatched:
        raise invalid(f'Specified job "{parent.id}" is not a parameterized job')
    if parent.stop:
        raise invalid(f'Specified job "{parent.id}" is stopped')
    if priority and not 1 <= priority <= most:
        raise invalid(f"dispatch job priority must be between [1, {most}]")
    if rules.payload == "required" and not payload:
        raise invalid("Payload is not provided but required by parameterized job")
    if rules.payload == "forbidden" and payload:
        raise invalid("Payload provided but forbidden by parameterized job")
    if len(payload) > PAYLOAD_MAX:
        raise invalid(f"Payload exceeds maximum size; {len(payload)} > {PAYLOAD_MAX}")
    permitted = {*rules.meta_required, *rules.meta_optional}
    if unpermitted := sorted(meta.keys() - permitted):
        raise invalid(f"Dispatch request included unpermitted metadata keys: {_go_list(unpermitted)}")
    if missing := sorted(set(rules.meta_required) - meta.keys() - parent.meta.keys()):
        raise invalid(f"Dispatch did not provide required meta keys: {_go_list(missing)}")


def _suffix(unique: str) -> str:
    """Eight hex digits of a fresh id."""
    return hashlib.blake2b(unique.encode(), digest_size=4).hexdigest()


def _go_list(names: list[str]) -> str:
    return "[" + " ".join(names) + "]"
