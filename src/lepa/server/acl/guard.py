"""Stands before every answer of a server: whose token is this, and may they?

    "" -> the policy `anonymous`      a UUID -> a token, or a node by its secret      a JWT -> a workload of the cluster

Rights are worked out from the snapshot of the moment, so a token that is deleted or a policy that is changed counts
with the next call, and a read that waited is checked again before it is answered. Compiled policies are kept by their
revision. While access control is off everybody may do everything, except show a false identity where one is asked for.
"""

import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from msgspec.structs import replace

from lepa.kit.sources import Clock
from lepa.model.acl import ANONYMOUS, MANAGEMENT, AclPolicy, AclToken
from lepa.model.errors import LepaError, denied
from lepa.rpc.requests import ReadRequest, Reply, Request
from lepa.server.acl.access import ALL, Access, Workload
from lepa.server.acl.rules import Rules, parse_rules
from lepa.server.acl.table import Need, need_of
from lepa.state.commands.acl import TOKEN_NOT_FOUND, UUID, expired
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot

COMPILED_MAX: Final = 4_096
SECRET_MAX: Final = 16 * 1024
"""Characters of a token; identities of workloads have some 800."""
ENDED: Final = ("complete", "failed", "lost")
AGAIN_MAX: Final = 3

log = logging.getLogger(__name__)

Answer = Callable[[Any], Awaitable[Reply[Any]]]


class Verifier(Protocol):
    """Checks signatures of identities."""

    def verify(self, snapshot: Snapshot, jwt: str) -> dict[str, Any]:
        """The claims of an identity that this cluster signed. Raises LepaError(denied)."""


class Guard:
    """The rights of callers, by what they show. enabled: whether access control is on."""

    def __init__(
        self, replica: Replica, clock: Clock, verifier: Verifier, *, enabled: bool, guest_token: str, server_token: str
    ) -> None:
        """guest_token: what parts of agents show that read for others (names, the ingress). server_token: what servers
        show each other."""
        self.enabled = enabled
        self._replica = replica
        self.clock = clock
        self._verifier = verifier
        self._guest_token = guest_token
        self._server_token = server_token
        self._compiled: dict[tuple[str, int], Rules] = {}

    # Before an answer

    def guarded(self, name: str, answer: Answer) -> Answer:
        """The answer of a method, given to those only who may ask."""
        need = need_of(name)

        async def guarded(request: Any) -> Reply[Any]:
            if not self.enabled:
                return await answer(_cleared(request))
            allowed = self.admit(need, request)
            reply = await answer(allowed)
            if not isinstance(request, ReadRequest) or request.index == 0:
                return reply
            return await self._after_waiting(need, request, allowed, answer, reply)

        return guarded

    async def _after_waiting(
        self, need: Need, request: ReadRequest, allowed: Any, answer: Answer, reply: Reply[Any]
    ) -> Reply[Any]:
        """A read that waited, as the caller's rights are now: when they changed it is made anew, without waiting."""
        for _ in range(AGAIN_MAX):
            now = self.admit(need, request)
            if now.visible == allowed.visible:
                return reply
            allowed = now
            reply = await answer(replace(now, index=0))
        raise LepaError("timeout", "the rights of the token keep changing; try again")

    def admit(self, need: Need, request: Any) -> Any:
        """The request with what its caller may see. Raises LepaError(denied)."""
        snapshot = self._replica.snapshot
        access = self.access(snapshot, request.auth_token)
        if not need.allows(access, snapshot, request):
            raise denied()
        return replace(request, visible=need.visible(access, snapshot, request))

    def may(self, name: str, request: Request) -> None:
        """Raise LepaError(denied) when the caller may not pass a door."""
        if self.enabled:
            self.admit(need_of(name), request)

    # Who is it?

    def access(self, snapshot: Snapshot, secret: str) -> Access:
        """The rights of whoever shows `secret`. Raises LepaError(denied) when it is not known or over."""
        return self.resolve(snapshot, secret) if self.enabled else ALL

    def resolve(self, snapshot: Snapshot, secret: str) -> Access:
        """The same, also while access control is off."""
        if not secret:
            return self._of_policies(snapshot, [ANONYMOUS], accessor_id="")
        if len(secret) > SECRET_MAX:
            raise denied(TOKEN_NOT_FOUND)
        if hmac.compare_digest(secret.encode(), self._guest_token.encode()):
            return GUEST
        if hmac.compare_digest(secret.encode(), self._server_token.encode()):
            return OTHER_SERVER
        if secret.count(".") == 2:
            return self._of_workload(snapshot, self._verifier.verify(snapshot, secret))
        if not UUID.fullmatch(secret):
            raise denied("ACL token is invalid")
        token = snapshot.token_by_secret(secret)
        if token is not None:
            return self._of_token(snapshot, token)
        node = snapshot.node_by_secret(secret)
        if node is not None:
            return Access((NODE_RULES,), node_id=node.id)
        raise denied(TOKEN_NOT_FOUND)

    def token(self, snapshot: Snapshot, secret: str) -> AclToken | None:
        """The token with this secret, if it is one and not over."""
        found = snapshot.token_by_secret(secret) if secret else None
        return found if found is not None and not expired(found, self.clock.now_ns()) else None

    def _of_token(self, snapshot: Snapshot, token: AclToken) -> Access:
        if expired(token, self.clock.now_ns()):
            raise denied("ACL token expired")
        if token.type == MANAGEMENT:
            return Access(management=True, accessor_id=token.accessor_id)
        names = list(token.policies)
        for link in token.roles:
            role = snapshot.role(link.id)
            names += [policy.name for policy in role.policies] if role is not None else []
        return self._of_policies(snapshot, names, accessor_id=token.accessor_id)

    def _of_policies(self, snapshot: Snapshot, names: list[str], *, accessor_id: str) -> Access:
        found = [policy for name in dict.fromkeys(names) if (policy := snapshot.policy(name)) is not None]
        return Access(map(self._rules, found), accessor_id=accessor_id, policies=names)

    def _of_workload(self, snapshot: Snapshot, claims: dict[str, Any]) -> Access:
        alloc = snapshot.allocation(str(claims.get("nomad_allocation_id", "")))
        if alloc is None or alloc.client_status in ENDED:
            raise denied("the allocation of this identity is not running any more")
        workload = Workload(
            alloc.namespace, str(claims.get("nomad_job_id", "")), alloc.task_group, str(claims.get("nomad_task", "")),
            alloc.id,
        )  # fmt: skip
        of_job = snapshot.policies_of_job(alloc.namespace, workload.job_id)
        attached = [policy for policy in of_job if _fits(policy, workload)]
        return Access(map(self._rules, attached), policies=(policy.name for policy in attached), workload=workload)

    def _rules(self, policy: AclPolicy) -> Rules:
        key = (policy.name, policy.modify_index)
        rules = self._compiled.get(key)
        if rules is None:
            if len(self._compiled) >= COMPILED_MAX:
                self._compiled.clear()
            rules = self._compiled[key] = parse_rules(policy.rules)
        return rules


def _fits(policy: AclPolicy, workload: Workload) -> bool:
    """Whether a policy that is attached to the workload's job is attached to its group and task."""
    attached = policy.job_acl
    return attached is not None and attached.group in ("", workload.group) and attached.task in ("", workload.task)


def _cleared(request: Any) -> Any:
    """What a caller says of its own rights does not count."""
    return replace(request, visible=None) if request.visible is not None else request


NODE_RULES: Final = parse_rules('node {\n  policy = "read"\n}\nnamespace "*" {\n  capabilities = ["read-job"]\n}\n')
"""What a node may read for those that it runs: where services are."""

OTHER_SERVER: Final = Access(server=True)
"""Another server of the region."""

GUEST: Final = Access((NODE_RULES,), node_id="guest")
"""Parts of an agent that read for others."""
