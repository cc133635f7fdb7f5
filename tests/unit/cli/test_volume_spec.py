"""Volume specifications."""

import pytest

from lepa.agent.config_file import parse
from lepa.cli.volume_spec import EXAMPLES, REPEATED, body, literal, size_bytes
from lepa.model.errors import LepaError


@pytest.mark.parametrize(
    ("text", "size"),
    [("10GiB", 10 * 2**30), ("50mb", 50_000_000), ("1.5KiB", 1536), ("42", 42), (7, 7), ("2 TB", 2 * 10**12)],
)
def test_sizes(text: object, size: int) -> None:
    assert size_bytes(text, "capacity_min") == size


def test_a_size_that_is_none_is_told() -> None:
    with pytest.raises(LepaError, match='capacity_min must be a size such as "10GiB"'):
        size_bytes("much", "capacity_min")


def test_the_examples_are_specifications() -> None:
    kind, host = body(parse(EXAMPLES["host"], "x", REPEATED))
    assert (kind, host["Name"], host["Parameters"]) == ("host", "data", {"mode": "0755"})
    assert host["RequestedCapabilities"] == [{"AccessMode": "single-node-writer", "AttachmentMode": "file-system"}]
    kind, csi = body(parse(EXAMPLES["csi"], "x", REPEATED))
    assert (kind, csi["ID"], csi["RequestedCapacityMin"]) == ("csi", "data", 10 * 2**30)
    assert csi["MountOptions"] == {"FSType": "ext4", "MountFlags": ["noatime"]}


def test_constraints_topologies_and_an_id_from_the_command_line() -> None:
    text = """
    type = "host"
    name = "x"
    constraint {
      attribute = "${attr.kernel.name}"
      value = "linux"
    }
    """
    assert body(parse(literal(text), "x", REPEATED), "the-id")[1]["Constraints"] == [
        {"Operand": "=", "LTarget": "${attr.kernel.name}", "RTarget": "linux"}
    ]
    text = 'id = "v"\ntopology_request {\n required {\n topology {\n segments {\n zone = "a"\n}\n}\n }\n}\n'
    kind, found = body(parse(text, "x", REPEATED), "the-id")
    assert (kind, found["ID"]) == ("csi", "the-id")
    assert found["RequestedTopologies"] == {"Required": [{"Segments": {"zone": "a"}}]}


def test_capabilities_may_be_several() -> None:
    text = 'id = "v"\n' + 'capability {\n access_mode = "a"\n}\n' + 'capability {\n access_mode = "b"\n}\n'
    assert body(parse(text, "x", REPEATED))[1]["RequestedCapabilities"] == [{"AccessMode": "a"}, {"AccessMode": "b"}]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('type = "nfs"', 'type must be "csi" or "host"'),
        ('type = "host"\nhost_pth = "/x"', '"host_pth" is not known in a volume of type host'),
        ('name = "x"', "a CSI volume needs an id"),
        ('id = "x"\nparameters = "y"', "parameters must be a block"),
    ],
)
def test_what_cannot_be_meant_is_told(text: str, told: str) -> None:
    with pytest.raises(LepaError, match=told):
        body(parse(text, "x", REPEATED))
