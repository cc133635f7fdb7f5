"""Which networks of their own this node can give to groups: its bridge, and those that the operator described."""

import os
from pathlib import Path

from lepa.client.network.cni_programs import CniPrograms
from lepa.client.network.conflists import PLUGINS
from lepa.client.network.networks import lists_in
from lepa.client.settings import ClientSettings
from lepa.model.errors import LepaError
from lepa.model.resources import NetworkResource


def offered(settings: ClientSettings) -> tuple[NetworkResource, ...]:
    """Network modes beside the host's. None without root: only root may make namespaces."""
    if os.geteuid() != 0:
        return ()
    programs = CniPrograms(settings.cni_path)
    found = []
    if all(_found(programs, plugin) for plugin in PLUGINS):
        found.append(NetworkResource(mode="bridge", device=settings.bridge_name, cidr=settings.bridge_subnet))
    for name, network in lists_in(Path(settings.cni_config_dir)).items():
        if all(_found(programs, str(plugin["type"])) for plugin in network.plugins):
            found.append(NetworkResource(mode=f"cni/{name}"))
    return tuple(found)


def _found(programs: CniPrograms, plugin: str) -> bool:
    try:
        return bool(programs.find(plugin))
    except LepaError:
        return False
