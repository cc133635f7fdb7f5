"""The registry of a management frontend in variables of the cluster: encrypted, and there after a machine is lost.

    {path}/registry              head: the revision, the side and the number of parts
    {path}/registry/{side}/{n}   parts: the registry as compressed JSON in base64, cut to what a variable holds
    {path}/selection/{a}/{c}     what was learned for a context of an application; a, c: digests of their names

A registry is written to the side that is not in use, then the head is turned to it by check-and-set: a reader finds the
old one or the new one, whole. A second management frontend that writes the same registry loses the check and says so,
for its own idea of the registry is then out of date.
"""

import base64
import hashlib
import os
import urllib.parse
import zlib

import msgspec

from lepa.model.errors import LepaError, invalid
from lepa.serving.addresses import parse_address
from lepa.serving.nomad_api import Json, NomadApi
from lepa.serving.records import Registry
from lepa.serving.selection import SelectionState
from lepa.serving.selection_memory import Learned

PART_BYTES = 48_000
"""Of base64 in one variable; a variable holds 64 KiB with everything."""
PARTS_MAX = 1000
REGISTRY_BYTES_MAX = 64 << 20
DEFAULT_PATH = "serving"
TOKEN, NAMESPACE = "NOMAD_TOKEN", "NOMAD_NAMESPACE"


class VariablesRegistryStore:
    """url: vars://HOST:PORT/PATH, an agent's HTTP address and where to keep things. Token and namespace are those of
    the environment."""

    def __init__(self, url: str) -> None:
        parts = urllib.parse.urlsplit(url)
        namespace, token = os.environ.get(NAMESPACE, "default"), os.environ.get(TOKEN, "")
        self._api = NomadApi(parse_address(parts.netloc), namespace, token)
        self._path = parts.path.strip("/") or DEFAULT_PATH
        self._index = 0
        self._side = 0

    def load(self) -> Registry:
        head = self._api.variable(f"{self._path}/registry")
        if head is None:
            return Registry()
        self._index = head["ModifyIndex"]
        items = head["Items"]
        try:
            self._side, count = int(items["side"]), int(items["parts"])
            if not 0 < count <= PARTS_MAX:
                raise ValueError(f"{count} parts")
            text = "".join(self._part(number) for number in range(count))
            return msgspec.json.decode(_unpacked(text), type=Registry)
        except (KeyError, TypeError, ValueError, zlib.error, msgspec.MsgspecError) as error:
            raise invalid(f"variable {self._path}/registry does not hold a registry of lepa: {error!r}") from error

    def _part(self, number: int) -> str:
        found = self._api.variable(self._part_path(self._side, number))
        if found is None:
            raise ValueError(f"part {number} is missing")
        return str(found["Items"]["body"])

    def _part_path(self, side: int, number: int) -> str:
        return f"{self._path}/registry/{side}/{number}"

    def save(self, registry: Registry) -> None:
        text = base64.b64encode(zlib.compress(msgspec.json.encode(registry))).decode()
        pieces = [text[at : at + PART_BYTES] for at in range(0, len(text), PART_BYTES)]
        if len(pieces) > PARTS_MAX:
            raise LepaError("conflict", f"the registry takes {len(pieces)} variables; at most {PARTS_MAX} are written")
        side = 1 - self._side
        for number, piece in enumerate(pieces):
            self._api.put_variable(self._part_path(side, number), {"body": piece})
        items = {"revision": str(registry.revision), "side": str(side), "parts": str(len(pieces))}
        try:
            self._index = self._api.put_variable(f"{self._path}/registry", items, self._index)
        except LepaError as error:
            if error.code != "conflict":
                raise
            raise LepaError(
                "conflict", f"another management frontend has written {self._path}/registry; restart this one"
            ) from error
        self._side = side

    def load_states(self) -> list[SelectionState]:
        paths = self._api.variable_paths(f"{self._path}/selection/")
        found = [self._api.variable(path) for path in paths]
        try:
            return [_state(variable) for variable in found if variable]
        except (KeyError, TypeError, msgspec.MsgspecError) as error:
            raise invalid(f"a variable below {self._path}/selection holds nothing that was learned: {error}") from error

    def save_learned(self, learned: Learned) -> None:
        for state in learned.changed:
            body = msgspec.json.encode(state).decode()
            self._api.put_variable(self._state_path(state.application, state.context), {"body": body})
        for application, context in learned.dropped:
            self._api.delete_variable(self._state_path(application, context))

    def forget_states(self, application: str) -> None:
        for path in self._api.variable_paths(f"{self._path}/selection/{_digest(application)}/"):
            self._api.delete_variable(path)

    def _state_path(self, application: str, context: str) -> str:
        return f"{self._path}/selection/{_digest(application)}/{_digest(context)}"

    def close(self) -> None:
        """Nothing is held."""


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode()).hexdigest()[:32]


def _state(variable: Json) -> SelectionState:
    return msgspec.json.decode(variable["Items"]["body"], type=SelectionState)


def _unpacked(text: str) -> bytes:
    inflate = zlib.decompressobj()
    body = inflate.decompress(base64.b64decode(text), REGISTRY_BYTES_MAX)
    if inflate.unconsumed_tail or not inflate.eof:
        raise ValueError(f"it is cut short, or more than {REGISTRY_BYTES_MAX} bytes")
    return body
