"""lepa.serving.srv_query, with dnspython as the other side."""

import dns.flags
import dns.message
import dns.rrset
import pytest

from lepa.serving.srv_query import AAAA, RCODE_NO_SUCH_NAME, SRV, A, SrvRecord, decode_answer, encode_question

NAME = "clipper-x-mgmt.service.consul."


def answer(*records: str, additional: tuple[str, ...] = (), rcode: int = 0) -> bytes:
    message = dns.message.make_response(dns.message.from_wire(encode_question(7, NAME, SRV)))
    message.set_rcode(dns.rcode.Rcode(rcode))
    message.answer = [dns.rrset.from_text(NAME, 30 - n, "IN", "SRV", record) for n, record in enumerate(records)]
    for record in additional:
        owner, kind, address = record.split()
        message.additional.append(dns.rrset.from_text(owner, 1, "IN", kind, address))
    return message.to_wire()


def test_questions_are_what_dnspython_reads() -> None:
    for kind, name in ((A, "A"), (AAAA, "AAAA"), (SRV, "SRV")):
        question = dns.message.from_wire(encode_question(7, "a.b.consul", kind))
        assert question.id == 7
        assert question.question[0].to_text() == f"a.b.consul. IN {name}"


@pytest.mark.parametrize("name", ["", "a..b", "x" * 64, ".".join(["x" * 60] * 5)])
def test_what_is_not_a_name_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not a DNS name"):
        encode_question(1, name, SRV)


def test_records_hosts_and_the_lowest_ttl_are_read_from_a_compressed_answer() -> None:
    found = decode_answer(
        answer(
            "1 5 8080 n1.node.consul.",
            "2 1 8081 n2.node.consul.",
            additional=("n1.node.consul. A 10.0.0.1", "N1.node.consul. A 10.0.0.1", "n2.node.consul. AAAA fd00::2"),
        ),
        7,
    )
    assert found.services == [SrvRecord(1, 5, 8080, "n1.node.consul"), SrvRecord(2, 1, 8081, "n2.node.consul")]
    assert found.hosts == {"n1.node.consul": ["10.0.0.1"], "n2.node.consul": ["fd00:0:0:0:0:0:0:2"]}
    assert found.ttl_s == 29


def test_no_such_name_is_an_answer() -> None:
    found = decode_answer(answer(rcode=RCODE_NO_SUCH_NAME), 7)
    assert (found.rcode, found.services) == (RCODE_NO_SUCH_NAME, [])


def test_truncation_is_seen() -> None:
    message = dns.message.from_wire(answer())
    message.flags |= dns.flags.TC
    assert decode_answer(message.to_wire(), 7).truncated


def test_answers_to_other_questions_loops_and_cut_messages_are_refused() -> None:
    whole = answer("1 5 8080 n1.node.consul.")
    with pytest.raises(ValueError, match="another question"):
        decode_answer(whole, 8)
    for length in range(len(whole)):
        with pytest.raises(ValueError, match=r"cut short|not a DNS answer"):
            decode_answer(whole[:length], 7)
    loop = whole[:12] + b"\xc0\x0c" + whole[14:]
    with pytest.raises(ValueError, match="does not go back"):
        decode_answer(loop, 7)
