"""The computed class of a node."""

from msgspec.structs import replace

from lepa.model.node import DriverInfo, Node
from lepa.model.node_class import computed_class, escapes_class

NODE = Node(
    id="a",
    name="one",
    datacenter="dc1",
    attributes={"kernel.name": "linux", "unique.hostname": "one"},
    meta={"rack": "r1"},
    drivers={"exec": DriverInfo(detected=True, healthy=True), "docker": DriverInfo(detected=False)},
)


def test_nodes_that_differ_in_unique_things_only_are_of_one_class() -> None:
    twin = replace(
        NODE,
        id="b",
        name="two",
        attributes={"unique.hostname": "two", "kernel.name": "linux"},
        meta={"rack": "r1", "unique.serial": "7"},
        status="ready",
        modify_index=9,
    )
    assert computed_class(twin) == computed_class(NODE)
    assert computed_class(NODE).startswith("v1:")


def test_whatever_a_constraint_may_look_at_makes_another_class() -> None:
    others = (
        replace(NODE, datacenter="dc2"),
        replace(NODE, node_class="gpu"),
        replace(NODE, node_pool="batch"),
        replace(NODE, meta={"rack": "r2"}),
        replace(NODE, attributes={"kernel.name": "darwin"}),
        replace(NODE, drivers={}),
    )
    assert len({computed_class(node) for node in (NODE, *others)}) == 7


def test_undetected_drivers_make_no_difference() -> None:
    assert computed_class(replace(NODE, drivers={"exec": NODE.drivers["exec"]})) == computed_class(NODE)


def test_targets_that_are_unique_to_a_node_escape_its_class() -> None:
    unique = ("${node.unique.id}", "${attr.unique.hostname}", "${meta.unique.serial}")
    assert all(escapes_class(target) for target in unique)
    assert not any(escapes_class(target) for target in ("${node.class}", "${attr.kernel.name}", "literal", ""))
