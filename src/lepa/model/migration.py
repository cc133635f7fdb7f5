"""Pure: what lets one node fetch the data of an allocation from another."""

import base64
import hashlib
import hmac

from lepa.model.wire import Wire


class MigrateSource(Wire, frozen=True):
    """Where the data of an earlier allocation are: the HTTP address of its node, and a token that opens them."""

    address: str = ""
    token: str = ""


def migrate_token(node_secret: str, alloc_id: str) -> str:
    """A token for the data of one allocation: BLAKE2b of its id, keyed with the secret of the node that has them."""
    digest = hashlib.blake2b(alloc_id.encode(), key=node_secret.encode()[:64], digest_size=64).digest()
    return base64.urlsafe_b64encode(digest).decode()


def opens(token: str, node_secret: str, alloc_id: str) -> bool:
    """Whether a token is the one for this allocation."""
    return bool(node_secret) and hmac.compare_digest(token.encode(), migrate_token(node_secret, alloc_id).encode())
