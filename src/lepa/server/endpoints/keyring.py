"""The keyring, and identities of workloads."""

from typing import Any, Final

from lepa.kit.durations import SECOND
from lepa.model.acl import RootKeyMeta
from lepa.model.allocation import Allocation
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.identity import WorkloadIdentity
from lepa.model.job import Job
from lepa.rpc import acl_requests as a
from lepa.rpc import methods as m
from lepa.rpc import requests as r
from lepa.rpc.requests import Reply
from lepa.server.acl.guard import ENDED
from lepa.server.endpoints.context import Answers, Context
from lepa.server.endpoints.queries import Queries
from lepa.server.endpoints.query import Answerable, Query, table
from lepa.server.keyring import meta_of
from lepa.state.commands import keyring as commands
from lepa.state.commands.draft import Draft
from lepa.state.snapshot import Snapshot

MAX_AGE_MIN_S: Final = 15 * 60
"""For how long public keys hold at least: a new key is shown that long before it is counted on."""
IDENTITIES_MAX: Final = 1_000
"""Of one request."""


def list_keys(snapshot: Snapshot, request: r.ReadRequest) -> tuple[RootKeyMeta, ...]:
    """All root keys, without their secrets."""
    return tuple(map(meta_of, snapshot.root_keys()))


class KeyringEndpoints:
    """What operators do with root keys, and what nodes get from them."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._parts = context.parts
        self._keyring = context.parts.keyring

    async def rotate(self, request: a.KeyringRotateRequest) -> Reply[a.KeyringRotated]:
        """Make a new root key."""
        if request.full and request.publish_time:
            raise invalid("a key that is published first cannot encrypt everything anew at once: give one of the two")
        if request.publish_time and request.publish_time <= self._parts.clock.now_ns():
            raise invalid("publish_time has to be in the future")
        await self._context.leading()
        made = await self._keyring.rotate(publish_time=request.publish_time)
        index = made.modify_index
        if request.full:
            index = (await self._context.write(_mark_others)).revision
        return Reply(value=a.KeyringRotated(key=meta_of(made), index=index), index=index)

    async def delete(self, request: a.KeyringDeleteRequest) -> Reply[None]:
        """Remove a root key."""
        written = await self._context.write(lambda draft: commands.delete_key(draft, request.id, force=request.force))
        return Reply(value=None, index=written.revision)

    def public(self, snapshot: Snapshot, request: r.ReadRequest) -> a.PublicKeys:
        """What identities are checked with."""
        settings = self._parts.settings.acl
        max_age_s = max(MAX_AGE_MIN_S, int(settings.key_rotation_s / 2))
        return a.PublicKeys(keys=self._keyring.public_keys(snapshot), max_age_s=max_age_s, issuer=settings.oidc_issuer)

    # Identities

    async def sign(self, request: a.SignIdentitiesRequest) -> Reply[tuple[a.SignedIdentity, ...]]:
        """Identities for tasks that run on the node that asks."""
        snapshot = self._parts.replica.snapshot
        node = snapshot.node(request.node_id)
        if node is None:
            raise not_found("node not found", node_id=request.node_id)
        if node.secret_id != request.secret_id:
            raise LepaError("denied", "node secret ID does not match", node_id=request.node_id)
        if len(request.wanted) > IDENTITIES_MAX:
            raise invalid(f"{len(request.wanted)} identities at once; at most {IDENTITIES_MAX}")
        signed = tuple([await self._signed(snapshot, request.node_id, wanted) for wanted in request.wanted])
        return Reply(value=signed, index=max(1, snapshot.index))

    async def _signed(self, snapshot: Snapshot, node_id: str, wanted: a.IdentityWanted) -> a.SignedIdentity:
        alloc = snapshot.allocation(wanted.alloc_id)
        if alloc is None or alloc.node_id != node_id:
            return a.SignedIdentity(wanted=wanted, error=f'no allocation "{wanted.alloc_id}" on this node')
        if alloc.client_status in ENDED:
            return a.SignedIdentity(wanted=wanted, error="the allocation has ended")
        job = snapshot.job_version(alloc.namespace, alloc.job_id, alloc.job_version)
        identity = _identity(job, alloc, wanted)
        if job is None or identity is None:
            named = f'task "{wanted.task}" has no identity "{wanted.identity}"'
            return a.SignedIdentity(wanted=wanted, error=named)
        claims = self._claims(job, alloc, wanted, identity)
        token = await self._keyring.sign(claims)
        return a.SignedIdentity(wanted=wanted, jwt=token, expires_at=claims.get("exp", 0) * SECOND)

    def _claims(
        self, job: Job, alloc: Allocation, wanted: a.IdentityWanted, identity: WorkloadIdentity
    ) -> dict[str, Any]:
        """What an identity says, by Nomad's names. A child is known by its parent's id."""
        settings, now_s = self._parts.settings, self._parts.clock.now_ns() // SECOND
        job_id = job.parent_id or job.id
        whose = wanted.service or wanted.task
        subject = (settings.region, alloc.namespace, job_id, alloc.task_group, whose, identity.name)
        claims: dict[str, Any] = {
            "aud": identity.audience[0] if len(identity.audience) == 1 else list(identity.audience),
            "iat": now_s,
            "nbf": now_s,
            "jti": self._parts.random.uuid(),
            "sub": ":".join(subject),
            "nomad_namespace": alloc.namespace,
            "nomad_job_id": job_id,
            "nomad_allocation_id": alloc.id,
        }
        claims |= {"nomad_service": wanted.service} if wanted.service else {"nomad_task": wanted.task}
        if settings.acl.oidc_issuer:
            claims["iss"] = settings.acl.oidc_issuer
        if identity.ttl:
            claims["exp"] = now_s + max(1, identity.ttl // SECOND)
        return claims

    def answers(self, queries: Queries) -> Answers:
        """By method."""
        reads: Answerable = {
            m.KEYRING_LIST: Query(table("keyring"), list_keys),
            m.KEYRING_PUBLIC: Query(table("keyring"), self.public),
        }
        writes: Answers = {
            m.KEYRING_ROTATE: self.rotate,
            m.KEYRING_DELETE: self.delete,
            m.IDENTITY_SIGN: self.sign,
        }
        return {**queries.answers(reads), **writes}


def _mark_others(draft: Draft) -> None:
    for key in draft.snapshot.root_keys():
        commands.mark_rekeying(draft, key.key_id)


def _identity(job: Job | None, alloc: Allocation, wanted: a.IdentityWanted) -> WorkloadIdentity | None:
    """The identity as the job declares it."""
    groups = job.task_groups if job is not None else ()
    group = next((group for group in groups if group.name == alloc.task_group), None)
    if group is None:
        return None
    task = next((task for task in group.tasks if task.name == wanted.task), None)
    if wanted.service:
        services = [*group.services, *(task.services if task is not None else ())]
        found = next((service for service in services if service.name == wanted.service), None)
        return found.identity if found is not None else None
    if task is None:
        return None
    own = [task.identity] if task.identity is not None else []
    return next((each for each in (*own, *task.identities) if each.name == wanted.identity), None)
