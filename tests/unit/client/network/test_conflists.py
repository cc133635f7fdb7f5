"""The networks that lepa makes itself."""

from lepa.client.network import conflists


def test_the_bridge_masquerades_and_maps_ports() -> None:
    network = conflists.bridge("lepa", "lepa", "172.26.64.0/20", "fd00::/64", "/data", hairpin=True)
    assert [plugin["type"] for plugin in network.plugins] == ["bridge", "firewall", "portmap"]
    first = network.plugins[0]
    assert (first["ipMasq"], first["isGateway"], first["hairpinMode"]) == (True, True, True)
    assert first["ipam"]["ranges"] == [[{"subnet": "172.26.64.0/20"}], [{"subnet": "fd00::/64"}]]
    assert first["ipam"]["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]


def test_an_overlay_leaves_the_masquerading_to_its_own_rules() -> None:
    network = conflists.overlay("overlay-b", "lepab7", "10.88.3.0/24", 1450, "/data")
    first = network.plugins[0]
    assert (first["ipMasq"], first["mtu"], first["bridge"]) == (False, 1450, "lepab7")
    assert first["ipam"]["dataDir"] == "/data"
