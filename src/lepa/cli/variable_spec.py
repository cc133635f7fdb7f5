"""Variables in files and on command lines: specifications, `key=value` items, and how they are shown."""

import json
import os
from collections.abc import Sequence
from typing import Any

from lepa.cli.output import Json, moment, pairs, pretty_json
from lepa.cli.session import Shape, read_input
from lepa.kit.durations import SECOND, rfc3339
from lepa.model.errors import conflict, invalid

MEMBERS = ("Namespace", "Path", "CreateIndex", "ModifyIndex", "CreateTime", "ModifyTime", "Items", "Lock")
KNOWN = {name.lower(): name for name in MEMBERS}
LOCK = {"id": "ID", "ttl": "TTL", "lockdelay": "LockDelay"}
FORMATS = ("go-template", "hcl", "json", "none", "table")
EXAMPLE = {"Namespace": "default", "Path": "path/to/variable", "Items": {"key1": "value 1", "key2": "value 2"}}


def read_spec(reference: str, kind: str) -> Json:
    """A specification from `@file` or standard input (`-`). kind: hcl or json, where the file's name does not say."""
    name = reference.removeprefix("@")
    ending = os.path.splitext(name)[1].removeprefix(".").lower()
    kind = ending if ending in ("hcl", "json") else kind
    text = read_input(name).decode("utf-8", "replace")
    if kind == "json":
        try:
            raw = json.loads(text)
        except ValueError as error:
            raise invalid(f"{name}: not JSON: {error}; -in=hcl says that it is HCL") from error
    elif kind == "hcl":
        from lepa.agent.config_file import parse

        raw = parse(text, "<stdin>.hcl" if name == "-" else name)
    else:
        raise invalid(f'-in is hcl or json, not "{kind}"')
    if not isinstance(raw, dict):
        raise invalid(f"{name}: a variable is an object")
    return _named(raw, KNOWN, name)


def _named(raw: Json, known: dict[str, str], where: str) -> Json:
    found: Json = {}
    for key, value in raw.items():
        name = known.get(key.replace("_", "").lower())
        if name is None:
            raise invalid(f'{where}: "{key}" is not known; known are {", ".join(known.values())}')
        if name in ("Items", "Lock") and not isinstance(value, dict | None):
            raise invalid(f"{where}: {name} must be an object")
        found[name] = _named(value, LOCK, where) if name == "Lock" and value else value
    return found


def item_of(word: str) -> tuple[str, str]:
    r"""An item of `key=value`; `@file` and `-` as value are read, `\@` is an at sign."""
    key, equals, value = word.partition("=")
    if not equals or not key:
        raise invalid(f'an item is key=value, not "{word}"')
    if value == "-" or value.startswith("@"):
        return key, read_input(value.removeprefix("@")).decode("utf-8", "replace")
    return key, value[1:] if value.startswith("\\@") else value


def gathered(words: Sequence[str], kind: str) -> Json:
    """The variable that the words of a command line describe: a path, a specification, items."""
    rest = list(words)
    path = "" if _is_spec(rest[0]) else rest.pop(0)
    spec: Json = read_spec(rest.pop(0), kind) if rest and _is_spec(rest[0]) else {}
    items = dict(spec.get("Items") or {}) | dict(map(item_of, rest))
    found = spec | {"Items": items}
    if path:
        found["Path"] = path
    if not found.get("Path"):
        raise invalid("the variable has no path: give one as first word, or in the specification")
    return found


def _is_spec(word: str) -> bool:
    return word == "-" or word.startswith("@")


def shown(variable: Json, out: str, template: str | None) -> str:
    """A variable in one of the formats."""
    if out == "go-template":
        if not template:
            raise invalid("-out=go-template needs -template")
        return Shape(as_json=False, template=template).render(variable)
    if out in ("json", "pretty-json"):
        return pretty_json(variable)
    return as_hcl(variable) if out == "hcl" else as_table(variable)


def as_table(variable: Json) -> str:
    """As people read it."""
    head: list[tuple[str, object]] = [
        ("Namespace", variable["Namespace"]),
        ("Path", variable["Path"]),
        ("Create Time", when(variable["CreateTime"])),
    ]
    if variable["ModifyTime"] != variable["CreateTime"]:
        head.append(("Modify Time", when(variable["ModifyTime"])))
    head.append(("Check Index", variable["ModifyIndex"]))
    parts = [pairs(head)]
    if lock := variable.get("Lock"):
        lines = [("Lock ID", lock.get("ID")), ("TTL", lock.get("TTL")), ("Lock Delay", lock.get("LockDelay"))]
        parts.append("Lock\n" + pairs(lines))
    parts.append("Items\n" + pairs(sorted((variable.get("Items") or {}).items())))
    return "\n\n".join(parts)


def when(value: int) -> str:
    """A moment, to the second."""
    return rfc3339(moment(value) // SECOND * SECOND)


def as_hcl(variable: Json) -> str:
    """A specification that `var put` takes."""
    names = {"Namespace": "namespace", "Path": "path", "CreateIndex": "create_index", "ModifyIndex": "modify_index"}
    names |= {"CreateTime": "create_time", "ModifyTime": "modify_time"}
    given = [(hcl, variable[name]) for name, hcl in names.items() if name in variable]
    width = max(len(name) for name, _ in given)
    lines = [f"{name:<{width}} = {_literal(value)}" for name, value in given]
    items = variable.get("Items") or {}
    lines += ["", "items = {", *(f"  {_literal(key)} = {_literal(value)}" for key, value in sorted(items.items())), "}"]
    return "\n".join(lines)


def _literal(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text.replace("${", "$${").replace("%{", "%%{")


def refused(text: str, wanted: Any, server_side: str = "variable") -> Exception:
    """The error for a 409: what the servers have instead, or that it is locked."""
    try:
        present = json.loads(text)
    except ValueError:
        present = None
    if not isinstance(present, dict):
        return conflict(text)
    if present.get("Lock"):
        return conflict(f"the variable {present.get('Path')} is locked by somebody else")
    index = present.get("ModifyIndex", 0)
    at = f"; it was last written at {when(present['ModifyTime'])}" if present.get("ModifyTime") else ""
    return conflict(
        f"Check-and-Set conflict: the check-index {wanted} does not match the {server_side}'s index {index}{at}. "
        f"If it is to be overwritten, give -force or -check-index={index}."
    )
