"""Pure: keys and sessions between lepa's own API and Consul's: which operation a request is, and what is shown."""

from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from lepa.consul import bodies
from lepa.consul.bodies import Json, lowered
from lepa.kit.durations import SECOND, format_duration
from lepa.model.errors import invalid
from lepa.model.kv import NODE_CHECK

VALUE_MAX = 512 * 1024
LOCK_DELAY_DEFAULT = 15 * SECOND
BARE_SECONDS_MAX = 1_000
"""A lock delay that is a bare number below this is seconds, else nanoseconds."""

TXN_VERBS = frozenset(
    {
        "set", "cas", "lock", "unlock", "get", "get-tree", "get-or-empty", "check-index", "check-session",
        "check-not-exists", "delete", "delete-tree", "delete-cas",
    }
)  # fmt: skip


def entry_view(entry: Mapping[str, Any]) -> Json:
    """One key."""
    shown: Json = {
        "LockIndex": entry["LockIndex"],
        "Key": entry["Key"],
        "Flags": entry["Flags"],
        "Value": entry["Value"] or None,
        "CreateIndex": entry["CreateIndex"],
        "ModifyIndex": entry["ModifyIndex"],
    }
    if entry["Session"]:
        shown["Session"] = entry["Session"]
    return shown


def key_names(keys: Iterable[str], prefix: str, separator: str) -> list[str]:
    """Keys up to the first separator after the prefix, each once."""
    if not separator:
        return list(keys)
    found: dict[str, None] = {}
    for key in keys:
        at = key.find(separator, len(prefix))
        found[key if at < 0 else key[: at + len(separator)]] = None
    return list(found)


def write_operation(key: str, value: bytes, query: Mapping[str, str]) -> Json:
    """The operation that a PUT asks for. Raises LepaError(invalid)."""
    if not key:
        raise invalid("Missing key name")
    if len(value) > VALUE_MAX:
        raise invalid(f"Request body({len(value)} bytes) too large, max size: {VALUE_MAX} bytes.", http_status=413)
    chosen = [name for name in ("cas", "acquire", "release") if name in query]
    if len(chosen) > 1:
        raise invalid("Conflicting flags: " + ", ".join(f"{name}={query[name]}" for name in chosen))
    operation: Json = {"Key": key, "Value": _base64(value), "Flags": _number(query, "flags"), "Verb": "set"}
    if "cas" in chosen:
        return operation | {"Verb": "cas", "Index": _number(query, "cas")}
    if "acquire" in chosen:
        return operation | {"Verb": "lock", "Session": query["acquire"]}
    if "release" in chosen:
        return operation | {"Verb": "unlock", "Session": query["release"]}
    return operation


def delete_operation(key: str, query: Mapping[str, str]) -> Json:
    """The operation that a DELETE asks for. Raises LepaError(invalid)."""
    if "recurse" in query:
        if "cas" in query:
            raise invalid("Conflicting flags: recurse and cas")
        return {"Verb": "delete-tree", "Key": key}
    if not key:
        raise invalid("Missing key name")
    if "cas" in query:
        return {"Verb": "delete-cas", "Key": key, "Index": _number(query, "cas")}
    return {"Verb": "delete", "Key": key}


def txn_operations(body: Any) -> list[Json]:
    """The operations of a transaction, of which only those on keys are known. Raises LepaError(invalid)."""
    if not isinstance(body, list):
        raise invalid("Failed to parse body: a transaction is a list of operations")
    return [_txn_operation(each) for each in body]


def _txn_operation(given: Any) -> Json:
    kv = given.get("KV") if isinstance(given, dict) else None
    if not isinstance(kv, dict):
        raise invalid('only operations of the kind "KV" are known in a transaction')
    named = lowered(kv)
    verb = bodies.text(named, "verb").lower()
    if verb not in TXN_VERBS:
        raise invalid(f'unknown operation "{verb}" in a transaction')
    return {
        "Verb": verb,
        "Key": bodies.text(named, "key"),
        "Value": bodies.text(named, "value"),
        "Flags": bodies.number(named, "flags"),
        "Index": bodies.number(named, "index"),
        "Session": bodies.text(named, "session"),
    }


def txn_view(applied: Mapping[str, Any], operations: Iterable[Json]) -> Json:
    """What became of a transaction. Values are shown of what was read only."""
    reads = {each["Key"] for each in operations if each["Verb"].startswith("get")}
    trees = tuple(each["Key"] for each in operations if each["Verb"] == "get-tree")
    results = [
        {"KV": entry_view(entry) if entry["Key"] in reads or entry["Key"].startswith(trees) else _unvalued(entry)}
        for entry in applied["Entries"]
    ]
    errors = [{"OpIndex": error["OpIndex"], "What": error["What"]} for error in applied["Errors"]]
    return {"Results": results if not errors else None, "Errors": errors or None}


def _unvalued(entry: Mapping[str, Any]) -> Json:
    return entry_view(entry) | {"Value": None}


class Owner(NamedTuple):
    """The node that a session is to live with."""

    node: str
    node_id: str


def new_session(body: Any, owner: Owner) -> Json:
    """The session that a body asks for, in the words of lepa's API. Raises LepaError(invalid)."""
    given = lowered(body)
    behavior = bodies.text(given, "behavior") or "release"
    if behavior not in ("release", "delete"):
        raise invalid(f"Invalid Behavior setting '{behavior}'")
    named = next((key for key in ("nodechecks", "checks") if given.get(key) is not None), "")
    return {
        "Name": bodies.text(given, "name"),
        "Node": owner.node,
        "NodeID": owner.node_id,
        "Behavior": behavior,
        "TTL": bodies.duration(given, "ttl"),
        "LockDelay": _lock_delay(given),
        "Checks": list(bodies.texts(given, named)) if named else [NODE_CHECK],
        "ServiceChecks": [_check_id(check) for check in bodies.objects(given, "servicechecks")],
    }


def _lock_delay(given: Json) -> int:
    value = given.get("lockdelay")
    if value is None:
        return LOCK_DELAY_DEFAULT
    bare = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < BARE_SECONDS_MAX
    return int(value * SECOND) if bare else bodies.duration(given, "lockdelay")


def _check_id(check: Any) -> str:
    return check if isinstance(check, str) else bodies.text(lowered(check), "id")


def session_view(session: Mapping[str, Any]) -> Json:
    """One session."""
    service_checks = [{"ID": check, "Namespace": ""} for check in session["ServiceChecks"]]
    return {
        "ID": session["ID"],
        "Name": session["Name"],
        "Node": session["Node"],
        "LockDelay": session["LockDelay"],
        "Behavior": session["Behavior"],
        "TTL": format_duration(session["TTL"]) if session["TTL"] else "",
        "NodeChecks": session["Checks"],
        "ServiceChecks": service_checks or None,
        "CreateIndex": session["CreateIndex"],
        "ModifyIndex": session["ModifyIndex"],
    }


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _number(query: Mapping[str, str], name: str) -> int:
    text = query.get(name, "0") or "0"
    if not text.isascii() or not text.isdigit():
        raise invalid(f'Invalid {name} "{text}": expected a number')
    return int(text)
