"""The messages of etcd's API v3 that we speak, as protobuf classes made from one table.

Fields and numbers are those of etcd's `rpc.proto` and `kv.proto` (3.4 and later), only those that are used here; the
others are skipped when they come. The classes are made at import, so no generated code has to be kept in step with the
version of protobuf. Enums are declared as int32, which is the same on the wire; their values stand below.
"""

from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE: Final = "lepa.etcd"

EQUAL, NOT_EQUAL = 0, 3
"""Compare.result"""
VERSION, CREATED, MODIFIED = 0, 1, 2
"""Compare.target"""
DESCENDING: Final = 2
"""RangeRequest.sort_order"""
BY_MODIFIED: Final = 3
"""RangeRequest.sort_target"""
DELETED: Final = 1
"""Event.type"""

_FIELDS: Final[dict[str, str]] = {
    "ResponseHeader": "cluster_id:uint64=1 member_id:uint64=2 revision:int64=3 raft_term:uint64=4",
    "KeyValue": "key:bytes=1 create_revision:int64=2 mod_revision:int64=3 version:int64=4 value:bytes=5 lease:int64=6",
    "RangeRequest": (
        "key:bytes=1 range_end:bytes=2 limit:int64=3 revision:int64=4 sort_order:int32=5 sort_target:int32=6 "
        "serializable:bool=7 keys_only:bool=8 count_only:bool=9"
    ),
    "RangeResponse": "header:ResponseHeader=1 kvs:KeyValue*=2 more:bool=3 count:int64=4",
    "PutRequest": "key:bytes=1 value:bytes=2 lease:int64=3",
    "PutResponse": "header:ResponseHeader=1",
    "DeleteRangeRequest": "key:bytes=1 range_end:bytes=2",
    "DeleteRangeResponse": "header:ResponseHeader=1 deleted:int64=2",
    "RequestOp": (
        "request_range:RangeRequest?1=1 request_put:PutRequest?1=2 request_delete_range:DeleteRangeRequest?1=3 "
        "request_txn:TxnRequest?1=4"
    ),
    "ResponseOp": (
        "response_range:RangeResponse?1=1 response_put:PutResponse?1=2 response_delete_range:DeleteRangeResponse?1=3 "
        "response_txn:TxnResponse?1=4"
    ),
    "Compare": (
        "result:int32=1 target:int32=2 key:bytes=3 version:int64?1=4 create_revision:int64?1=5 "
        "mod_revision:int64?1=6 value:bytes?1=7"
    ),
    "TxnRequest": "compare:Compare*=1 success:RequestOp*=2 failure:RequestOp*=3",
    "TxnResponse": "header:ResponseHeader=1 succeeded:bool=2 responses:ResponseOp*=3",
    "CompactionRequest": "revision:int64=1 physical:bool=2",
    "CompactionResponse": "header:ResponseHeader=1",
    "WatchRequest": "create_request:WatchCreateRequest?1=1 progress_request:WatchProgressRequest?1=3",
    "WatchCreateRequest": "key:bytes=1 range_end:bytes=2 start_revision:int64=3 fragment:bool=8",
    "WatchProgressRequest": "",
    "WatchResponse": (
        "header:ResponseHeader=1 watch_id:int64=2 created:bool=3 canceled:bool=4 compact_revision:int64=5 "
        "cancel_reason:string=6 fragment:bool=7 events:Event*=11"
    ),
    "Event": "type:int32=1 kv:KeyValue=2",
    "LeaseGrantRequest": "TTL:int64=1 ID:int64=2",
    "LeaseGrantResponse": "header:ResponseHeader=1 ID:int64=2 TTL:int64=3 error:string=4",
    "LeaseRevokeRequest": "ID:int64=1",
    "LeaseRevokeResponse": "header:ResponseHeader=1",
    "LeaseKeepAliveRequest": "ID:int64=1",
    "LeaseKeepAliveResponse": "header:ResponseHeader=1 ID:int64=2 TTL:int64=3",
    "Member": "ID:uint64=1 name:string=2 peerURLs:string*=3 clientURLs:string*=4 isLearner:bool=5",
    "MemberAddRequest": "peerURLs:string*=1 isLearner:bool=2",
    "MemberAddResponse": "header:ResponseHeader=1 member:Member=2 members:Member*=3",
    "MemberRemoveRequest": "ID:uint64=1",
    "MemberUpdateRequest": "ID:uint64=1 peerURLs:string*=2",
    "MemberPromoteRequest": "ID:uint64=1",
    "MemberListRequest": "",
    "MembersResponse": "header:ResponseHeader=1 members:Member*=2",
    "MoveLeaderRequest": "targetID:uint64=1",
    "MoveLeaderResponse": "header:ResponseHeader=1",
    "StatusRequest": "",
    "StatusResponse": (
        "header:ResponseHeader=1 version:string=2 dbSize:int64=3 leader:uint64=4 raftIndex:uint64=5 raftTerm:uint64=6 "
        "raftAppliedIndex:uint64=7 errors:string*=8 dbSizeInUse:int64=9 isLearner:bool=10"
    ),
}
"""Message -> fields as `name:type=number`; `*` repeats, `?1` is one of several of which one is set."""


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="lepa/etcd.proto", package=PACKAGE, syntax="proto3")
    for name, fields in _FIELDS.items():
        message = file.message_type.add(name=name)
        for text in fields.split():
            _add_field(message, text)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, text: str) -> None:
    name, _, rest = text.partition(":")
    kind, _, number = rest.partition("=")
    field = message.field.add(name=name, number=int(number), label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL)
    if kind.endswith("*"):
        kind, field.label = kind[:-1], descriptor_pb2.FieldDescriptorProto.LABEL_REPEATED
    if kind.endswith("?1"):
        kind, field.oneof_index = kind[:-2], 0
        if not message.oneof_decl:
            message.oneof_decl.add(name="one")
    if kind in _FIELDS:
        field.type, field.type_name = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE, f".{PACKAGE}.{kind}"
    else:
        field.type = descriptor_pb2.FieldDescriptorProto.Type.Value(f"TYPE_{kind.upper()}")


def _classes() -> dict[str, Any]:
    pool = descriptor_pool.DescriptorPool()
    pool.Add(_file())
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{name}")) for name in _FIELDS}


_CLASSES: Final = _classes()


def __getattr__(name: str) -> Any:
    """The class of a message, by its name."""
    try:
        return _CLASSES[name]
    except KeyError:
        raise AttributeError(name) from None
