"""What overlays need in the kernel."""

import pytest

from lepa.client.network import tunnels
from lepa.model.overlay import OverlayLease, hardware_address


def lease(number: int, **fields: object) -> OverlayLease:
    subnet = f"10.88.{number}.0/24"
    values = {
        "overlay": "b",
        "node_id": f"n{number}",
        "pool": "10.88.0.0/16",
        "subnet": subnet,
        "vni": 7,
        "port": 4789,
        "endpoint": f"192.0.2.{number}",
        "hardware": hardware_address(subnet),
    }
    return OverlayLease(**(values | fields))  # type: ignore[arg-type]


def test_devices_fit_the_kernels_names() -> None:
    assert all(len(name) <= 15 for name in tunnels.names(tunnels.VNI_MAX - 1))


def test_an_overlay_without_a_number_has_the_same_on_every_node() -> None:
    assert tunnels.default_vni("backend") == tunnels.default_vni("backend")
    assert 0 < tunnels.default_vni("") < tunnels.VNI_MAX


def test_hardware_addresses_follow_from_subnets() -> None:
    assert hardware_address("10.88.1.0/24") == "02:4c:0a:58:01:00"


@pytest.mark.parametrize(("below", "encrypted", "size"), [(1500, False, 1450), (1500, True, 1420), (500, False, 576)])
def test_packets_leave_room_for_the_tunnels_head(below: int, encrypted: bool, size: int) -> None:
    assert tunnels.mtu(below, encrypted=encrypted) == size


def test_a_vxlan_device_learns_nothing_and_has_the_subnets_first_address() -> None:
    add, up, address = tunnels.make_vxlan(lease(1), "eth0", 1450)
    assert " ".join(add) == ("link add lepat7 type vxlan id 7 dstport 4789 local 192.0.2.1 nolearning dev eth0")
    assert "1450" in up
    assert address == ("address", "replace", "10.88.1.0/32", "dev", "lepat7")


def test_the_others_are_reached_by_route_neighbour_and_forwarding_entry() -> None:
    found = tunnels.entries([lease(1), lease(2), lease(3, endpoint="")], "n1")
    assert list(found) == ["n2"]
    words = [" ".join(line) for line in tunnels.forward("lepat7", None, found["n2"], encrypted=False)]
    assert words == [
        "ip neighbour replace 10.88.2.0 lladdr 02:4c:0a:58:02:00 dev lepat7 nud permanent",
        "bridge fdb replace 02:4c:0a:58:02:00 dev lepat7 dst 192.0.2.2 self permanent",
        "ip route replace 10.88.2.0/24 via 10.88.2.0 dev lepat7 onlink",
    ]


def test_what_did_not_change_is_left_alone_and_what_went_is_forgotten() -> None:
    entry = tunnels.entries([lease(2)], "n1")["n2"]
    assert tunnels.forward("t", entry, entry, encrypted=False) == []
    assert [line[0] for line in tunnels.forward("t", entry, None, encrypted=False)] == ["ip", "bridge", "ip"]


def test_encrypted_nodes_are_peers_with_their_own_subnet() -> None:
    entry = tunnels.entries([lease(2, public_key="KEY=")], "n1")["n2"]
    peer, route = tunnels.forward("t", None, entry, encrypted=True)
    assert " ".join(peer) == "wg set t peer KEY= allowed-ips 10.88.2.0/24 endpoint 192.0.2.2:4789"
    assert route == ("ip", "route", "replace", "10.88.2.0/24", "dev", "t")
    assert tunnels.forward("t", entry, None, encrypted=True)[1][-1] == "remove"
    assert tunnels.make_wireguard(lease(1), 1420)[1] == ("link", "set", "lepat7", "mtu", "1420", "up")


def test_overlays_pass_inside_and_do_not_reach_each_other() -> None:
    text = tunnels.firewall(["10.88.0.0/16", "10.99.0.0/16"])
    assert "-A LEPA-OVERLAY -s 10.88.0.0/16 -d 10.88.0.0/16 -j ACCEPT" in text
    assert "-A LEPA-OVERLAY ! -s 10.99.0.0/16 -d 10.99.0.0/16 -m conntrack ! --ctstate DNAT" in text
    assert "-A LEPA-OVERLAY -s 10.99.0.0/16 ! -d 10.99.0.0/16 -j MASQUERADE" in text


def test_questions_to_the_usual_port_go_to_the_agents() -> None:
    assert "-d 10.88.1.1/32 -p udp --dport 53 -j DNAT --to-destination 10.88.1.1:8600" in tunnels.name_service(
        tunnels.gateway("10.88.1.0/24"), 8600
    )
