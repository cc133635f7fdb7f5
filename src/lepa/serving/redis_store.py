"""Where the management frontend keeps its registry when that is to be Redis: under Clipper's keys.

    database 1   {app}:0:0                          {"y_hat": default output}
                 {app}:{user}:selection             what a selection policy has learned (lepa's own)
             2   {model}:{version}                  hash
             5   {app}                              hash
             6   CURRENT_MODEL_VERSION:{model}      version; PREVIOUS_MODEL_VERSION, SCALING and REVISION are lepa's own
             7   {app}                              set of models

A registry is one value; `entries` says which keys it consists of, `registry_of` reads them again. Saving writes the
difference to what was there before in one transaction, so that whoever follows Redis' notifications sees only what
has changed. The protocol of Redis is spoken here: a request is an array of texts, an answer one of five kinds.
"""

import socket
import threading
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from lepa.model.errors import LepaError, invalid
from lepa.serving.autoscale import Autoscale
from lepa.serving.batch_sizes import Batching
from lepa.serving.records import Application, ModelVersion, Registry
from lepa.serving.selection import PolicyOptions, SelectionState
from lepa.serving.selection_memory import Learned

STATE, MODELS, APPLICATIONS, METADATA, LINKS = 1, 2, 5, 6, 7
TIMEOUT_S = 5.0
KEYS_MAX = 1_000_000

Value = str | dict[str, str] | frozenset[str]
Entries = dict[tuple[int, str], Value]
Command = tuple[str, ...]


def entries(registry: Registry) -> Entries:
    """The keys and values that a registry consists of, by database and key."""
    found: Entries = {(METADATA, "REVISION"): str(registry.revision)}
    for app in registry.applications.values():
        found[APPLICATIONS, app.name] = {
            "input_type": app.input_type,
            "policy": app.policy,
            "default_output": app.default_output,
            "latency_slo_micros": str(app.latency_slo_micros),
            "policy_options": _json(app.policy_options),
            "linked_models": _json(app.linked_models),
        }
        found[STATE, f"{app.name}:0:0"] = _json({"y_hat": app.default_output})
        if app.linked_models:
            found[LINKS, app.name] = frozenset(app.linked_models)
    for model in registry.models.values():
        found[MODELS, model.key] = {
            "model_name": model.model_name,
            "model_version": model.model_version,
            "load": "0.000000",
            "input_type": model.input_type,
            "labels": ",".join(model.labels),
            "container_name": model.container_name,
            "model_data_path": model.model_data_path,
            "batch_size": str(model.batch_size),
            "valid": "",
            "created": str(model.created),
            "endpoint": model.endpoint,
            "batching": _json(model.batching),
        }
    for prefix, versions in (("CURRENT", registry.current), ("PREVIOUS", registry.previous)):
        found |= {(METADATA, f"{prefix}_MODEL_VERSION:{name}"): version for name, version in versions.items()}
    found |= {(METADATA, f"SCALING:{name}"): _json(settings) for name, settings in registry.scaling.items()}
    return found


def registry_of(found: Mapping[tuple[int, str], Value]) -> Registry:
    """The registry that consists of these keys. Raises ValueError for what is none."""
    hashes = {key: value for key, value in found.items() if isinstance(value, dict)}
    texts = {key: value for (database, key), value in found.items() if database == METADATA and isinstance(value, str)}
    models = [_model(value) for (database, _), value in hashes.items() if database == MODELS]
    applications = [_application(key, value) for (database, key), value in hashes.items() if database == APPLICATIONS]
    scaling = _by_name(texts, "SCALING:")
    return Registry(
        revision=int(texts.get("REVISION", "0")),
        applications={app.name: app for app in applications},
        models={model.key: model for model in sorted(models, key=lambda model: model.created)},
        current=_by_name(texts, "CURRENT_MODEL_VERSION:"),
        previous=_by_name(texts, "PREVIOUS_MODEL_VERSION:"),
        scaling={name: msgspec.json.decode(text, type=Autoscale) for name, text in scaling.items()},
    )


def _by_name(texts: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {key.removeprefix(prefix): text for key, text in sorted(texts.items()) if key.startswith(prefix)}


def _application(name: str, value: Mapping[str, str]) -> Application:
    return Application(
        name,
        value["input_type"],
        value["default_output"],
        int(value["latency_slo_micros"]),
        msgspec.json.decode(value.get("linked_models", "[]"), type=tuple[str, ...]),
        value["policy"],
        msgspec.json.decode(value.get("policy_options", "{}"), type=PolicyOptions),
    )


def _model(value: Mapping[str, str]) -> ModelVersion:
    return ModelVersion(
        value["model_name"],
        value["model_version"],
        value["input_type"],
        tuple(label for label in value["labels"].split(",") if label),
        value["container_name"],
        value["model_data_path"],
        int(value["batch_size"]),
        int(value.get("created", "0")),
        value.get("endpoint", ""),
        msgspec.json.decode(value.get("batching", "null"), type=Batching | None),
    )


def changes(before: Entries, after: Entries) -> list[Command]:
    """The commands that turn one into the other."""
    commands: list[Command] = []
    for place in before.keys() - after.keys():
        commands += [("SELECT", str(place[0])), ("DEL", place[1])]
    for place, value in after.items():
        if before.get(place) != value:
            commands += [("SELECT", str(place[0])), *_set(place[1], value, before.get(place))]
    return commands


def _set(key: str, value: Value, old: Value | None) -> list[Command]:
    if isinstance(value, str):
        return [("SET", key, value)]
    if isinstance(value, dict):
        return [("HSET", key, *(text for pair in value.items() for text in pair))]
    known = old if isinstance(old, frozenset) else frozenset()
    gone, new = sorted(known - value), sorted(value - known)
    return [*([("SREM", key, *gone)] if gone else []), *([("SADD", key, *new)] if new else [])]


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


class RedisConnection:
    """One blocking connection; it is made anew when it was lost."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._socket: socket.socket | None = None

    def call(self, commands: Iterable[Command]) -> list[Any]:
        """The answers to some commands, sent together. Raises LepaError(timeout) when Redis is away."""
        sent = list(commands)
        try:
            if self._socket is None:
                self._socket = socket.create_connection(self._address, TIMEOUT_S)
                self._reader = self._socket.makefile("rb")
            self._socket.sendall(b"".join(map(_request, sent)))
            return [self._answer() for _ in sent]
        except (OSError, EOFError) as error:
            self.close()
            raise LepaError("timeout", f"Redis at {self._address[0]}:{self._address[1]} is away: {error}") from error

    def _answer(self) -> Any:
        line = self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise EOFError("it closed the connection")
        kind, text = line[:1], line[1:-2].decode()
        if kind == b"$":
            return None if text == "-1" else self._reader.read(int(text) + 2)[:-2].decode()
        if kind == b"*":
            return None if text == "-1" else [self._answer() for _ in range(int(text))]
        if kind == b":":
            return int(text)
        if kind == b"-":
            return LepaError("internal", f"Redis refused: {text}")
        return text

    def close(self) -> None:
        if self._socket is not None:
            self._reader.close()
            self._socket.close()
            self._socket = None


def _request(command: Command) -> bytes:
    parts = [part.encode() for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


class RedisRegistryStore:
    """A `RegistryStore` at redis://HOST:PORT. May be used by several threads."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme != "redis" or not parts.hostname:
            raise invalid(f'"{url}" is no place for a registry: expected redis://HOST:PORT')
        self._connection = RedisConnection(parts.hostname, parts.port or 6379)
        self._lock = threading.Lock()
        self._saved: Entries = {}

    def load(self) -> Registry:
        with self._lock:
            found = {place: value for db in (MODELS, APPLICATIONS, METADATA, LINKS) for place, value in self._all(db)}
            try:
                registry = registry_of(found)
            except (KeyError, ValueError, msgspec.MsgspecError) as error:
                raise invalid(f"Redis does not hold a registry of Clipper or lepa: {error!r}") from error
            self._saved = {**found, **{k: v for k, v in entries(registry).items() if k[0] == STATE}}
            return registry

    def _all(self, database: int) -> list[tuple[tuple[int, str], Value]]:
        """Every key of a database with its value."""
        keys = self._checked([("SELECT", str(database)), ("KEYS", "*")])[1]
        if len(keys) > KEYS_MAX:
            raise invalid(f"database {database} of Redis holds more than {KEYS_MAX} keys")
        read = {METADATA: "GET", STATE: "GET", LINKS: "SMEMBERS"}.get(database, "HGETALL")
        values = self._checked((read, key) for key in keys)
        return [((database, key), _value(value, read)) for key, value in zip(keys, values, strict=True)]

    def save(self, registry: Registry) -> None:
        with self._lock:
            wanted = entries(registry)
            self._transaction(changes(self._saved, wanted))
            self._saved = wanted

    def load_states(self) -> list[SelectionState]:
        with self._lock:
            texts = [value for (_, key), value in self._all(STATE) if key.endswith(":selection")]
            return [msgspec.json.decode(text, type=SelectionState) for text in texts if isinstance(text, str)]

    def save_learned(self, learned: Learned) -> None:
        sets = [("SET", _selection_key(one.application, one.context), _json(one)) for one in learned.changed]
        gone = [("DEL", _selection_key(*key)) for key in learned.dropped]
        with self._lock:
            self._transaction([("SELECT", str(STATE)), *sets, *gone])

    def forget_states(self, application: str) -> None:
        with self._lock:
            keys = [key for (_, key), _ in self._all(STATE) if key.endswith(":selection")]
            mine = [key for key in keys if key.rsplit(":", 2)[0] == application]
            self._transaction([("SELECT", str(STATE)), *(("DEL", key) for key in mine)])

    def _transaction(self, commands: list[Command]) -> None:
        self._checked([("MULTI",), *commands, ("EXEC",)])

    def _checked(self, commands: Iterable[Command]) -> list[Any]:
        answers = self._connection.call(commands)
        for answer in answers:
            if isinstance(answer, LepaError):
                raise answer
        return answers

    def close(self) -> None:
        self._connection.close()


def _selection_key(application: str, context: str) -> str:
    return f"{application}:{context}:selection"


def _value(answer: Any, read: str) -> Value:
    if read == "HGETALL":
        return dict(zip(answer[::2], answer[1::2], strict=True))
    return frozenset(answer) if read == "SMEMBERS" else str(answer)
