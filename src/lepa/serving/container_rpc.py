"""Pure: the wire between query frontend and model containers: Clipper's RPC, protocol version 3.

A message is a list of ZeroMQ frames that begins with an empty one (the routing id, which ROUTER adds, is not part of it
here). Integers are little-endian; names are UTF-8.

    container -> frontend   "", HEARTBEAT
                            "", NEW_CONTAINER, name, version, input type as decimal text, rpc version
                            "", CONTENT, message id, H, output header (H bytes: u64 n, n x u64 size), n outputs
    frontend -> container   "", rpc version, HEARTBEAT, u32 0 (keep-alive) or 1 (tell me who you are)
                            "", rpc version, HEARTBEAT, u32 0, name (an introduction)
                            "", rpc version, CONTENT, message id, u32 0 (predict), H,
                                input header (H bytes: u64 input type, u64 n, n x u64 size), n inputs

Five things are ours, and invisible to a peer that does not know them:

- A container that understands the others sends the rpc version as eight bytes, of which the upper four are flags
  (Clipper's frontend reads the first four bytes; its JVM container sends eight with zero flags).
- After the eight bytes comes the container's own name, the same for every frontend it connects to, so that who hears of
  it from several frontends does not take it for several.
- A container that was let in and understands that is told the frontend's name, by which it knows whether two
  connections through a load balancer lead to the same frontend.
- In a packed message the n inputs, or outputs, are one frame in a row; the sizes in the header tell them apart. For n
  of 1 both forms are the same, so a receiver only has to count frames.
- An output whose size has its highest bit set is not an output but the reason why the model could not answer this
  query. Clipper's containers die instead.
"""

from collections.abc import Sequence
from struct import Struct as Layout
from struct import pack, unpack_from
from typing import NamedTuple

RPC_VERSION = 3
FLAG_PACKED = 1
FLAG_INTRODUCED = 2

NEW_CONTAINER = 0
CONTENT = 1
HEARTBEAT = 2

KEEP_ALIVE = 0
REQUEST_METADATA = 1

PREDICT = 0

BATCH_MAX = 100_000
"""Inputs in one message; a header that announces more is malformed."""
INSTANCE_BYTES_MAX = 64
FAILURE_TEXT_MAX = 500
"""Bytes of a failure's text."""

_FAILED = 1 << 63
_U32 = Layout("<I")
_U64 = Layout("<Q")

Frames = Sequence[bytes]


class Failure(NamedTuple):
    """What a container says in place of an output: why there is none."""

    text: str


class Heartbeat(NamedTuple):
    """A container is alive."""


class NewContainer(NamedTuple):
    """A container says what it serves. packed: it understands packed batches. introduced: and introductions. instance:
    its own name, "" for one that tells none."""

    model_name: str
    model_version: str
    input_type: int
    rpc_version: int
    packed: bool
    introduced: bool = False
    instance: str = ""


class Outputs(NamedTuple):
    """A container's answer to one batch."""

    message_id: int
    outputs: list[bytes | Failure]


class HeartbeatReply(NamedTuple):
    """The frontend is alive. who: it does not know this container and asks for its metadata. frontend: its name, when
    it introduces itself."""

    who: bool
    frontend: bytes = b""


class Batch(NamedTuple):
    """Inputs to predict. packed: the answer may be packed too."""

    message_id: int
    input_type: int
    inputs: list[bytes]
    packed: bool


class Malformed(NamedTuple):
    """Frames that no message looks like."""

    reason: str


HEARTBEAT_FRAMES = (b"", _U32.pack(HEARTBEAT))
KEEP_ALIVE_FRAMES = (b"", _U32.pack(RPC_VERSION), _U32.pack(HEARTBEAT), _U32.pack(KEEP_ALIVE))
WHO_ARE_YOU_FRAMES = (b"", _U32.pack(RPC_VERSION), _U32.pack(HEARTBEAT), _U32.pack(REQUEST_METADATA))

_BATCH_HEAD = (b"", _U32.pack(RPC_VERSION), _U32.pack(CONTENT))
_PREDICT_FRAME = _U32.pack(PREDICT)
_CONTENT_HEAD = (b"", _U32.pack(CONTENT))


def encode_new_container(name: str, version: str, input_type: int, instance: str = "") -> list[bytes]:
    """What a container answers when it is asked who it is."""
    return [
        b"",
        _U32.pack(NEW_CONTAINER),
        name.encode(),
        version.encode(),
        str(input_type).encode(),
        pack("<II", RPC_VERSION, FLAG_PACKED | FLAG_INTRODUCED) + instance.encode(),
    ]


def encode_introduction(name: bytes) -> list[bytes]:
    """A frontend's name, for a container that understands introductions."""
    return [*KEEP_ALIVE_FRAMES, name]


def encode_batch(message_id: int, input_type: int, inputs: Sequence[bytes], packed: bool) -> list[bytes]:
    """A batch for a container; packed only for one that said it understands that."""
    count = len(inputs)
    header = pack(f"<{count + 2}Q", input_type, count, *map(len, inputs))
    head = (*_BATCH_HEAD, _U32.pack(message_id), _PREDICT_FRAME, _U64.pack(len(header)), header)
    return [*head, b"".join(inputs)] if packed else [*head, *inputs]


def encode_outputs(message_id: int, outputs: Sequence[bytes | Failure], packed: bool) -> list[bytes]:
    """A container's answer to a batch."""
    texts = [_failure_text(output) if isinstance(output, Failure) else output for output in outputs]
    sizes = [
        len(text) | _FAILED if isinstance(output, Failure) else len(text)
        for text, output in zip(texts, outputs, strict=True)
    ]
    header = pack(f"<{len(sizes) + 1}Q", len(sizes), *sizes)
    head = (*_CONTENT_HEAD, _U32.pack(message_id), _U64.pack(len(header)), header)
    return [*head, b"".join(texts)] if packed else [*head, *texts]


def _failure_text(failure: Failure) -> bytes:
    return failure.text.encode(errors="replace")[:FAILURE_TEXT_MAX]


def decode_from_container(frames: Frames) -> Heartbeat | NewContainer | Outputs | Malformed:
    """What a container said; `frames` without the routing id."""
    if len(frames) < 2 or frames[0] or len(frames[1]) != 4:
        return Malformed("no delimiter and message type")
    kind = _U32.unpack(frames[1])[0]
    if kind == CONTENT:
        return _decode_outputs(frames)
    if kind == HEARTBEAT:
        return Heartbeat()
    if kind == NEW_CONTAINER:
        return _decode_new_container(frames)
    return Malformed(f"unknown message type {kind}")


def _decode_new_container(frames: Frames) -> NewContainer | Malformed:
    if len(frames) != 6 or len(frames[5]) < 4:
        return Malformed("a new container sends six frames, the last of them its rpc version")
    version = frames[5]
    flags = _U32.unpack_from(version, 4)[0] if len(version) >= 8 else 0
    try:
        return NewContainer(
            model_name=frames[2].decode(),
            model_version=frames[3].decode(),
            input_type=int(frames[4][:4]),
            rpc_version=_U32.unpack_from(version)[0],
            packed=bool(flags & FLAG_PACKED),
            introduced=bool(flags & FLAG_INTRODUCED),
            instance=version[8:][:INSTANCE_BYTES_MAX].decode() if flags & FLAG_INTRODUCED else "",
        )
    except ValueError as error:
        return Malformed(f"new container: {error}")


def _decode_outputs(frames: Frames) -> Outputs | Malformed:
    if len(frames) < 5 or len(frames[2]) != 4:
        return Malformed("content without message id and header")
    sizes = _sizes(frames[4], 0)
    if sizes is None:
        return Malformed("output header does not hold what it announces")
    texts = _parts([size & ~_FAILED for size in sizes], frames, 5)
    if texts is None:
        return Malformed("outputs do not have the announced sizes")
    outputs: list[bytes | Failure] = list(texts)
    for position, size in enumerate(sizes):
        if size & _FAILED:
            outputs[position] = Failure(texts[position].decode(errors="replace"))
    return Outputs(_U32.unpack(frames[2])[0], outputs)


def decode_from_frontend(frames: Frames) -> HeartbeatReply | Batch | Malformed:
    """What the query frontend said."""
    if len(frames) < 4 or frames[0] or any(len(frame) != 4 for frame in frames[1:4]):
        return Malformed("no delimiter, version and message type")
    version, kind, third = (_U32.unpack(frame)[0] for frame in frames[1:4])
    if version != RPC_VERSION:
        return Malformed(f"the frontend speaks rpc version {version}, this container {RPC_VERSION}")
    if kind == HEARTBEAT:
        return HeartbeatReply(third == REQUEST_METADATA, frames[4] if len(frames) == 5 else b"")
    if kind != CONTENT or len(frames) < 7 or len(frames[4]) != 4 or len(frames[6]) < 16:
        return Malformed(f"message type {kind} with {len(frames)} frames")
    if (request := _U32.unpack(frames[4])[0]) != PREDICT:
        return Malformed(f"unknown request type {request}")
    sizes = _sizes(frames[6], 8)
    inputs = None if sizes is None else _parts(sizes, frames, 7)
    if inputs is None:
        return Malformed("input header does not hold what it announces")
    return Batch(third, _U64.unpack_from(frames[6])[0], inputs, packed=len(frames) == 8)


def _sizes(header: bytes, offset: int) -> list[int] | None:
    """The n sizes of a header whose count stands at `offset`; None when it is cut short or too long."""
    if len(header) < offset + 8:
        return None
    count = _U64.unpack_from(header, offset)[0]
    if count > BATCH_MAX or len(header) != offset + 8 * (count + 1):
        return None
    return list(unpack_from(f"<{count}Q", header, offset + 8))


def _parts(sizes: list[int], frames: Frames, first: int) -> list[bytes] | None:
    """The data frames from `first` on, or the pieces of the one packed frame; None when sizes do not match."""
    if len(frames) == first + 1 and len(sizes) != 1:
        return _pieces(sizes, frames[first])
    parts = list(frames[first:])
    return parts if [len(part) for part in parts] == sizes else None


def _pieces(sizes: list[int], packed: bytes) -> list[bytes] | None:
    if sum(sizes) != len(packed):
        return None
    pieces, start = [], 0
    for size in sizes:
        pieces.append(packed[start : start + size])
        start += size
    return pieces
