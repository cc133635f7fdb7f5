"""Pure: answers whole DNS messages from one table, most of them without looking twice.

`Responder` makes the records of a name once, encodes them in a few orders (`ROTATIONS_MAX`), and finds finished
answers by the bytes of the query, so that the usual query costs one look-up. All its caches are bounded by emptying
them.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import chain, repeat
from typing import Final, TypeVar

import msgspec

from lepa.catalog.table import EMPTY, ServiceTable
from lepa.dns import aliases
from lepa.dns import message as wire
from lepa.dns.bounded_cache import BoundedCache
from lepa.dns.message import Query, Record, Reply, Sections
from lepa.dns.resolver import Known, Resolver
from lepa.dns.settings import DnsSettings

T = TypeVar("T")

REPLIES_MAX = 8_192
"""Names whose records are kept."""
ENCODED_BYTES_MAX = 16 << 20
"""Size of the encoded sections that are kept, and of the finished answers that are kept, each."""
ENCODED_MAX = 8_192
"""Names, types and sizes whose encoded sections are kept."""
FINISHED_MAX = 8_192
"""Different queries whose finished answers are kept."""
ROTATIONS_MAX = 16
"""Orders in which a set is encoded: as many as it has members, so that each is first equally often, up to this."""
ROTATED_RECORDS_MAX = 2_048
"""Records in all orders of a set together: large sets get fewer orders (but at least two)."""
ROUNDS = 16
"""How often the orders of a set are given before new ones are drawn."""
KEPT_OVERHEAD = 1_024
"""Octets that a kept answer is taken to cost beside its own."""


class Verdict(Enum):
    """What to do with a message that gets no answer from us."""

    DROP = "drop"
    FORWARD = "forward"


class Chase(msgspec.Struct, frozen=True):
    """An answer that leads to a name of another domain: `question` is to be put to the recursors.

    query: the client's. size_max: what its answer may take. answers: our records: CNAMEs, or SRV records of which some
    have a host name as target. name: what the question is about. rest: other names to ask about after it.
    """

    query: Query
    size_max: int
    answers: tuple[Record, ...]
    question: bytes
    name: bytes
    rest: tuple[bytes, ...] = ()


Answer = bytes | Verdict | Chase
"""What to send, what to do with a message that gets no answer from us, or what to ask first."""


EncodedKey = tuple[bytes, int, int]
"""Name, type, and the room there is for the message without its OPT record."""
Rotations = tuple[tuple[Sections, ...], Iterator[Sections]]
"""A reply in a few orders, encoded, and those whose turns are to come."""
Finished = tuple[Iterator[bytes], EncodedKey]
"""Answers, without their ids, whose turns are to come, and what they were made from."""


class Responder:
    """Answers messages from one table, UDP datagrams and TCP messages alike; safe to share between two threads.

    `udp` and `tcp` give the answer, or say that the message is to be dropped or forwarded. `counts` tells how often
    each kind of answer was composed; answers found finished are not counted here. Without a table every name of ours
    is SERVFAIL: nothing is known yet.
    """

    def __init__(self, table: ServiceTable | None, settings: DnsSettings, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._table = table
        self._settings = settings
        self._resolver = Resolver(table or EMPTY, settings)
        self._chance = seed & _MASK
        self._replies: BoundedCache[tuple[bytes, int], Known] = BoundedCache(REPLIES_MAX, ENCODED_BYTES_MAX)
        self._encoded: BoundedCache[EncodedKey, Rotations] = BoundedCache(ENCODED_MAX, ENCODED_BYTES_MAX)
        self._finished: BoundedCache[bytes, Finished] = BoundedCache(FINISHED_MAX, ENCODED_BYTES_MAX)

    def renewed(self, table: ServiceTable) -> "Responder":
        """A responder for a newer table that keeps every answer which still holds."""
        fresh = Responder(table, self._settings, self._chance)
        fresh.counts = self.counts
        if self._table is not None:
            old = self._table
            replies = self._replies.only(lambda _, known: known.still_holds(old, table))
            fresh._replies = replies
            fresh._encoded = self._encoded.only(lambda key, _: key[:2] in replies.entries)
            fresh._finished = self._finished.only(lambda _, held: held[1][:2] in replies.entries)
        return fresh

    def udp(self, message: bytes) -> Answer:
        """The answer to a datagram, no longer than its sender takes."""
        finished = self._finished.entries.get(message[2:])
        if finished is not None:
            rest = next(finished[0], None)
            if rest is not None:
                return message[:2] + rest
            self._finished.drop(message[2:])
            self._encoded.drop(finished[1])
        return self._compose(message, None)

    def tcp(self, message: bytes) -> Answer:
        """The answer to a message that came over TCP."""
        return self._compose(message, wire.MESSAGE_SIZE_MAX)

    def servfail(self, message: bytes) -> bytes | Verdict:
        """The answer to a message that nobody could answer."""
        query = wire.read_query(message)
        if not isinstance(query, Query):
            return Verdict.DROP
        return self._error(query, wire.SERVFAIL)

    def chased(self, chase: Chase, reply: bytes | None) -> bytes | Chase:
        """The answer once the recursors have spoken, or what to ask next; our records alone when they gave nothing of
        use."""
        query = chase.query
        qtype = wire.A if query.qtype == wire.SRV else query.qtype
        behind = aliases.links(reply, chase.name, qtype) if reply is not None else ()
        most = len(behind) if query.edns is not None else aliases.RECORDS_MAX_PLAIN
        if query.qtype == wire.SRV:
            answers = tuple(_led_on(record, chase.name, behind[:most]) for record in chase.answers)
            if chase.rest and reply is not None:
                return self._chase(query, chase.size_max, answers, chase.rest)
        else:
            answers = (*chase.answers, *behind)
            answers = answers if query.edns is not None else answers[:most]
        sections = wire.encode_sections(query.name, Reply(answers=answers), chase.size_max - wire.edns_size(query))
        self.counts[_outcome(sections)] += 1
        return self._assemble(query, sections)

    def _chase(self, query: Query, room: int, answers: tuple[Record, ...], names: tuple[bytes, ...]) -> Chase:
        qtype = wire.A if query.qtype == wire.SRV else query.qtype
        name, *rest = names
        return Chase(query, room, answers, aliases.question(query.ident, name, qtype), name, tuple(rest))

    def _compose(self, message: bytes, size_max: int | None) -> Answer:
        """size_max: None when the query's own limit counts and a finished answer may be kept."""
        query = wire.read_query(message)
        if query is None:
            self.counts["dropped"] += 1
            return Verdict.DROP
        if isinstance(query, wire.Fault):
            self.counts[OUTCOMES[query.rcode]] += 1
            return wire.assemble_fault(query)
        if query.edns is not None and query.edns.version:
            return self._error(query, wire.BADVERS)
        if query.qtype in (wire.AXFR, wire.IXFR):
            return self._error(query, wire.NOTIMP)
        if query.qclass not in (wire.CLASS_IN, wire.CLASS_ANY):
            return self._error(query, wire.REFUSED)
        if self._table is None and self._resolver.is_ours(query.name):
            return self._error(query, wire.SERVFAIL)
        known = self._known(query)
        if known is None:
            return self._not_ours(query)
        room = self._udp_size(query) if size_max is None else size_max
        if known.beyond and self._settings.recursors:
            self.counts["chased"] += 1
            answers = known.reply.answers if query.qtype != wire.SRV else self._shuffled(known.reply.answers)
            return self._chase(query, room, answers, known.beyond)
        key = query.name, query.qtype, room - wire.edns_size(query)
        rotations, sections = self._sections(key, known.reply)
        self.counts[_outcome(sections)] += 1
        if size_max is None:
            self._keep_finished(message, query, rotations, key)
        return self._assemble(query, sections)

    def _known(self, query: Query) -> Known | None:
        key = query.name, query.qtype
        known = self._replies.entries.get(key)
        if known is None and (known := self._resolver.resolve(*key)) is not None:
            self._replies.put(key, known)
        return known

    def _not_ours(self, query: Query) -> bytes | Verdict:
        if not self._settings.recursors:
            return self._error(query, wire.REFUSED)
        self.counts["forwarded"] += 1
        return Verdict.FORWARD

    def _udp_size(self, query: Query) -> int:
        if query.edns is None:
            return wire.UDP_SIZE_PLAIN
        return max(wire.UDP_SIZE_PLAIN, min(query.edns.payload_size, self._settings.udp_size_max))

    def _sections(self, key: EncodedKey, reply: Reply) -> tuple[tuple[Sections, ...], Sections]:
        """The reply in a few orders, encoded, and the one whose turn it is; new orders when all had their rounds."""
        held = self._encoded.entries.get(key)
        if held is not None and (sections := next(held[1], None)) is not None:
            return held[0], sections
        rotations = self._rotations(key, reply)
        size = sum(len(sections.body) + KEPT_OVERHEAD for sections in rotations)
        turns = _dealt(rotations)
        self._encoded.put(key, (rotations, turns), size)
        return rotations, next(turns)

    def _rotations(self, key: EncodedKey, reply: Reply) -> tuple[Sections, ...]:
        name, _, room = key
        if reply.linked:
            return (wire.encode_sections(name, reply, room),)
        answers = self._shuffled(reply.answers)
        count = len(answers)
        turns = min(count, ROTATIONS_MAX, max(2, ROTATED_RECORDS_MAX // count)) if count else 1
        starts = [turn * count // turns for turn in range(turns)]
        return tuple(
            wire.encode_sections(name, msgspec.structs.replace(reply, answers=answers[at:] + answers[:at]), room)
            for at in starts
        )

    def _shuffled(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        self._chance = _mixed(self._chance)
        chance = self._chance
        keys = [_mixed(chance ^ number) for number in range(len(records))]
        return tuple(records[number] for number in sorted(range(len(records)), key=keys.__getitem__))

    def _keep_finished(self, message: bytes, query: Query, rotations: tuple[Sections, ...], key: EncodedKey) -> None:
        rests = tuple(self._assemble(query, sections)[2:] for sections in rotations)
        size = sum(len(rest) + KEPT_OVERHEAD for rest in rests)
        self._finished.put(message[2:], (_dealt(rests), key), size)

    def _error(self, query: Query, rcode: int) -> bytes:
        self.counts[OUTCOMES[rcode]] += 1
        return self._assemble(query, Sections(rcode, False, False, (0, 0, 0), b""))

    def _assemble(self, query: Query, sections: Sections) -> bytes:
        recursion = bool(self._settings.recursors)
        return wire.assemble(query, sections, recursion=recursion, mark_truncated=self._settings.mark_truncated)


def _dealt(items: tuple[T, ...]) -> Iterator[T]:
    """`items` in turn, `ROUNDS` times; a single one for ever."""
    return repeat(items[0]) if len(items) == 1 else chain.from_iterable(repeat(items, ROUNDS))


OUTCOMES: Final = {
    wire.NOERROR: "noerror",
    wire.FORMERR: "formerr",
    wire.SERVFAIL: "servfail",
    wire.NXDOMAIN: "nxdomain",
    wire.NOTIMP: "notimp",
    wire.REFUSED: "refused",
    wire.BADVERS: "badvers",
}
"""What kinds of answers are counted as, by response code."""


def _outcome(sections: Sections) -> str:
    if sections.truncated:
        return "truncated"
    empty = sections.rcode == wire.NOERROR and not sections.counts[0]
    return "nodata" if empty else OUTCOMES[sections.rcode]


_MASK = (1 << 64) - 1


def _mixed(number: int) -> int:
    """The next of a sequence of 64 well mixed bits (splitmix64)."""
    number = (number + 0x9E3779B97F4A7C15) & _MASK
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & _MASK
    return number ^ (number >> 31)


def _led_on(record: Record, name: bytes, behind: tuple[Record, ...]) -> Record:
    """The same, with the addresses behind the name beside it where it leads there."""
    leads = record.target == name and not record.extras
    leads = leads or bool(record.extras and record.extras[-1].target == name)
    return msgspec.structs.replace(record, extras=(*record.extras, *behind)) if leads else record
