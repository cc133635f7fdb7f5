"""Pure: the text of a policy -> what it grants.

    namespace "web-*" {
      policy       = "read"
      capabilities = ["submit-job"]
      variables { path "nomad/jobs/*" { capabilities = ["read", "write"] } }
    }
    node_pool "gpu" { policy = "write" }        host_volume "data" { policy = "read" }
    agent { policy = "read" }   node, operator, quota, plugin, sentinel alike

Read as HCL1, as Nomad reads it, or as JSON. Whatever is not known, has no label where one is needed, or stands at the
wrong place is refused: a rule that silently meant nothing would be read as protection. Names of scopes, policies and
capabilities are Nomad's (developer.hashicorp.com/nomad/docs/other-specifications/acl-policy).
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from lepa.jobspec.diagnostics import Refusal, Reporter, Source
from lepa.jobspec.hcl1 import Item, Items, parse_items
from lepa.model.errors import invalid

DENY: Final = "deny"
PATTERN: Final = re.compile(r"[a-zA-Z0-9-_*]{1,128}")
PATH_PATTERN: Final = re.compile(r"[a-zA-Z0-9-_~/*.]{1,128}")
RULES_MAX: Final = 1_000
"""Labelled rules of one policy."""

_READ: Final = (
    "list-jobs", "parse-job", "read-job", "csi-list-volume", "csi-read-volume", "read-job-scaling",
    "list-scaling-policies", "read-scaling-policy", "host-volume-read",
)  # fmt: skip
_WRITE: Final = (
    *_READ, "scale-job", "submit-job", "dispatch-job", "read-logs", "read-fs", "alloc-exec", "alloc-lifecycle",
    "csi-mount-volume", "csi-write-volume", "submit-recommendation", "host-volume-create",
)  # fmt: skip
_SCALE: Final = (
    "list-scaling-policies", "read-scaling-policy", "read-job-scaling", "scale-job", "read-job",
    "submit-recommendation",
)  # fmt: skip
_FINE: Final = (
    "alloc-node-exec", "sentinel-override", "csi-register-plugin", "host-volume-register", "host-volume-write",
    "host-volume-delete", "register-job", "revert-job", "deregister-job", "purge-job", "evaluate-job", "plan-job",
    "tag-job-version", "stable-job", "fail-deployment", "pause-deployment", "promote-deployment",
    "unblock-deployment", "cancel-deployment", "set-alloc-health-deployment", "gc-allocation", "pause-allocation",
    "force-periodic-job", "delete-service-registration",
)  # fmt: skip
NAMESPACE_CAPABILITIES: Final = frozenset((*_WRITE, *_FINE, DENY))
VARIABLE_CAPABILITIES: Final = frozenset(("list", "read", "write", "destroy", DENY))

_EXPANDED: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "namespace": {DENY: (DENY,), "read": _READ, "write": _WRITE, "scale": _SCALE},
    "node_pool": {DENY: (DENY,), "read": ("read",), "write": ("read", "write", "delete")},
    "host_volume": {DENY: (DENY,), "read": ("mount-readonly",), "write": ("mount-readonly", "mount-readwrite")},
    "agent": {DENY: (DENY,), "read": ("read",), "write": ("read", "write")},
    "node": {DENY: (DENY,), "read": ("read",), "write": ("read", "write")},
    "operator": {
        DENY: (DENY,),
        "read": ("read", "license-read", "keyring-read"),
        "write": ("read", "write", "snapshot-save", "license-read", "keyring-read", "keyring-rotate", "keyring-delete"),
    },
    "quota": {DENY: (DENY,), "read": ("read",), "write": ("read", "write")},
    "plugin": {DENY: (DENY,), "read": ("read", "list"), "list": ("list",)},
    "sentinel": {DENY: (DENY,), "read": ("read",), "write": ("read", "write")},
}
"""What `policy = "…"` stands for, by scope."""

_CAPABILITIES: Final[Mapping[str, frozenset[str]]] = {
    "namespace": NAMESPACE_CAPABILITIES,
    "node_pool": frozenset(("read", "write", "delete", DENY)),
    "host_volume": frozenset(("mount-readonly", "mount-readwrite", DENY)),
    "operator": frozenset(
        ("read", "write", "snapshot-save", "license-read", "keyring-read", "keyring-rotate", "keyring-delete", DENY)
    ),
}
"""What `capabilities` may list, by scope; the others have none."""

LABELLED: Final = ("namespace", "node_pool", "host_volume")
SCOPES: Final = tuple(_EXPANDED)


class Rules(NamedTuple):
    """What one policy grants: capabilities by scope and pattern ("" for scopes without labels), and of variables by
    the patterns of namespace and path."""

    scopes: Mapping[tuple[str, str], frozenset[str]]
    variables: Mapping[tuple[str, str], frozenset[str]]


def parse_rules(text: str) -> Rules:
    """Read a policy. Raises LepaError(invalid) that says where it is wrong."""
    tree = list(_json(text) if text.lstrip().startswith("{") else _hcl(text))
    if text.strip() and not tree:
        raise invalid("Invalid policy: it grants and denies nothing")
    if len(tree) > RULES_MAX:
        raise invalid(f"Invalid policy: more than {RULES_MAX} rules")
    scopes: dict[tuple[str, str], frozenset[str]] = {}
    variables: dict[tuple[str, str], frozenset[str]] = {}
    for scope, label, values in tree:
        _check_scope(scope, label)
        granted = _granted(scope, label, values)
        scopes[scope, label] = scopes.get((scope, label), frozenset()) | granted
        for path, capabilities in _paths(label, values.get("variables")):
            variables[label, path] = variables.get((label, path), frozenset()) | capabilities
    return Rules(scopes, variables)


Found = tuple[str, str, dict[str, Any]]


def _check_scope(scope: str, label: str) -> None:
    if scope not in SCOPES:
        raise invalid(f'Invalid policy: "{scope}" is not known; known are {", ".join(SCOPES)}')
    if scope in LABELLED and not PATTERN.fullmatch(label):
        named = f'"{label}"' if label else "no name"
        raise invalid(f'Invalid {scope} name: {named}; write {scope} "NAME" {{ … }}, with "*" for any characters')
    if scope not in LABELLED and label:
        raise invalid(f'Invalid policy: {scope} has no name, but "{label}" was given')


def _granted(scope: str, label: str, values: dict[str, Any]) -> frozenset[str]:
    where = f'{scope} "{label}"' if label else scope
    known = {"policy"} | ({"capabilities"} if scope in _CAPABILITIES else set())
    known |= {"variables"} if scope == "namespace" else set()
    for key in values:
        if key not in known:
            raise invalid(f'Invalid policy: {where}: "{key}" is not known; known are {", ".join(sorted(known))}')
    policy, listed = values.get("policy", ""), values.get("capabilities", [])
    if not isinstance(policy, str) or (policy and policy not in _EXPANDED[scope]):
        raise invalid(f"Invalid {scope} policy: {policy!r}; it has to be one of {', '.join(_EXPANDED[scope])}")
    if not policy and scope not in _CAPABILITIES:
        raise invalid(f"Invalid {scope} policy: it has none")
    _check_capabilities(where, listed, _CAPABILITIES.get(scope, frozenset()))
    return frozenset((*listed, *(_EXPANDED[scope][policy] if policy else ())))


def _check_capabilities(where: str, listed: Any, known: frozenset[str]) -> None:
    if not isinstance(listed, list) or not all(isinstance(one, str) for one in listed):
        raise invalid(f"Invalid policy: {where}: capabilities have to be a list of texts")
    for one in listed:
        if one not in known:
            raise invalid(f"Invalid policy: {where}: invalid capability '{one}'")


def _paths(label: str, variables: Any) -> Iterator[tuple[str, frozenset[str]]]:
    """The paths of a namespace's block `variables`."""
    if variables is None:
        return
    where = f'namespace "{label}": variables'
    if not isinstance(variables, dict) or set(variables) - {"path"}:
        raise invalid(f'Invalid policy: {where}: only path "…" {{ … }} may stand in it')
    paths = variables.get("path", {})
    if not isinstance(paths, dict) or not paths:
        raise invalid(f"Invalid policy: {where}: no paths specified")
    for path, values in paths.items():
        if not PATH_PATTERN.fullmatch(path) or path.startswith("/"):
            raise invalid(f'Invalid policy: {where}: invalid path "{path}"')
        if not isinstance(values, dict) or set(values) != {"capabilities"} or not values["capabilities"]:
            raise invalid(f'Invalid policy: {where}: path "{path}" has to have capabilities and nothing else')
        _check_capabilities(f'{where}: path "{path}"', values["capabilities"], VARIABLE_CAPABILITIES)
        given = frozenset(values["capabilities"])
        yield path, given | {"list"} if "read" in given else given


# Reading


def _hcl(text: str) -> Iterator[Found]:
    report = Reporter(Source("policy", text))
    try:
        items = parse_items(text)
    except Refusal as refusal:
        report.refuse(refusal)
        told = "\n".join(each.render() for each in report.found)
        raise invalid(f"Failed to parse ACL Policy: {told}") from refusal
    for item in items:
        yield from _blocks(item)


def _blocks(item: Item) -> Iterator[Found]:
    """A block of a policy; `namespace = { "a" = { … } }` is `namespace "a" { … }`."""
    if not isinstance(item.value, tuple):
        raise invalid(f'Invalid policy: "{item.name}" is not a block')
    if item.name in LABELLED and not item.labels and item.value and all(map(_is_object, item.value)):
        for named in item.value:
            yield item.name, named.name, _values(named.value)
    else:
        yield item.name, _label(item), _values(item.value)


def _is_object(item: Item) -> bool:
    return isinstance(item.value, tuple) and not item.labels


def _label(item: Item) -> str:
    if len(item.labels) > 1:
        raise invalid(f"Invalid policy: {item.name} has more than one name")
    return item.labels[0] if item.labels else ""


def _values(items: Items) -> dict[str, Any]:
    """Attributes and blocks of a block; a block with a label is a map by its label."""
    found: dict[str, Any] = {}
    for item in items:
        value = _values(item.value) if isinstance(item.value, tuple) else item.value
        label = _label(item)
        if label:
            place = found.setdefault(item.name, {})
            if not isinstance(place, dict) or label in place:
                raise invalid(f'Invalid policy: {item.name} "{label}" is there twice')
            place[label] = value
        elif item.name in found:
            raise invalid(f"Invalid policy: {item.name} is there twice")
        else:
            found[item.name] = value
    return found


def _json(text: str) -> Iterator[Found]:
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise invalid(f"Failed to parse ACL Policy: {error}") from error
    for scope, value in tree.items():
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise invalid(f'Invalid policy: "{scope}" has to be an object')
            if scope not in LABELLED:
                yield scope, "", one
                continue
            if not one or not all(isinstance(values, dict) for values in one.values()):
                raise invalid(f'Invalid {scope} name: none; write {{"{scope}": {{"NAME": {{…}}}}}}')
            yield from ((scope, label, values) for label, values in one.items())
