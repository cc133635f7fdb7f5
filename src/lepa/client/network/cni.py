"""Pure: the Container Network Interface: a list of plugins -> what to tell each of them, and what they answer.

A list (`NAME.conflist`) names plugins that are called one after the other with the same command. Each gets its own part
of the list with the list's name and version, the result of the one before (`prevResult`), and those of the runtime's
facts that it says it can use (`capabilities`). ADD goes forwards, DEL backwards with the result of ADD.

The format is that of the CNI specification 0.4.0 to 1.0.0 (containernetworking/cni, SPEC.md).
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lepa.model.errors import LepaError, invalid
from lepa.model.resources import AllocatedPortMapping

INTERFACE = "eth0"
"""How the network's interface is called inside a namespace."""
PLUGINS_MAX = 20
VERSION = "0.4.0"
"""For lists that name none, and for our own: every plugin of these days knows it."""


class PluginList(NamedTuple):
    """One network: its name, the version its plugins are told, and their parts in order."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]


class Call(NamedTuple):
    """One plugin to run: its type is the program's name, config its standard input."""

    type: str
    config: dict[str, Any]


class Attached(NamedTuple):
    """What a network gave a namespace. address, address_ipv6: without the length of their prefix."""

    interface: str = INTERFACE
    address: str = ""
    address_ipv6: str = ""
    nameservers: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


def parse_list(text: str, where: str) -> PluginList:
    """A list of plugins, or a single plugin's file, from JSON. Raises LepaError(invalid) that names the file."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise invalid(f"{where}: not JSON: {error}") from error
    if not isinstance(raw, dict) or not isinstance(raw.get("name"), str) or not raw["name"]:
        raise invalid(f'{where}: a CNI network needs a "name"')
    plugins = raw.get("plugins", [raw] if "type" in raw else [])
    if not isinstance(plugins, list) or not 0 < len(plugins) <= PLUGINS_MAX:
        raise invalid(f"{where}: a CNI network needs 1 to {PLUGINS_MAX} plugins")
    for plugin in plugins:
        kind = plugin.get("type") if isinstance(plugin, dict) else None
        if not isinstance(kind, str) or not kind or "/" in kind:
            raise invalid(f'{where}: each plugin needs a "type", the name of its program; found {kind!r}')
    return PluginList(raw["name"], str(raw.get("cniVersion") or VERSION), tuple(plugins))


def runtime_facts(ports: Sequence[AllocatedPortMapping]) -> dict[str, Any]:
    """What plugins may ask of the runtime by their capabilities: host ports, for TCP and UDP both."""
    mappings = [
        {"hostPort": port.value, "containerPort": port.to if port.to > 0 else port.value, "protocol": protocol}
        | ({"hostIP": port.host_ip} if port.host_ip not in ("", "0.0.0.0") else {})
        for port in ports
        for protocol in ("tcp", "udp")
    ]
    return {"portMappings": mappings}


def call(network: PluginList, position: int, facts: Mapping[str, Any], previous: Mapping[str, Any] | None) -> Call:
    """What the plugin at `position` is told. previous: the result before it (ADD), or of the whole ADD (DEL)."""
    plugin = dict(network.plugins[position])
    capabilities = plugin.pop("capabilities", None) or {}
    used = {name: value for name, value in facts.items() if capabilities.get(name)}
    config = plugin | {"name": network.name, "cniVersion": network.version}
    if used:
        config["runtimeConfig"] = used
    if previous is not None:
        config["prevResult"] = dict(previous)
    return Call(str(plugin["type"]), config)


def environment(
    command: str, container: str, namespace: str, path: str, arguments: Mapping[str, str]
) -> dict[str, str]:
    """The environment of every plugin of one call. arguments: for CNI_ARGS; none may hold a semicolon."""
    for name, value in arguments.items():
        if ";" in name + value or "=" in name:
            raise invalid(f'CNI argument "{name}" must not hold ";", nor its name "="')
    told = {"IgnoreUnknown": "1", **arguments}
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": namespace,
        "CNI_IFNAME": INTERFACE,
        "CNI_PATH": path,
        "CNI_ARGS": ";".join(f"{name}={value}" for name, value in told.items()),
    }


def parse_result(output: bytes, plugin: str) -> dict[str, Any]:
    """A plugin's answer to ADD. Raises LepaError(internal)."""
    try:
        result = json.loads(output)
    except ValueError as error:
        raise LepaError("internal", f'CNI plugin "{plugin}" answered no JSON: {_shown(output)}') from error
    if not isinstance(result, dict):
        raise LepaError("internal", f'CNI plugin "{plugin}" answered no object: {_shown(output)}')
    return result


def failure(plugin: str, output: bytes, errors: bytes) -> LepaError:
    """What a plugin that failed says of it: `{"code": 7, "msg": …, "details": …}`, or else whatever it wrote."""
    try:
        told = json.loads(output)
        text = f"{told['msg']}{': ' + told['details'] if told.get('details') else ''}"
    except (ValueError, KeyError, TypeError):
        text = _shown(errors or output) or "it gave no reason"
    return LepaError("internal", f'CNI plugin "{plugin}" failed: {text}')


def _shown(output: bytes) -> str:
    return output.decode(errors="replace").strip()[:500]


def attached(result: Mapping[str, Any]) -> Attached:
    """The first interface inside the namespace and its addresses, of the result of a whole ADD."""
    interfaces = result.get("interfaces") or []
    inside = [number for number, each in enumerate(interfaces) if each.get("sandbox")]
    chosen = inside[0] if inside else None
    found: dict[int, str] = {}
    for ip in result.get("ips") or ():
        if chosen is None or ip.get("interface") in (None, chosen):
            address = str(ip.get("address", "")).partition("/")[0]
            found.setdefault(6 if ":" in address else 4, address)
    dns = result.get("dns") or {}
    return Attached(
        interface=str(interfaces[chosen].get("name") or INTERFACE) if chosen is not None else INTERFACE,
        address=found.get(4, ""),
        address_ipv6=found.get(6, ""),
        nameservers=tuple(dns.get("nameservers") or ()),
        searches=tuple(dns.get("search") or ()),
        options=tuple(dns.get("options") or ()),
    )
