"""The messages of etcd's API, against their bytes on the wire."""

import pytest

from lepa.store import etcd_messages as m


def test_messages_have_the_bytes_of_etcds_protocol() -> None:
    put = m.RequestOp(request_put=m.PutRequest(key=b"k", value=b"v", lease=5))
    compare = m.Compare(target=m.CREATED, key=b"k", create_revision=0)
    raw = m.TxnRequest(compare=[compare], success=[put]).SerializeToString()
    assert raw == b"\x0a\x07\x10\x01\x1a\x01k\x28\x00" + b"\x12\x0a\x12\x08\x0a\x01k\x12\x01v\x18\x05"


def test_fields_that_are_not_known_are_skipped() -> None:
    answer = m.PutResponse.FromString(b"\x0a\x02\x18\x07" + b"\xa2\x06\x01x")
    assert answer.header.revision == 7


def test_of_several_fields_one_is_set() -> None:
    operation = m.RequestOp(request_range=m.RangeRequest())
    assert operation.WhichOneof("one") == "request_range"
    operation.request_put.key = b"k"
    assert operation.WhichOneof("one") == "request_put"


def test_there_are_no_other_messages() -> None:
    with pytest.raises(AttributeError):
        _ = m.NoSuchMessage
