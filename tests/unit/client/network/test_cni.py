"""Lists of CNI plugins, what plugins are told, and what they answer."""

import json

import pytest

from lepa.client.network import cni, conflists
from lepa.model.errors import LepaError
from lepa.model.resources import AllocatedPortMapping

RESULT = {
    "cniVersion": "0.4.0",
    "interfaces": [{"name": "lepa"}, {"name": "veth1"}, {"name": "eth0", "sandbox": "/ns"}],
    "ips": [
        {"version": "4", "interface": 0, "address": "10.9.9.9/24"},
        {"version": "4", "interface": 2, "address": "172.26.64.5/20", "gateway": "172.26.64.1"},
        {"version": "6", "interface": 2, "address": "fd00::5/64"},
    ],
    "dns": {"nameservers": ["10.0.0.53"], "search": ["in.test"]},
}


def test_a_single_plugin_is_a_list_of_one() -> None:
    found = cni.parse_list('{"name": "n", "type": "macvlan", "cniVersion": "1.0.0"}', "n.conf")
    assert (found.name, found.version, [plugin["type"] for plugin in found.plugins]) == ("n", "1.0.0", ["macvlan"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{", "n.conf: not JSON"),
        ("[]", 'n.conf: a CNI network needs a "name"'),
        ('{"name": "n"}', "n.conf: a CNI network needs 1 to 20 plugins"),
        ('{"name": "n", "plugins": [{}]}', 'n.conf: each plugin needs a "type", the name of its program; found None'),
        ('{"name": "n", "plugins": [{"type": "../sh"}]}', 'each plugin needs a "type"'),
    ],
)
def test_a_bad_list_is_explained(text: str, told: str) -> None:
    with pytest.raises(LepaError) as caught:
        cni.parse_list(text, "n.conf")
    assert told in caught.value.message


def test_each_plugin_gets_its_part_the_result_before_and_what_it_can_use() -> None:
    network = conflists.bridge("n", "dev", "172.26.64.0/20", "", "/data", hairpin=False)
    facts = cni.runtime_facts([AllocatedPortMapping(label="http", value=20_001, to=80, host_ip="10.0.0.1")])
    bridge, _, portmap = (cni.call(network, position, facts, {"ips": []}) for position in range(3))
    assert bridge.type == "bridge"
    assert bridge.config["name"] == "n"
    assert "runtimeConfig" not in bridge.config
    assert portmap.config["prevResult"] == {"ips": []}
    assert portmap.config["runtimeConfig"]["portMappings"] == [
        {"hostPort": 20_001, "containerPort": 80, "protocol": protocol, "hostIP": "10.0.0.1"}
        for protocol in ("tcp", "udp")
    ]
    assert "capabilities" not in portmap.config


def test_a_port_without_a_port_inside_is_the_same_inside() -> None:
    (tcp, _) = cni.runtime_facts([AllocatedPortMapping(value=8080, to=0, host_ip="0.0.0.0")])["portMappings"]
    assert tcp == {"hostPort": 8080, "containerPort": 8080, "protocol": "tcp"}


def test_the_environment_names_command_namespace_and_arguments() -> None:
    env = cni.environment("ADD", "id", "/ns", "/a:/b", {"NOMAD_JOB_ID": "web"})
    assert env["CNI_ARGS"] == "IgnoreUnknown=1;NOMAD_JOB_ID=web"
    assert (env["CNI_COMMAND"], env["CNI_NETNS"], env["CNI_IFNAME"], env["CNI_PATH"]) == ("ADD", "/ns", "eth0", "/a:/b")


def test_an_argument_that_would_break_the_list_is_refused() -> None:
    with pytest.raises(LepaError, match="must not hold"):
        cni.environment("ADD", "id", "/ns", "/a", {"K": "a;B=c"})


def test_the_address_is_that_of_the_interface_inside() -> None:
    found = cni.attached(RESULT)
    assert (found.interface, found.address, found.address_ipv6) == ("eth0", "172.26.64.5", "fd00::5")
    assert (found.nameservers, found.searches) == (("10.0.0.53",), ("in.test",))


def test_a_result_without_interfaces_still_has_an_address() -> None:
    assert cni.attached({"ips": [{"address": "10.1.2.3/24"}]}).address == "10.1.2.3"


def test_a_failed_plugin_is_quoted() -> None:
    told = json.dumps({"code": 7, "msg": "no address left", "details": "range full"}).encode()
    assert cni.failure("host-local", told, b"").message == 'CNI plugin "host-local" failed: no address left: range full'
    assert cni.failure("x", b"", b"segfault\n").message == 'CNI plugin "x" failed: segfault'
    assert cni.failure("x", b"", b"").message == 'CNI plugin "x" failed: it gave no reason'


@pytest.mark.parametrize("output", [b"nothing", b"[]"])
def test_an_answer_that_is_no_object_is_an_error(output: bytes) -> None:
    with pytest.raises(LepaError, match="answered no"):
        cni.parse_result(output, "x")
