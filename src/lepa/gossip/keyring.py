"""Pure: the keys that seal gossip, and how packets are sealed: AES-GCM as memberlist does it.

The first key seals; every key opens. Keys are 16, 24 or 32 bytes, as text in base64. No message holds a key.

    version 1, what is written       01 | nonce 12 | ciphertext | tag 16
    version 0, read only             00 | the same, with the plain text padded to 16 bytes as in PKCS#7
"""

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from lepa.gossip.errors import Malformed

KEY_SIZES: Final = (16, 24, 32)
KEYS_MAX: Final = 16
VERSION: Final = 1
NONCE_SIZE: Final = 12
TAG_SIZE: Final = 16
OVERHEAD: Final = 1 + NONCE_SIZE + TAG_SIZE
BLOCK: Final = 16


def key_bytes(text: str) -> bytes:
    """A key from its base64 text. Raises ValueError, which does not hold the key."""
    try:
        key = base64.b64decode(text.strip(), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError("a gossip key is base64 of 16, 24 or 32 bytes; this is no base64") from None
    check_key(key)
    return key


def check_key(key: bytes) -> None:
    """Raises ValueError for a key of a wrong size."""
    if len(key) not in KEY_SIZES:
        raise ValueError(f"a gossip key has 16, 24 or 32 bytes, not {len(key)}")


def key_text(key: bytes) -> str:
    """A key as base64 text."""
    return base64.b64encode(key).decode()


class Keyring:
    """Installed keys, the primary first. Changes are made by name of key only, and refused with a sentence."""

    def __init__(self, keys: Iterable[bytes]) -> None:
        self._ciphers: dict[bytes, AESGCM] = {}
        for key in keys:
            self.install(key)
        if not self._ciphers:
            raise ValueError("a keyring needs a key")

    @property
    def keys(self) -> tuple[bytes, ...]:
        """The primary key first."""
        return tuple(self._ciphers)

    @property
    def primary(self) -> bytes:
        """The key that seals."""
        return next(iter(self._ciphers))

    def install(self, key: bytes) -> None:
        """Let a key open. Raises ValueError."""
        check_key(key)
        if key not in self._ciphers and len(self._ciphers) >= KEYS_MAX:
            raise ValueError(f"the keyring holds {KEYS_MAX} keys; remove one first")
        self._ciphers.setdefault(key, AESGCM(key))

    def use(self, key: bytes) -> None:
        """Seal with an installed key from now on. Raises ValueError."""
        cipher = self._ciphers.pop(key, None)
        if cipher is None:
            raise ValueError("requested key is not in the keyring")
        self._ciphers = {key: cipher, **self._ciphers}

    def remove(self, key: bytes) -> None:
        """Forget a key. Raises ValueError for the primary one; one that is not there is removed already."""
        if key == self.primary:
            raise ValueError("removing the primary key is not allowed")
        self._ciphers.pop(key, None)

    def seal(self, plain: bytes, nonce: bytes, bound: bytes) -> bytes:
        """Sealed bytes. nonce: 12 bytes, never used before. bound: what is not sealed but must not be changed."""
        return bytes([VERSION]) + nonce + self._ciphers[self.primary].encrypt(nonce, plain, bound or None)

    def open(self, sealed: bytes, bound: bytes) -> bytes:
        """The plain bytes. Raises Malformed."""
        if len(sealed) < OVERHEAD or sealed[0] not in (0, VERSION):
            raise Malformed("plain", "not encrypted, or with a version that is not known")
        nonce, rest = sealed[1 : 1 + NONCE_SIZE], sealed[1 + NONCE_SIZE :]
        for cipher in self._ciphers.values():
            try:
                plain = cipher.decrypt(nonce, rest, bound or None)
            except InvalidTag:
                continue
            return plain if sealed[0] == VERSION else _unpadded(plain)
        raise Malformed("key", "No installed keys could decrypt the message")


def _unpadded(plain: bytes) -> bytes:
    count = plain[-1] if plain else 0
    if not 1 <= count <= BLOCK or count > len(plain):
        raise Malformed("padding")
    return plain[:-count]
