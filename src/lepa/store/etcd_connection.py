"""Calls of etcd over several endpoints: short deadlines, and the next endpoint when one does not answer.

Every call has one second. `hasleader` asks a member that is cut off from its cluster to refuse instead of waiting. What
a call that failed means is told by its error: a `LepaError` is etcd's answer, and nothing was done; `Lost` is no
answer, and what was asked may or may not be done. Who calls again has to know that asking twice does no harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import grpc
import grpc.aio

from lepa.kit.sources import Clock
from lepa.model.errors import LepaError, invalid, not_found
from lepa.store import etcd_messages as m

DEADLINE_S: Final = 1.0
"""Of one call at one endpoint."""
PATIENCE_S: Final = 10.0
"""Of a call at all endpoints in turn."""
PAUSE_S: Final = 0.1
"""Between two rounds of the endpoints."""
METADATA: Final = (("hasleader", "true"),)
OPTIONS: Final = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)


class Tls(NamedTuple):
    """Files of the certificates with which etcd is spoken to. key and certificate may be "" when etcd asks for none."""

    ca_file: str
    cert_file: str = ""
    key_file: str = ""


class Lost(Exception):
    """A call that was not answered: it may have been carried out."""


class Rpc(NamedTuple):
    """One call: its path, and the class of its answer."""

    path: str
    answer: str


RANGE: Final = Rpc("/etcdserverpb.KV/Range", "RangeResponse")
DELETE_RANGE: Final = Rpc("/etcdserverpb.KV/DeleteRange", "DeleteRangeResponse")
TXN: Final = Rpc("/etcdserverpb.KV/Txn", "TxnResponse")
COMPACT: Final = Rpc("/etcdserverpb.KV/Compact", "CompactionResponse")
WATCH: Final = Rpc("/etcdserverpb.Watch/Watch", "WatchResponse")
LEASE_GRANT: Final = Rpc("/etcdserverpb.Lease/LeaseGrant", "LeaseGrantResponse")
LEASE_REVOKE: Final = Rpc("/etcdserverpb.Lease/LeaseRevoke", "LeaseRevokeResponse")
LEASE_KEEP_ALIVE: Final = Rpc("/etcdserverpb.Lease/LeaseKeepAlive", "LeaseKeepAliveResponse")
MEMBER_ADD: Final = Rpc("/etcdserverpb.Cluster/MemberAdd", "MemberAddResponse")
MEMBER_REMOVE: Final = Rpc("/etcdserverpb.Cluster/MemberRemove", "MembersResponse")
MEMBER_UPDATE: Final = Rpc("/etcdserverpb.Cluster/MemberUpdate", "MembersResponse")
MEMBER_PROMOTE: Final = Rpc("/etcdserverpb.Cluster/MemberPromote", "MembersResponse")
MEMBER_LIST: Final = Rpc("/etcdserverpb.Cluster/MemberList", "MembersResponse")
STATUS: Final = Rpc("/etcdserverpb.Maintenance/Status", "StatusResponse")
MOVE_LEADER: Final = Rpc("/etcdserverpb.Maintenance/MoveLeader", "MoveLeaderResponse")


class EtcdConnection:
    """The endpoints of one etcd, `host:port` texts; the one that answered last is asked first."""

    def __init__(
        self, endpoints: Sequence[str], clock: Clock, tls: Tls | None = None, patience_s: float = PATIENCE_S
    ) -> None:
        """Raises LepaError(invalid) when a file of the certificates cannot be read."""
        self.patience_s = patience_s
        self._clock = clock
        self._credentials = _credentials(tls) if tls else None
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._closing: list[grpc.aio.Channel] = []
        self._endpoints = _without_scheme(endpoints)

    @property
    def endpoints(self) -> tuple[str, ...]:
        """The endpoints as they are tried."""
        return tuple(self._endpoints)

    @property
    def current(self) -> str:
        """The endpoint that is asked first."""
        return self._endpoints[0]

    def use(self, endpoints: Sequence[str]) -> None:
        """Replace the endpoints, keeping the present one first while it is still among them."""
        present, wanted = self._endpoints[:1], _without_scheme(endpoints)
        kept = [endpoint for endpoint in present if endpoint in wanted]
        self._endpoints = kept + [endpoint for endpoint in wanted if endpoint not in kept]
        gone = [endpoint for endpoint in self._channels if endpoint not in wanted]
        self._closing += [self._channels.pop(endpoint) for endpoint in gone]

    def leave(self, endpoint: str) -> None:
        """Ask another endpoint first from now on: this one did not answer."""
        if self._endpoints[0] == endpoint:
            self._endpoints.append(self._endpoints.pop(0))

    async def once(self, rpc: Rpc, request: Any, deadline_s: float = DEADLINE_S, endpoint: str = "") -> Any:
        """One call at the current endpoint, or at `endpoint`. Raises Lost, or LepaError as etcd answered."""
        at = endpoint or self.current
        call = self._channel(at).unary_unary(
            rpc.path, request_serializer=_to_bytes, response_deserializer=getattr(m, rpc.answer).FromString
        )
        try:
            return await call(request, timeout=deadline_s, metadata=METADATA)
        except grpc.aio.AioRpcError as error:
            refusal = _refusal(error)
            if refusal is not None:
                raise refusal from error
            if not endpoint:
                self.leave(at)
            raise Lost(f"etcd at {at}: {error.details() or error.code().name.lower()}") from error

    async def call(self, rpc: Rpc, request: Any, deadline_s: float = DEADLINE_S) -> Any:
        """A call that does no harm when it is made twice, until an endpoint answers. Raises LepaError."""
        return await self.until_answered(lambda: self.once(rpc, request, deadline_s))

    async def until_answered(self, attempt: Callable[[], Awaitable[Any]], patience_s: float = 0.0) -> Any:
        """Attempts, at one endpoint after the other, while they are lost. Raises LepaError(timeout) at the end."""
        began, attempts = self._clock.now(), 0
        patience_s = patience_s or self.patience_s
        while True:
            try:
                return await attempt()
            except Lost as lost:
                attempts += 1
                if self._clock.now() - began >= patience_s:
                    raise LepaError("timeout", f"{lost}; no endpoint answered in {patience_s:g} s") from lost
            if attempts % len(self._endpoints) == 0:
                await self._clock.sleep(PAUSE_S)

    async def keep_alive(self, lease: int, patience_s: float = 0.0) -> int:
        """Extend a lease; the seconds it has from now on, 0 when it has lapsed. Raises LepaError(timeout)."""

        async def attempt() -> int:
            at = self.current
            call = self.stream(LEASE_KEEP_ALIVE, at)
            try:
                async with asyncio.timeout(DEADLINE_S):
                    await call.write(m.LeaseKeepAliveRequest(ID=lease))
                    answer = await call.read()
                if answer is grpc.aio.EOF:
                    raise Lost(f"etcd at {at} ended the call")
                return int(answer.TTL)
            except (TimeoutError, grpc.aio.AioRpcError, asyncio.InvalidStateError, Lost) as error:
                self.leave(at)
                raise Lost(f"etcd at {at}: {described(error)}") from error
            finally:
                call.cancel()

        return int(await self.until_answered(attempt, patience_s))

    def stream(self, rpc: Rpc, endpoint: str) -> Any:
        """A stream of messages both ways at one endpoint."""
        call = self._channel(endpoint).stream_stream(
            rpc.path, request_serializer=_to_bytes, response_deserializer=getattr(m, rpc.answer).FromString
        )
        return call(metadata=METADATA)

    async def close(self) -> None:
        """End all calls and connections."""
        channels, self._channels = [*self._channels.values(), *self._closing], {}
        for channel in channels:
            await channel.close()

    def _channel(self, endpoint: str) -> grpc.aio.Channel:
        found = self._channels.get(endpoint)
        if found is None:
            found = (
                grpc.aio.secure_channel(endpoint, self._credentials, options=OPTIONS)
                if self._credentials is not None
                else grpc.aio.insecure_channel(endpoint, options=OPTIONS)
            )
            self._channels[endpoint] = found
        return found


def described(error: BaseException) -> str:
    """A lost call's reason in few words."""
    if isinstance(error, grpc.aio.AioRpcError):
        return error.details() or error.code().name.lower()
    return str(error) or "no answer in time"


def _to_bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _without_scheme(endpoints: Sequence[str]) -> list[str]:
    found = [endpoint.partition("://")[2] or endpoint for endpoint in endpoints]
    if not found:
        raise invalid("no endpoint of etcd is given")
    return list(dict.fromkeys(found))


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    def content(path: str) -> bytes | None:
        try:
            return Path(path).read_bytes() if path else None
        except OSError as error:
            raise invalid(f"the certificates for etcd: cannot read {path}: {error.strerror}") from error

    return grpc.ssl_channel_credentials(content(tls.ca_file), content(tls.key_file), content(tls.cert_file))


def _refusal(error: grpc.aio.AioRpcError) -> LepaError | None:
    """What etcd says, when it is an answer: nothing was done."""
    code, said = error.code(), error.details() or ""
    if "database space exceeded" in said:
        return LepaError(
            "internal",
            "the database of etcd is full and takes no writes: defragment it and disarm its alarm "
            "(etcdctl defrag, etcdctl alarm disarm), or give it a larger --quota-backend-bytes",
        )
    if "requested lease not found" in said:
        return not_found("the lease has lapsed")
    if code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED):
        return LepaError("denied", f"etcd refused: {said}")
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and "too many requests" not in said:
        return invalid(f"etcd refused: {said}")
    if code is grpc.StatusCode.OUT_OF_RANGE:
        return LepaError("conflict", f"etcd refused: {said}")
    if code in (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION):
        return invalid(f"etcd refused: {said}")
    if code is grpc.StatusCode.NOT_FOUND:
        return not_found(f"etcd refused: {said}")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return LepaError("unsupported", f"etcd refused: {said}")
    return None
