"""Blocking queries of the catalog over any history: no index falls, and nobody sleeps through a change."""

import contextlib
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.consul import views
from lepa.consul.indexes import View, advance
from lepa.consul.kv_views import Owner, new_session, txn_operations
from lepa.consul.registrations import AgentNode, check_of, outside_of, service_of
from lepa.consul.views import Asked
from lepa.model.errors import LepaError
from lepa.model.wire import to_json

NAMES = ("web", "db", "api")

instances = st.builds(
    Instance,
    id=st.sampled_from(["a", "b", "c", "d"]),
    service=st.sampled_from(NAMES),
    node_name=st.sampled_from(["n1", "n2"]),
    status=st.sampled_from(["passing", "critical"]),
)
nodes = st.lists(st.builds(Node, name=st.sampled_from(["n1", "n2"]), address=st.sampled_from(["10.0.0.1", "10.0.0.2"])))
histories = st.lists(
    st.tuples(st.integers(1, 20), st.lists(instances, max_size=5, unique_by=lambda each: each.id), nodes), max_size=12
)


def shown(view: View, name: str) -> object:
    """What a client can tell apart: entries without their own indexes."""
    entries = views.health_service(view, Asked(name=name))
    for entry in entries:
        for part in (entry["Node"], entry["Service"], *entry["Checks"]):
            part.pop("CreateIndex"), part.pop("ModifyIndex")
    return entries


@given(histories)
def test_no_index_falls_and_every_change_raises_one(history: list[tuple[int, list[Instance], list[Node]]]) -> None:
    view = View()
    for number, (index, rows, machines) in enumerate(history):
        before = view
        view = advance(view, ServiceTable.build(rows, machines, index, view.table))
        assert view.changed >= before.changed
        assert view.nodes >= before.nodes
        for name in NAMES:
            old, new = before.index_of("default", name), view.index_of("default", name)
            assert old <= new <= view.changed
            if number and shown(before, name) != shown(view, name):
                assert new > old


KEYS = [
    *("Name", "ID", "Tags", "Port", "Address", "Meta", "Weights", "Check", "Checks", "HTTP", "TCP", "GRPC", "TTL"),
    *("Interval", "Timeout", "Header", "Status", "CheckID", "Notes", "TLSSkipVerify", "FailuresBeforeCritical"),
    *("Node", "Service", "Datacenter", "Behavior", "LockDelay", "NodeChecks", "ServiceChecks", "KV", "Verb", "Key"),
    *("Value", "Flags", "Index", "Session", "DeregisterCriticalServiceAfter"),
]

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.sampled_from(["", "web", "10s", "http://a/", "http://[", "a:1", "::", "set", "passing", "\n", "é" * 300]),
)
bodies = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=5)
    ),
    max_leaves=12,
)
NODE_OF_AGENT = AgentNode("n1", "1", "10.0.0.1", "dc1")


@settings(max_examples=1_000)
@given(bodies)
def test_whatever_is_sent_is_understood_or_refused(body: Any) -> None:
    """No body is our fault: each reader gives a value or says what is wrong."""
    for read in (
        lambda: service_of(body, NODE_OF_AGENT),
        lambda: outside_of(body, "dc1"),
        lambda: check_of(body, "c"),
        lambda: new_session(body, Owner("n1", "1")),
        lambda: txn_operations(body),
    ):
        with contextlib.suppress(LepaError):
            to_json(read())
