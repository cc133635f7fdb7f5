"""Pure: how objects, revisions and leases lie in etcd.

    PREFIX root                       what is in force: the generation, the base of revisions, the cluster's id
    PREFIX o/GENERATION/KEY           the objects, each value behind a head that may tell when the object was created
    PREFIX c/SESSION/SLOT             one key for each commit under way in one session

**Generations.** A snapshot is restored under a new generation, which one write of `root` puts in force: either all of
it is there or nothing. Each commit compares `root`, so one that was meant for the former state is refused.

**Revisions.** etcd's cannot be set, so ours are etcd's moved by a base: `root` holds the revision that its own write
stands for. A new store begins at 0, one restored from a snapshot goes on above the snapshot's revision.

**Slots.** A commit whose answer was lost has to be known as applied or not. Each commit takes a slot for itself, which
no other uses meanwhile, compares the slot's revision with the last one and puts it. Asked again, etcd either applies
it (then it was not applied before, and what still travels is refused by its compare), or it tells the slot's new
revision: the commit's own.
"""

from typing import Any, Final, NamedTuple

import msgspec

from lepa.model.errors import invalid
from lepa.store.protocol import Change, Entry

HEAD_PLAIN: Final = b"\x00"
HEAD_CREATED: Final = b"\x01"
"""Followed by 8 bytes, big-endian: the revision at which the object was created, before it was restored."""
FORMAT: Final = 1


class Root(msgspec.Struct, frozen=True):
    """What is in force. base: the revision that stands for the one at which this was written."""

    cluster: str
    generation: str
    base: int = 0
    format: int = FORMAT


class Layout(NamedTuple):
    """Names of keys under one root. written: etcd's revision of the root."""

    prefix: bytes
    root: Root
    written: int

    @property
    def root_key(self) -> bytes:
        return root_key(self.prefix)

    @property
    def objects(self) -> bytes:
        """The prefix of all objects."""
        return self.prefix + b"o/" + self.root.generation.encode() + b"/"

    @property
    def commits(self) -> bytes:
        """The prefix of all slots."""
        return self.prefix + b"c/"

    def slot(self, session: int, number: int) -> bytes:
        """The key of a slot."""
        return self.commits + b"%x/%d" % (session, number)

    def object(self, key: str) -> bytes:
        """Where an object lies."""
        return self.objects + key.encode()

    def key(self, raw: bytes) -> str:
        """The object's key of what lies at `raw`."""
        return raw[len(self.objects) :].decode()

    def ours(self, revision: int) -> int:
        """etcd's revision as ours."""
        return revision - self.written + self.root.base

    def etcds(self, revision: int) -> int:
        """Our revision as etcd's; 0 (not there) stays 0, and one that etcd never had is -1."""
        found = revision - self.root.base + self.written
        return 0 if not revision else found if found > 0 else -1

    def of_generation(self, generation: str) -> "Layout":
        """Names of keys in another generation."""
        return self._replace(root=Root(self.root.cluster, generation, self.root.base))

    def entry(self, kv: Any) -> Entry:
        """An object as it stands."""
        value, created = opened(kv.value)
        return Entry(self.key(kv.key), value, created or self.ours(kv.create_revision), self.ours(kv.mod_revision))

    def change(self, event: Any, deleted: bool) -> Change:
        """What happened to an object. etcd does not tell when a deleted one was created."""
        revision = self.ours(event.kv.mod_revision)
        if deleted:
            return Change(self.key(event.kv.key), None, 0, revision)
        value, created = opened(event.kv.value)
        return Change(self.key(event.kv.key), value, created or self.ours(event.kv.create_revision), revision)


def root_key(prefix: bytes) -> bytes:
    """The key of what is in force."""
    return prefix + b"root"


def after(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`: the end of its range."""
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else b"\x00"


def closed(value: bytes, created: int = 0) -> bytes:
    """A value as it is stored. created: the revision at which a restored object was created."""
    return HEAD_CREATED + created.to_bytes(8, "big") + value if created else HEAD_PLAIN + value


def opened(stored: bytes) -> tuple[bytes, int]:
    """The value, and when it was created if its head says so, else 0."""
    if stored[:1] == HEAD_CREATED:
        return stored[9:], int.from_bytes(stored[1:9], "big")
    return stored[1:], 0


def encode_root(root: Root) -> bytes:
    """As stored."""
    return msgspec.json.encode(root)


def decode_root(raw: bytes) -> Root:
    """As read. Raises LepaError(invalid) for what is not ours, or newer."""
    try:
        root = msgspec.json.decode(raw, type=Root)
    except msgspec.DecodeError as error:
        raise invalid(f"the etcd holds something under lepa's key that lepa did not write: {error}") from error
    if root.format > FORMAT:
        raise invalid(f"the etcd's state was written by a newer lepa (format {root.format}); upgrade this one")
    return root
