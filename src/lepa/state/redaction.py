"""Pure: a saved state without its secrets, to be handed to somebody who helps.

Keys of the keyring and one-time tokens are left out, so variables in it cannot be read. Secrets of tokens, nodes, auth
methods and CSI volumes are blank.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from msgspec.structs import replace

from lepa.model.wire import from_msgpack, to_msgpack
from lepa.state.keys import KINDS
from lepa.store.protocol import Entry

LEFT_OUT: Final = frozenset({"keyring", "acl_one_time"})

BLANKED: Final[dict[str, Callable[[Any], Any]]] = {
    "nodes": lambda node: replace(node, secret_id=""),
    "acl_tokens": lambda token: replace(token, secret_id=""),
    "acl_auth_methods": lambda method: replace(method, config=replace(method.config, oidc_client_secret="")),
    "csi_volumes": lambda volume: replace(volume, secrets={}),
}


def redacted(entries: Iterable[Entry]) -> Iterator[Entry]:
    """The entries that may be shown."""
    for entry in entries:
        table = entry.key.partition("/")[0]
        if table in LEFT_OUT:
            continue
        blank = BLANKED.get(table)
        if blank is not None:
            entry = entry._replace(value=to_msgpack(blank(from_msgpack(entry.value, KINDS[table]))))
        yield entry
