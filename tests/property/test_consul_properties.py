"""Blocking queries of the catalog over any history: no index falls, and nobody sleeps through a change."""

from hypothesis import given
from hypothesis import strategies as st

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.consul import views
from lepa.consul.indexes import View, advance
from lepa.consul.views import Asked

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
