"""Which volumes an allocation uses, and whether two may use one."""

from typing import Any

import pytest
from tests.builders import make_group

from lepa.model.job import VolumeRequest
from lepa.model.volume import CSIVolume, CSIVolumeCapability
from lepa.model.volume_use import Holder, Use, claim_refusal, index_text, source_of, uses

WRITER = CSIVolumeCapability("file-system", "single-node-writer")
SHARED = CSIVolumeCapability("file-system", "multi-node-multi-writer")


def use(**fields: Any) -> Use:
    given = {"type": "csi", "source": "v", "access_mode": "single-node-writer", "attachment_mode": "file-system"}
    return Use("d", "v", VolumeRequest(**(given | fields)))


def test_each_allocation_of_per_alloc_has_its_own() -> None:
    assert source_of(VolumeRequest(source="data", per_alloc=True), "job.group[2]") == "data[2]"
    assert source_of(VolumeRequest(source="data"), "job.group[2]") == "data"
    assert index_text("job.group") == ""


def test_only_volumes_of_the_kind_are_used() -> None:
    group = make_group(
        volumes={"a": VolumeRequest(type="host", source="x"), "b": VolumeRequest(type="csi", source="y")}
    )
    assert [found.source for found in uses(group, "j.g[0]", "csi")] == ["y"]


@pytest.mark.parametrize(
    ("fields", "writes"),
    [({}, True), ({"read_only": True}, False), ({"access_mode": "multi-node-reader-only"}, False)],
)
def test_a_reader_does_not_write(fields: dict[str, Any], writes: bool) -> None:
    assert use(**fields).writes is writes


@pytest.mark.parametrize(
    ("wanted", "holders", "node", "told"),
    [
        (use(), [], "n1", ""),
        (use(), [Holder("a", "n1", True, "single-node-writer")], "n1", "exhausted its available writer claims"),
        (use(read_only=True), [Holder("a", "n1", True, "single-node-writer")], "n1", ""),
        (use(read_only=True), [Holder("a", "n1", True, "single-node-writer")], "n2", "in use on another node"),
        (use(), [Holder("a", "n1", False, "multi-node-multi-writer")], "n1", "in use with access mode multi-node"),
        (use(access_mode="multi-node-multi-writer"), [Holder("a", "n1", True, "multi-node-multi-writer")], "n2", ""),
        (use(access_mode="multi-node-reader-only"), [], "n1", "does not offer access mode multi-node-reader-only"),
    ],
)
def test_who_may_have_a_volume_beside_others(wanted: Use, holders: list[Holder], node: str, told: str) -> None:
    volume = CSIVolume(id="v", requested_capabilities=(WRITER, SHARED))
    refusal = claim_refusal(volume, wanted, holders, node)
    assert (told in refusal) if told else refusal == ""
