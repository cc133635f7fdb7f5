"""Pure: a whole state as one file, and back: what `lepa operator snapshot` saves and restores.

A gzip-compressed tar archive, as Nomad's snapshots are, of three members:

    meta.json     Version, ID, Index, Size, Created (ns since 1970), Cluster, Region, Lepa: `Meta`
    state.bin     for each entry: length of the key, length of the value (4 bytes each), created, modified (8 bytes
                  each), all big-endian, then the key (UTF-8) and the value; in the order of the keys
    SHA256SUMS    of both, as sha256sum writes them

What is damaged, cut short, or not ours is refused with a sentence before anything is taken from it.
"""

import gzip
import hashlib
import struct
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Final, NamedTuple

import msgspec

from lepa.model.errors import LepaError, invalid
from lepa.store.protocol import Entry, Image

VERSION: Final = 1
META, STATE, SUMS = "meta.json", "state.bin", "SHA256SUMS"
STATE_BYTES_MAX: Final = 8 << 30
SMALL_BYTES_MAX: Final = 64 << 10
"""Of the members beside the state."""
PIECE_BYTES: Final = 256 << 10
LEVEL: Final = 3
"""Of compression: states are much alike inside, and more takes twice the time for a tenth less."""

_GZIP_MAGIC: Final = b"\x1f\x8b"
_FRAME: Final = struct.Struct(">IIQQ")


class Meta(msgspec.Struct, frozen=True, rename="pascal"):
    """What a snapshot is. index: its revision. size: bytes of the state."""

    version: int
    id: str = msgspec.field(name="ID")
    index: int
    size: int
    created: int
    term: int = 0
    cluster: str = ""
    region: str = ""
    lepa: str = ""


class Archive(NamedTuple):
    """A snapshot that was read whole and found sound."""

    meta: Meta
    entries: Sequence[Entry]

    @property
    def image(self) -> Image:
        """As a store takes it."""
        return Image(self.meta.index, self.entries)


def write(image: Image, now_ns: int, cluster: str, region: str, lepa: str) -> Iterator[bytes]:
    """The archive in pieces."""
    size = sum(_FRAME.size + len(entry.key.encode()) + len(entry.value) for entry in image.entries)
    name = f"{image.revision}-{now_ns // 1_000_000}"
    meta = Meta(VERSION, name, image.revision, size, now_ns, cluster=cluster, region=region, lepa=lepa)
    deflate = zlib.compressobj(LEVEL, wbits=31)
    for piece in _members(meta, image.entries, now_ns // 1_000_000_000):
        if packed := deflate.compress(piece):
            yield packed
    yield deflate.flush()


def _members(meta: Meta, entries: Iterable[Entry], mtime: int) -> Iterator[bytes]:
    sums = []
    raw = msgspec.json.format(msgspec.json.encode(meta), indent=2) + b"\n"
    for name, size, pieces in ((META, len(raw), iter([raw])), (STATE, meta.size, _frames(entries))):
        digest = hashlib.sha256()
        yield _header(name, size, mtime)
        for piece in pieces:
            digest.update(piece)
            yield piece
        yield _padding(size)
        sums.append(f"{digest.hexdigest()}  {name}\n")
    text = "".join(sums).encode()
    yield _header(SUMS, len(text), mtime) + text + _padding(len(text)) + bytes(2 * tarfile.BLOCKSIZE)


def _header(name: str, size: int, mtime: int) -> bytes:
    member = tarfile.TarInfo(name)
    member.size, member.mtime, member.mode = size, mtime, 0o600
    return member.tobuf()


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)


def _frames(entries: Iterable[Entry]) -> Iterator[bytes]:
    piece = bytearray()
    for entry in entries:
        key = entry.key.encode()
        piece += _FRAME.pack(len(key), len(entry.value), entry.created, entry.modified) + key + entry.value
        if len(piece) >= PIECE_BYTES:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


def read(file: IO[bytes]) -> Archive:
    """A whole archive. Raises LepaError(invalid) when it is damaged, cut short, newer than us, or something else."""
    try:
        return _read(file)
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, UnicodeDecodeError, struct.error) as error:
        if file.seekable() and file.seek(0) == 0 and file.read(2) != _GZIP_MAGIC:
            raise invalid("this is not a snapshot: `lepa operator snapshot save` writes one") from error
        raise _damaged(str(error) or "it ends too early") from error


def _read(file: IO[bytes]) -> Archive:
    digests: dict[str, str] = {}
    meta: Meta | None = None
    entries: list[Entry] = []
    with gzip.GzipFile(fileobj=file) as packed, tarfile.open(fileobj=packed, mode="r|") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isreg() else None
            if content is None or member.name not in (META, STATE, SUMS) or member.name in digests:
                raise invalid(f'this is not a snapshot of lepa: it holds "{member.name}"')
            if member.size > (STATE_BYTES_MAX if member.name == STATE else SMALL_BYTES_MAX):
                raise _damaged(f"{member.name} has {member.size} bytes")
            digest = hashlib.sha256()
            if member.name == STATE:
                entries = list(_entries(content, member.size, digest))
            else:
                raw = content.read()
                digest.update(raw)
                if member.name == SUMS:
                    _check_sums(raw.decode(), digests)
                else:
                    meta = _meta(raw)
            digests[member.name] = digest.hexdigest()
        while packed.read(PIECE_BYTES):  # to its end, where its own checksum stands
            pass
    if meta is None or digests.keys() != {META, STATE, SUMS}:
        raise _damaged("it ends too early")
    return Archive(meta, entries)


def _meta(raw: bytes) -> Meta:
    try:
        meta = msgspec.json.decode(raw, type=Meta)
    except msgspec.DecodeError as error:
        raise invalid(f"this is not a snapshot of lepa: {META}: {error}") from error
    if meta.version > VERSION:
        raise invalid(f"the snapshot was written by a newer lepa (version {meta.version}); upgrade this one")
    return meta


def _entries(content: IO[bytes], size: int, digest: "hashlib._Hash") -> Iterator[Entry]:
    def take(count: int) -> bytes:
        nonlocal size
        size -= count
        raw = content.read(count) if size >= 0 else b""
        if len(raw) < count:
            raise _damaged("an entry of the state is cut short")
        digest.update(raw)
        return raw

    while size:
        key_length, value_length, created, modified = _FRAME.unpack(take(_FRAME.size))
        yield Entry(take(key_length).decode(), take(value_length), created, modified)


def _check_sums(text: str, digests: dict[str, str]) -> None:
    if text != "".join(f"{digests.get(name, '')}  {name}\n" for name in (META, STATE)):
        raise _damaged("its checksums do not fit its content")


def _damaged(how: str) -> LepaError:
    return invalid(f"the snapshot is damaged ({how}): nothing was taken from it")
