"""Pure: what a member says of itself: texts by name, in the `Meta` of the layer below.

A byte 255 and a msgpack map; anything without that byte is the value of the tag `role`. Names are sorted, because peers
take other bytes for news.
"""

from collections.abc import Mapping
from typing import Final

from lepa.gossip import raw_msgpack
from lepa.gossip.errors import Malformed
from lepa.gossip.fields import mapped, text
from lepa.gossip.messages import META_MAX

MAGIC: Final = 0xFF


def encode_tags(tags: Mapping[str, str]) -> bytes:
    """The bytes of tags. Raises ValueError when they are too long."""
    meta = bytes([MAGIC]) + raw_msgpack.encode(dict(sorted(tags.items())))
    if len(meta) > META_MAX:
        raise ValueError(f"the tags of a gossip member take {len(meta)} bytes; {META_MAX} are allowed")
    return meta


def decode_tags(meta: bytes) -> dict[str, str]:
    """Tags by name; what cannot be read is no tags."""
    if meta[:1] != bytes([MAGIC]):
        return {"role": meta.decode("utf-8", "surrogateescape")}
    try:
        return mapped(text)(raw_msgpack.decode(meta, 1)[0])
    except Malformed:
        return {}
