"""Pure: volume specifications, as files hold them, in the words of the API.

name = "data"   type = "host"   plugin_id = "mkdir"   capacity_min = "1GiB"
capability { access_mode = "single-node-writer" attachment_mode = "file-system" }
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from lepa.model.errors import invalid

UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_TARGET: Final = re.compile(r"(?<!\$)\$\{(?=\s*(?:attr|node|meta)\.)")
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGTP]?)(I?)B?", re.IGNORECASE)

Json = dict[str, Any]

REPEATED: Final = ("capability", "constraint", "topology")
"""Blocks that may stand several times."""


def literal(text: str) -> str:
    """A file's text in which `${attr.…}`, `${node.…}` and `${meta.…}` stay as they are: servers give them values."""
    return text if text.lstrip().startswith("{") else _TARGET.sub("$${", text)


def size_bytes(text: object, key: str) -> int:
    """ "10GiB", "50mb" or a number of bytes. Raises LepaError(invalid)."""
    match = _SIZE.fullmatch(str(text).strip())
    if match is None:
        raise invalid(f'{key} must be a size such as "10GiB" or a number of bytes, found "{text}"')
    letter = match[2].upper()
    unit = 1024 ** "KMGTP".index(letter) * 1024 if match[3] and letter else UNITS[letter]
    return int(float(match[1]) * unit)


def body(raw: Mapping[str, Any], volume_id: str = "") -> tuple[str, Json]:
    """The type of a volume ("csi" or "host"), and what to send. volume_id: instead of the file's own."""
    kind = str(raw.get("type") or raw.get("Type") or "csi")
    if kind not in ("csi", "host"):
        raise invalid(f'type must be "csi" or "host", found "{kind}"')
    keys = HOST if kind == "host" else CSI
    found: Json = {}
    for key, value in raw.items():
        if key in ("type", "Type"):
            continue
        if key not in keys:
            raise invalid(f'"{key}" is not known in a volume of type {kind}; known are {", ".join(sorted(keys))}')
        name, read = keys[key]
        found[name] = read(value, key)
    if volume_id:
        found["ID"] = volume_id
    if kind == "csi" and not found.get("ID"):
        raise invalid("a CSI volume needs an id")
    return kind, found


def _as_is(value: Any, key: str) -> Any:
    return value


def _texts(value: Any, key: str) -> Json:
    if not isinstance(value, Mapping):
        raise invalid(f"{key} must be a block of names and values")
    return {str(name): str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}


def _blocks(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list) else [value]


def _capabilities(value: Any, key: str) -> list[Json]:
    names = {"access_mode": "AccessMode", "attachment_mode": "AttachmentMode"}
    return [{names.get(name, name): each for name, each in block.items()} for block in _blocks(value)]


def _mount_options(value: Any, key: str) -> Json:
    names = {"fs_type": "FSType", "mount_flags": "MountFlags"}
    return {names.get(name, name): each for name, each in value.items()}


def _constraints(value: Any, key: str) -> list[Json]:
    names = {"attribute": "LTarget", "operator": "Operand", "value": "RTarget"}
    return [{"Operand": "=", **{names.get(n, n): str(e) for n, e in block.items()}} for block in _blocks(value)]


def _topologies(value: Any, key: str) -> Json:
    def places(block: Any) -> list[Json]:
        inner = block.get("topology", []) if isinstance(block, Mapping) else []
        return [{"Segments": _texts(each.get("segments", {}), key)} for each in _blocks(inner)]

    return {name.capitalize(): places(block) for name, block in value.items() if name in ("required", "preferred")}


Reader = Callable[[Any, str], Any]
_BOTH: Final[dict[str, tuple[str, Reader]]] = {
    "id": ("ID", _as_is),
    "name": ("Name", _as_is),
    "namespace": ("Namespace", _as_is),
    "plugin_id": ("PluginID", _as_is),
    "capability": ("RequestedCapabilities", _capabilities),
    "parameters": ("Parameters", _texts),
}
HOST: Final = _BOTH | {
    "node_id": ("NodeID", _as_is),
    "node_pool": ("NodePool", _as_is),
    "host_path": ("HostPath", _as_is),
    "capacity": ("CapacityBytes", size_bytes),
    "capacity_min": ("RequestedCapacityMinBytes", size_bytes),
    "capacity_max": ("RequestedCapacityMaxBytes", size_bytes),
    "constraint": ("Constraints", _constraints),
}
CSI: Final = _BOTH | {
    "external_id": ("ExternalID", _as_is),
    "capacity_min": ("RequestedCapacityMin", size_bytes),
    "capacity_max": ("RequestedCapacityMax", size_bytes),
    "mount_options": ("MountOptions", _mount_options),
    "secrets": ("Secrets", _texts),
    "context": ("Context", _texts),
    "clone_id": ("CloneID", _as_is),
    "snapshot_id": ("SnapshotID", _as_is),
    "topology_request": ("RequestedTopologies", _topologies),
}

EXAMPLES: Final = {
    "host": """# A volume of one node, made by a plugin there: lepa volume create volume.hcl
type      = "host"
name      = "data"
plugin_id = "mkdir"

# node_pool = "default"
# constraint {
#   attribute = "${attr.kernel.name}"
#   value     = "linux"
# }
# capacity_min = "10GiB"
# capacity_max = "20GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

parameters {
  mode = "0755"
}
""",
    "csi": """# A volume of a CSI plugin: lepa volume create volume.hcl, or register with external_id
type      = "csi"
id        = "data"
name      = "data"
plugin_id = "plugin"
# external_id = "vol-23452345"

capacity_min = "10GiB"
capacity_max = "20GiB"

capability {
  access_mode     = "single-node-writer"
  attachment_mode = "file-system"
}

mount_options {
  fs_type     = "ext4"
  mount_flags = ["noatime"]
}

parameters {
  type = "fast"
}
""",
}
