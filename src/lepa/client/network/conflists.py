"""Pure: the networks that lepa itself makes on a node, as lists of CNI plugins.

    bridge    one bridge of the node; allocations reach each other and, behind the node's address, everything else
    overlay   one bridge of the node for each overlay; its subnet is the node's share of the overlay's pool, and routes
              to the other nodes' shares are kept by `overlay`

Both map host ports (`portmap`) and open the firewall for their own addresses (`firewall`). Addresses are given by
`host-local`, which keeps them in the node's directory.
"""

from typing import Any

from lepa.client.network.cni import VERSION, PluginList

PLUGINS = ("bridge", "firewall", "host-local", "loopback", "portmap")
"""Programs that the node's own networks need."""
FIREWALL_CHAIN = "LEPA-ADMIN"
"""Of iptables: rules that operators put there are asked before ours."""


def bridge(name: str, device: str, subnet: str, subnet_ipv6: str, data: str, *, hairpin: bool) -> PluginList:
    """The node's bridge. subnet: of which the first address is the bridge's own. data: where addresses are kept."""
    ranges = [[{"subnet": subnet}]]
    routes = [{"dst": "0.0.0.0/0"}]
    if subnet_ipv6:
        ranges.append([{"subnet": subnet_ipv6}])
        routes.append({"dst": "::/0"})
    first = {
        "type": "bridge",
        "bridge": device,
        "ipMasq": True,
        "isGateway": True,
        "forceAddress": True,
        "hairpinMode": hairpin,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": routes, "dataDir": data},
    }
    return PluginList(name, VERSION, (first, _firewall(), _portmap()))


def overlay(name: str, device: str, subnet: str, mtu: int, data: str) -> PluginList:
    """One node's part of an overlay. Whatever leaves the overlay is masqueraded by rules of the overlay itself."""
    first = {
        "type": "bridge",
        "bridge": device,
        "ipMasq": False,
        "isGateway": True,
        "forceAddress": True,
        "hairpinMode": True,
        "mtu": mtu,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": data,
        },
    }
    return PluginList(name, VERSION, (first, _firewall(), _portmap()))


def _firewall() -> dict[str, Any]:
    return {"type": "firewall", "backend": "iptables", "iptablesAdminChainName": FIREWALL_CHAIN}


def _portmap() -> dict[str, Any]:
    return {"type": "portmap", "capabilities": {"portMappings": True}, "snat": True}
