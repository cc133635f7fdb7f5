"""What of a registered CSI volume may change: lepa.model.volume_change."""

from typing import Any

import pytest
from msgspec.structs import replace

from lepa.model.errors import LepaError
from lepa.model.job import CSIMountOptions
from lepa.model.volume import CSIClaim, CSITopology, CSITopologyRequest, CSIVolume, CSIVolumeCapability
from lepa.model.volume_change import changed, must_expand

GIB = 1 << 30
WRITER = CSIVolumeCapability("file-system", "single-node-writer")
READER = CSIVolumeCapability("file-system", "multi-node-reader-only")
ZONE = CSITopologyRequest(required=(CSITopology(segments={"zone": "a"}),))
PRESENT = CSIVolume(
    id="v",
    name="data",
    external_id="vol-1",
    plugin_id="p",
    capacity=GIB,
    requested_capacity_min=GIB,
    requested_capabilities=(WRITER,),
    context={"from": "storage"},
    topologies=ZONE.required,
    requested_topologies=ZONE,
    parameters={"kind": "ssd"},
    mount_options=CSIMountOptions(fs_type="ext4"),
)
HELD = [CSIClaim(alloc_id="a", access_mode="single-node-writer", attachment_mode="file-system")]


def spec(**fields: Any) -> CSIVolume:
    """A file that names what it must, and `fields`."""
    given = CSIVolume(id="v", plugin_id="p", requested_capabilities=(WRITER,), mount_options=PRESENT.mount_options)
    return replace(given, **fields)


def test_what_a_file_leaves_empty_stays() -> None:
    assert changed(PRESENT, spec(), HELD) == PRESENT


def test_capabilities_secrets_context_and_options_change() -> None:
    fields = {
        "requested_capabilities": (WRITER, READER),
        "secrets": {"key": "k"},
        "context": {"x": "y"},
        "mount_options": None,
        "requested_capacity_max": 2 * GIB,
    }
    assert changed(PRESENT, spec(**fields), []) == replace(PRESENT, requested_capacity_min=0, **fields)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"name": "other"}, "volume name cannot be updated"),
        ({"external_id": "vol-2"}, "volume external ID cannot be updated"),
        ({"plugin_id": "q"}, "volume plugin ID cannot be updated"),
        ({"clone_id": "c"}, "volume clone ID cannot be updated"),
        ({"snapshot_id": "s"}, "volume snapshot ID cannot be updated"),
        ({"parameters": {"kind": "hdd"}}, "volume parameters cannot be updated"),
        ({"requested_topologies": CSITopologyRequest()}, "not compatible with existing topology"),
        ({"requested_capabilities": (READER,)}, "not compatible with existing capability in use"),
        ({"mount_options": None}, "can not update mount options while volume is in use"),
        ({"requested_capacity_max": GIB - 1}, "volumes do not shrink"),
    ],
)
def test_the_rest_is_refused_with_its_reason(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(LepaError, match=f"^unable to update volume: .*{why}") as caught:
        changed(PRESENT, spec(**fields), HELD)
    assert caught.value.facts["http_status"] == 500


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(LepaError, match="name cannot be updated; volume clone ID cannot be updated"):
        changed(PRESENT, spec(name="other", clone_id="c"), [])


@pytest.mark.parametrize(
    ("low", "high", "expands"),
    [
        (2 * GIB, 0, True),
        (GIB, 0, False),
        (0, 0, False),
        (GIB // 2, 0, False),
        (GIB, 3 * GIB, False),
        (0, 3 * GIB, False),
    ],
)
def test_only_more_than_there_is_makes_it_larger(low: int, high: int, expands: bool) -> None:
    wanted = spec(requested_capacity_min=low, requested_capacity_max=high)
    assert must_expand(PRESENT, changed(PRESENT, wanted, [])) is expands


def test_the_same_request_again_asks_for_nothing() -> None:
    """Storage that tells no capacity is not asked each time."""
    unknown = replace(PRESENT, capacity=0)
    assert not must_expand(unknown, changed(unknown, spec(requested_capacity_min=GIB), []))
