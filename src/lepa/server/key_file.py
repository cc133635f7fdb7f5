"""The key-encryption key of a server: 32 octets that the root keys in the state are wrapped with.

It never enters the state, so that a copy of the state alone (a snapshot, a disk of etcd) gives no secret away. Each
server of a region has the same one, in a file of mode 0600 below its data directory. Where there is none yet it is

    derived     from the gossip key, which all servers share anyway: HKDF-SHA256 (RFC 5869), so each makes the same one;
    made        by chance where there is no gossip key, which is right for one server. A second one gets a copy.

Once written the file counts, also when the gossip key is changed later. Behind the key stands its name, which shows
whether the key is still as it was written; a file of another program may hold the key alone.
"""

import base64
import hashlib
import hmac
import os
import secrets
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from lepa.model.errors import LepaError

SIZE: Final = 32
NAME: Final = "root.key"
INFO: Final = b"lepa root key encryption v1"


class KeyEncryptionKey:
    """The key, a name for it that tells nothing of it, and what else all servers share because they share the key:
    what they show each other, and what parts of their agents show them."""

    def __init__(self, key: bytes) -> None:
        self.key = key
        self.server_token = self._token(b"server")
        self.guest_token = self._token(b"guest")
        self.id = hashlib.sha256(b"lepa key id\0" + key).hexdigest()[:16]

    def _token(self, purpose: bytes) -> str:
        return hmac.new(self.key, b"lepa token\0" + purpose, hashlib.sha256).hexdigest()


def load_or_make(directory: Path | None, shared: str = "") -> KeyEncryptionKey:
    """The key in `directory`, made when there is none; None keeps it in memory. shared: the gossip key, base64, or "".

    Raises LepaError when the file cannot be read or is not a key.
    """
    if directory is None:
        return KeyEncryptionKey(_fresh(shared))
    path = directory / NAME
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not path.exists():
            _write(path, _fresh(shared))
        return KeyEncryptionKey(_read(path))
    except OSError as error:
        raise LepaError("internal", f"cannot use the key file {path}: {error.strerror or error}") from error


def _fresh(shared: str) -> bytes:
    if not shared:
        return secrets.token_bytes(SIZE)
    return HKDF(algorithm=SHA256(), length=SIZE, salt=None, info=INFO).derive(shared.encode())


def _write(path: Path, key: bytes) -> None:
    """All of it or nothing, on the disk before its name is."""
    draft = path.with_suffix(".new")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        os.fchmod(descriptor, 0o600)
        file.write(base64.b64encode(key) + b"\n" + KeyEncryptionKey(key).id.encode() + b"\n")
        file.flush()
        os.fsync(descriptor)
    os.replace(draft, path)


def _read(path: Path) -> bytes:
    encoded, _, name = path.read_bytes().strip().partition(b"\n")
    try:
        key = base64.b64decode(encoded.strip(), validate=True)
    except ValueError:
        key = b""
    if len(key) != SIZE:
        raise _unfit(path, f"does not hold a key of {SIZE} octets in base64")
    if name and name.strip() != KeyEncryptionKey(key).id.encode():
        raise _unfit(path, "is damaged: its key does not fit the name behind it")
    return key


def _unfit(path: Path, how: str) -> LepaError:
    return LepaError("invalid", f"{path} {how}; put the file of another server, or of a backup, there")
