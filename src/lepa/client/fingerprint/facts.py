"""Pure: what fingerprinters find, and how their findings are put together."""

from msgspec import Struct

from lepa.model.node import NodeResources


class Facts(Struct, frozen=True):
    """Findings of one fingerprinter: attributes and links by name."""

    attributes: dict[str, str] = {}
    links: dict[str, str] = {}


class HostFacts(Struct, frozen=True):
    """Everything found on the host."""

    attributes: dict[str, str]
    links: dict[str, str]
    resources: NodeResources
    cgroup_parent: str = ""


def merge(found: list[Facts]) -> Facts:
    """All findings together; later ones win."""
    attributes: dict[str, str] = {}
    links: dict[str, str] = {}
    for facts in found:
        attributes |= facts.attributes
        links |= facts.links
    return Facts(attributes, links)
