from ipaddress import ip_address

import dns.edns
import dns.flags
import dns.message
import dns.rdatatype
import pytest

from lepa.dns import message as wire

WEB = wire.wire_name("web.service.consul")


def query(name: str = "web.service.consul", rtype: str = "SRV", **options: object) -> dns.message.QueryMessage:
    return dns.message.make_query(name, rtype, **options)


def read(message: dns.message.Message) -> wire.Query:
    found = wire.read_query(message.to_wire())
    assert isinstance(found, wire.Query)
    return found


def srv(number: int, size: int = 1) -> wire.Record:
    target = wire.wire_name(f"0a0000{number:02x}.addr.dc1.consul")
    extra = wire.address_record(target, 0, ip_address(f"10.0.0.{number}"))
    return wire.srv_record(WEB, 0, 1, 8000 + number, target, (extra,) * size)


def test_a_query_is_read_as_the_client_meant_it() -> None:
    asked = query("Web.Service.CONSUL", use_edns=0, payload=1400, want_dnssec=True)
    found = read(asked)
    assert found.name == WEB
    assert found.question[: len(WEB)] == b"\x03Web\x07Service\x06CONSUL\x00"
    assert (found.qtype, found.qclass) == (wire.SRV, wire.CLASS_IN)
    assert found.edns == wire.Edns(1400, 0, True)


def test_a_query_without_edns_has_none() -> None:
    assert read(query(use_edns=False)).edns is None


def test_unknown_edns_options_are_passed_over() -> None:
    cookie = dns.edns.GenericOption(10, b"12345678")
    subnet = dns.edns.ECSOption("10.1.2.0", 24)
    found = read(query(use_edns=0, options=[cookie, subnet]))
    assert found.edns is not None
    assert found.edns.client_subnet == subnet.to_wire()


def test_a_response_is_ignored() -> None:
    assert wire.read_query(dns.message.make_response(query()).to_wire()) is None


def test_less_than_a_header_is_ignored() -> None:
    assert wire.read_query(b"") is None
    assert wire.read_query(b"\0" * 11) is None


def test_another_operation_is_not_implemented() -> None:
    asked = query()
    asked.set_opcode(dns.opcode.STATUS)
    assert wire.read_query(asked.to_wire()) == wire.Fault(asked.to_wire()[:2], asked.flags, wire.NOTIMP)


def test_a_message_without_question_is_refused() -> None:
    assert wire.read_query(b"\x01\x02\x01\x00" + b"\0" * 8) == wire.Fault(b"\x01\x02", 0x0100, wire.REFUSED)


def test_of_two_questions_the_first_counts() -> None:
    body = query(use_edns=False).to_wire()
    twice = body[:4] + b"\0\x02" + body[6:] + b"\x02db\xc0\x10\0\x01\0\x01"
    found = wire.read_query(twice)
    assert isinstance(found, wire.Query)
    assert found.name == WEB


@pytest.mark.parametrize(
    "question",
    [
        b"\x03we",
        b"\xc0\x0c\0\x01\0\x01",
        b"\x41" + b"a" * 65 + b"\0\0\x01\0\x01",
        b"\x03web\0\0\x01",
        (b"\x3f" + b"a" * 63) * 4 + b"\0\0\x01\0\x01",
    ],
    ids=["cut off", "pointer to itself", "unknown label kind", "no class", "name too long"],
)
def test_a_broken_question_is_a_format_error(question: bytes) -> None:
    assert wire.read_query(b"ID\x01\0\0\x01\0\0\0\0\0\0" + question) == wire.Fault(b"ID", 0x0100, wire.FORMERR)


def test_two_opt_records_are_a_format_error() -> None:
    body = query(use_edns=0).to_wire()
    assert isinstance(wire.read_query(body[:11] + b"\x02" + body[12:] + body[-11:]), wire.Fault)


def test_a_cut_off_edns_option_is_a_format_error() -> None:
    body = query(use_edns=0).to_wire()
    assert isinstance(wire.read_query(body[:-2] + b"\0\x05\0\x08\0\x09\x01"), wire.Fault)


def test_names_that_cannot_be_written_are_refused() -> None:
    for text in ("a..b", "a" * 64, ".".join(["a" * 60] * 5), ".a"):
        with pytest.raises(ValueError, match="octets"):
            wire.wire_name(text)
    assert wire.wire_name("") == wire.wire_name(".") == b"\0"


def test_a_name_is_within_a_domain_only_at_a_label() -> None:
    consul = wire.wire_name("consul")
    assert wire.is_within(WEB, consul)
    assert wire.is_within(consul, consul)
    assert not wire.is_within(wire.wire_name("myconsul"), consul)
    assert not wire.is_within(b"\x0aweb\x06consul\x00", consul)


def test_an_answer_reads_back_with_its_extras() -> None:
    asked = query(use_edns=0)
    sections = wire.encode_sections(WEB, wire.Reply(answers=(srv(1), srv(2))), 512)
    answer = dns.message.from_wire(wire.assemble(read(asked), sections))
    assert asked.is_response(answer)
    assert answer.flags & dns.flags.AA
    assert not answer.flags & dns.flags.RA
    assert [str(row) for row in answer.answer[0]] == [
        "1 1 8001 0a000001.addr.dc1.consul.",
        "1 1 8002 0a000002.addr.dc1.consul.",
    ]
    assert {str(rrset.name): str(rrset[0]) for rrset in answer.additional} == {
        "0a000001.addr.dc1.consul.": "10.0.0.1",
        "0a000002.addr.dc1.consul.": "10.0.0.2",
    }


def test_the_question_comes_back_in_the_case_it_was_asked() -> None:
    asked = query("wEb.SeRvIcE.cOnSuL")
    sections = wire.encode_sections(WEB, wire.Reply(answers=(srv(1),)), 512)
    answer = wire.assemble(read(asked), sections)
    assert b"\x03wEb\x07SeRvIcE\x06cOnSuL\x00" in answer
    assert dns.message.from_wire(answer).answer[0].name.to_text() == "wEb.SeRvIcE.cOnSuL."


def test_srv_targets_are_not_compressed_but_owners_point_to_them() -> None:
    sections = wire.encode_sections(WEB, wire.Reply(answers=(srv(1),)), 512)
    assert sections.body.count(b"\x0a0a000001"[1:]) == 1
    assert sections.body.endswith(b"\0\x01\0\x01\0\0\0\0\0\x04\x0a\0\0\x01")


def test_each_answer_brings_its_extra_even_when_equal() -> None:
    same = srv(1)
    sections = wire.encode_sections(WEB, wire.Reply(answers=(same, srv(2), same)), 512)
    assert sections.counts == (3, 0, 3)


def test_without_room_different_extras_go_before_repeated_ones() -> None:
    whole = wire.encode_sections(WEB, wire.Reply(answers=(srv(1, size=2), srv(2))), 512)
    room = 12 + len(WEB) + 4 + len(whole.body) - 1
    sections = wire.encode_sections(WEB, wire.Reply(answers=(srv(1, size=2), srv(2))), room)
    assert sections.counts == (2, 0, 2)
    assert not sections.truncated
    assert sections.body.endswith(b"\x0a\0\0\x02")


def test_answers_that_do_not_fit_truncate_the_message() -> None:
    asked = query(use_edns=False)
    sections = wire.encode_sections(WEB, wire.Reply(answers=tuple(srv(number) for number in range(1, 40))), 512)
    message = wire.assemble(read(asked), sections)
    assert sections.truncated
    assert 0 < sections.counts[0] < 39
    assert len(message) <= 512
    assert dns.message.from_wire(message).flags & dns.flags.TC
    assert not wire.assemble(read(asked), sections, mark_truncated=False)[2] & 0x02


def test_names_beyond_the_reach_of_pointers_are_written_out() -> None:
    records = tuple(srv(number % 200 + 1) for number in range(900))
    sections = wire.encode_sections(WEB, wire.Reply(answers=records), 65_535)
    answer = dns.message.from_wire(wire.assemble(read(query(use_edns=False)), sections))
    assert len(answer.additional) == 200


def test_a_client_subnet_comes_back_with_scope_nought() -> None:
    asked = query(use_edns=0, options=[dns.edns.ECSOption("10.1.2.0", 24, 0)])
    answer = dns.message.from_wire(wire.assemble(read(asked), wire.encode_sections(WEB, wire.Reply(), 512)))
    assert answer.options == (dns.edns.ECSOption("10.1.2.0", 24, 0),)


def test_a_code_above_fifteen_spills_into_edns() -> None:
    sections = wire.Sections(wire.BADVERS, False, False, (0, 0, 0), b"")
    answer = dns.message.from_wire(wire.assemble(read(query(use_edns=0)), sections))
    assert answer.rcode() == dns.rcode.BADVERS


def test_a_fault_is_refused_with_a_header_alone() -> None:
    answer = dns.message.from_wire(wire.assemble_fault(wire.Fault(b"\x12\x34", 0x0100, wire.FORMERR)))
    assert (answer.id, answer.rcode(), answer.question) == (0x1234, dns.rcode.FORMERR, [])


def test_long_texts_become_several_strings() -> None:
    record = wire.txt_record(WEB, 5, "x" * 300)
    answer = dns.message.from_wire(
        wire.assemble(read(query(rtype="TXT")), wire.encode_sections(WEB, wire.Reply(answers=(record,)), 512))
    )
    assert [len(part) for part in answer.answer[0][0].strings] == [255, 45]
    assert answer.answer[0].ttl == 5


def test_weights_and_ports_stay_in_their_fields() -> None:
    record = wire.srv_record(WEB, 0, 70_000, -1, wire.wire_name("a"))
    assert record.body[10:16] == b"\0\x01\xff\xff\0\0"
