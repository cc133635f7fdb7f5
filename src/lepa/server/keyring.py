"""The keyring: encrypts variables and signs identities.

A root key is made when it is first needed, and by rotation. It holds a data key (AES-256-GCM, a fresh nonce each time,
bound to what it encrypts) and a signing key (RSA 2048, RS256: what others can check everywhere). Its secrets are in the
state only wrapped with the key-encryption key (`key_file`); the public half stands beside them, so every server can
check identities, also one that cannot open the key.

The one active key encrypts and signs; the others open what was made with them. A prepublished key is shown until its
time comes, so that whoever checks identities knows it before the first one is signed with it.
"""

import asyncio
import secrets
from typing import Any, Final, NamedTuple

import jwt
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey, generate_private_key
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock
from lepa.model.acl import RootKey, RootKeyMeta, Variable
from lepa.model.errors import LepaError
from lepa.server.key_file import KeyEncryptionKey
from lepa.server.writer import Writer
from lepa.state.commands import keyring as commands
from lepa.state.commands.draft import Draft
from lepa.state.replica import Replica
from lepa.state.snapshot import Snapshot

NONCE: Final = 12
RSA_BITS: Final = 2048
ALGORITHM: Final = "RS256"
AUDIENCE: Final = "nomadproject.io"
"""Whom an identity has to be made for that is shown to the API."""
LEEWAY_S: Final = 10


class Opened(NamedTuple):
    """The secrets of a root key."""

    key_id: str
    data: bytes
    signing: RSAPrivateKey


class Sealed(msgspec.Struct, frozen=True):
    """The secrets of a root key as they are wrapped."""

    data: bytes
    signing: bytes


class Keyring:
    """The keys of one server."""

    def __init__(self, replica: Replica, writer: Writer, clock: Clock, wrapping: KeyEncryptionKey) -> None:
        """writer: the server's, for making keys while it leads."""
        self._replica = replica
        self._writer = writer
        self._clock = clock
        self._wrapping = wrapping
        self._opened: dict[str, Opened] = {}
        self._making = asyncio.Lock()

    # Encryption

    async def encrypt(self, plain: bytes, place: str) -> tuple[str, bytes]:
        """The id of the key and what it makes of `plain`. place: where it belongs; it opens nowhere else."""
        key = await self.active()
        nonce = secrets.token_bytes(NONCE)
        return key.key_id, nonce + AESGCM(key.data).encrypt(nonce, plain, place.encode())

    def decrypt(self, snapshot: Snapshot, key_id: str, data: bytes, place: str) -> bytes:
        """The inverse. Raises LepaError(internal) when the key is missing or the data is not what was encrypted."""
        key = self.open(snapshot, key_id)
        try:
            return AESGCM(key.data).decrypt(data[:NONCE], data[NONCE:], place.encode())
        except InvalidTag as error:
            raise LepaError("internal", f"what is stored at {place} was damaged or moved: it does not open") from error

    # Identities

    async def sign(self, claims: dict[str, Any]) -> str:
        """A JWT of the claims."""
        key = await self.active()
        headers = {"kid": key.key_id}
        signed: str = await asyncio.to_thread(jwt.encode, claims, key.signing, algorithm=ALGORITHM, headers=headers)
        return signed

    def verify(self, snapshot: Snapshot, token: str) -> dict[str, Any]:
        """The claims of an identity of this cluster. Raises LepaError(denied) for anything else."""
        try:
            key = snapshot.root_key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                raise LepaError("denied", "the identity was signed with a key that is not known here")
            public: Any = serialization.load_pem_public_key(key.public.encode())
            options: Any = {
                "require": ["aud", "iat", "sub"],
                **{f"verify_{name}": False for name in ("exp", "nbf", "iat")},
            }
            claims: dict[str, Any] = jwt.decode(
                token, public, algorithms=[ALGORITHM], audience=AUDIENCE, options=options
            )
        except jwt.PyJWTError as error:
            raise LepaError("denied", f"the identity is not valid: {error}") from error
        self._check_times(claims)
        return claims

    def _check_times(self, claims: dict[str, Any]) -> None:
        """Times count by the server's clock. Raises LepaError(denied)."""
        now_s = self._clock.now_ns() // SECOND
        if claims.get("exp") is not None and claims["exp"] + LEEWAY_S <= now_s:
            raise LepaError("denied", "the identity has expired")
        if claims.get("nbf", 0) > now_s + LEEWAY_S:
            raise LepaError("denied", "the identity is not valid yet")

    def public_keys(self, snapshot: Snapshot) -> tuple[dict[str, Any], ...]:
        """What identities are checked with, as RFC 7517 has it."""
        return tuple(map(_jwk, (key for key in snapshot.root_keys() if key.public)))

    # Keys

    async def active(self) -> Opened:
        """The key in use; the first one is made now."""
        async with self._making:
            snapshot = self._replica.snapshot
            present = commands.active_key(snapshot)
            if present is not None:
                return self.open(snapshot, present.key_id)
            return self.open(*await self._make(publish_time=0, state="active"))

    async def rotate(self, *, publish_time: int = 0) -> RootKey:
        """Make a key that is used from now on, or (publish_time, Unix nanoseconds) from then on."""
        async with self._making:
            snapshot, key_id = await self._make(publish_time, "prepublished" if publish_time else "active")
            made = snapshot.root_key(key_id)
            assert made is not None
            return made

    async def _make(self, publish_time: int, state: str) -> tuple[Snapshot, str]:
        signing = await asyncio.to_thread(generate_private_key, public_exponent=65537, key_size=RSA_BITS)
        data = AESGCM.generate_key(bit_length=256)

        def command(draft: Draft) -> str:
            key_id: str = draft.new_id()
            key = RootKey(
                key_id=key_id,
                state=state,
                create_time=draft.now_ns,
                publish_time=publish_time,
                wrapped_by=self._wrapping.id,
                wrapped=self._wrap(key_id, Sealed(data, _private_der(signing))),
                public=_public_pem(signing),
            )
            commands.add_key(draft, key)
            return key_id

        written = await self._writer.write(command)
        return self._replica.snapshot, written.value

    def open(self, snapshot: Snapshot, key_id: str) -> Opened:
        """The secrets of a key. Raises LepaError(internal) with what to do when this server cannot open it."""
        if key_id not in self._opened:
            stored = snapshot.root_key(key_id)
            if stored is None:
                raise LepaError("internal", f"root key {key_id} is missing; what was encrypted with it cannot be read")
            self._opened[key_id] = self._unwrap(stored)
        return self._opened[key_id]

    def _wrap(self, key_id: str, sealed: Sealed) -> bytes:
        nonce = secrets.token_bytes(NONCE)
        return nonce + AESGCM(self._wrapping.key).encrypt(nonce, msgspec.msgpack.encode(sealed), key_id.encode())

    def _unwrap(self, stored: RootKey) -> Opened:
        if stored.wrapped_by != self._wrapping.id:
            raise LepaError(
                "internal",
                f"root key {stored.key_id} was wrapped by another key-encryption key than this server's; "
                "copy keyring/root.key from a server that wrote it, and start this one again",
            )
        try:
            plain = AESGCM(self._wrapping.key).decrypt(
                stored.wrapped[:NONCE], stored.wrapped[NONCE:], stored.key_id.encode()
            )
        except InvalidTag as error:
            raise LepaError("internal", f"root key {stored.key_id} is damaged: it does not open") from error
        sealed = msgspec.msgpack.decode(plain, type=Sealed)
        signing = serialization.load_der_private_key(sealed.signing, None)
        assert isinstance(signing, RSAPrivateKey)
        return Opened(stored.key_id, sealed.data, signing)

    def close(self) -> None:
        """Forget the secrets."""
        self._opened.clear()


def place(variable: Variable) -> str:
    """What the encrypted items are bound to: they open nowhere else."""
    return f"variables/{variable.namespace}/{variable.path}"


def meta_of(key: RootKey) -> RootKeyMeta:
    """A key as it is shown."""
    return RootKeyMeta(
        key_id=key.key_id,
        algorithm=key.algorithm,
        create_time=key.create_time,
        create_index=key.create_index,
        modify_index=key.modify_index,
        state=key.state,
        publish_time=key.publish_time,
    )


def _private_der(key: RSAPrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _public_pem(key: RSAPrivateKey) -> str:
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return public.decode()


def _jwk(key: RootKey) -> dict[str, Any]:
    public: Any = serialization.load_pem_public_key(key.public.encode())
    found: dict[str, Any] = jwt.algorithms.RSAAlgorithm.to_jwk(public, as_dict=True)
    found.pop("key_ops", None)
    return {"use": "sig", "kid": key.key_id, "alg": ALGORITHM} | found
