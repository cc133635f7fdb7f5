"""lepa.serving.variables_store and lepa.serving.nomad_api, with variables that are kept here."""

import random
import string
from typing import Any

import pytest

from lepa.model.errors import LepaError, conflict
from lepa.serving import nomad_api
from lepa.serving.nomad_api import NomadApi
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_model
from lepa.serving.selection import ArmState, SelectionState
from lepa.serving.selection_memory import Learned
from lepa.serving.variables_store import PART_BYTES, VariablesRegistryStore

URL = "vars://127.0.0.1:4646/ml/shop"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Variables by path, as the API shows them."""
    found: dict[str, Any] = {}

    def call(self: NomadApi, method: str, path: str, body: Any = None, **query: str) -> Any:
        if path == "/v1/vars":
            return [{"Path": each} for each in sorted(found) if each.startswith(query["prefix"])]
        name = path.removeprefix("/v1/var/")
        if method == "GET":
            if name not in found:
                raise LepaError("not_found", "variable not found")
            return found[name]
        assert method == "PUT"
        assert sum(map(len, body["Items"].values())) < 65_536
        if "cas" in query and int(query["cas"]) != found.get(name, {"ModifyIndex": 0})["ModifyIndex"]:
            raise conflict("cas conflict")
        index = 1 + max((each["ModifyIndex"] for each in found.values()), default=0)
        found[name] = {"Path": name, "Items": body["Items"], "ModifyIndex": index}
        return found[name]

    def read(self: NomadApi, method: str, path: str, body: Any = None, **query: str) -> bytes:
        assert method == "DELETE"
        found.pop(path.removeprefix("/v1/var/"), None)
        return b""

    monkeypatch.setattr(nomad_api.NomadApi, "call", call)
    monkeypatch.setattr(nomad_api.NomadApi, "read", read)
    return found


def large_registry(models: int) -> Registry:
    letters = random.Random(1)
    registry = add_application(Registry(), Application("app", "doubles", "é", 1000))
    for number in range(models):
        label = "".join(letters.choices(string.ascii_letters, k=2000))
        registry = add_model(registry, ModelVersion("m", str(number), "doubles", (label,)))
    return registry


def test_a_registry_larger_than_a_variable_is_loaded_whole(kept: dict[str, Any]) -> None:
    store = VariablesRegistryStore(URL)
    assert store.load() == Registry()
    for models in (100, 1, 60):
        store.save(large_registry(models))
        assert VariablesRegistryStore(URL).load() == large_registry(models)
    assert len([path for path in kept if path.startswith("ml/shop/registry/")]) > 100 * 1500 // PART_BYTES


def test_a_write_that_is_broken_off_leaves_the_old_registry(kept: dict[str, Any]) -> None:
    store = VariablesRegistryStore(URL)
    store.save(large_registry(1))
    head = kept["ml/shop/registry"]
    store.save(large_registry(2))
    kept["ml/shop/registry"] = head
    assert VariablesRegistryStore(URL).load() == large_registry(1)


def test_two_that_write_the_same_registry_are_told(kept: dict[str, Any]) -> None:
    first, second = VariablesRegistryStore(URL), VariablesRegistryStore(URL)
    first.load()
    second.load()
    first.save(Registry(1))
    with pytest.raises(LepaError, match="another management frontend has written ml/shop/registry"):
        second.save(Registry(1))


@pytest.mark.parametrize(
    "change",
    [
        {"ml/shop/registry/1/0": {"body": "no base64!"}},
        {"ml/shop/registry/1/0": {"body": "AAAA"}},
        {"ml/shop/registry": {"side": "1", "parts": "9"}},
        {"ml/shop/registry": {"side": "x"}},
    ],
)
def test_what_is_no_registry_is_refused_by_name(kept: dict[str, Any], change: dict[str, dict[str, str]]) -> None:
    VariablesRegistryStore(URL).save(Registry(1))
    for path, items in change.items():
        kept[path]["Items"] = items
    with pytest.raises(LepaError, match="variable ml/shop/registry does not hold a registry of lepa"):
        VariablesRegistryStore(URL).load()


def test_what_was_learned_is_kept_for_each_context_and_forgotten_with_its_application(kept: dict[str, Any]) -> None:
    store = VariablesRegistryStore(URL)
    states = [SelectionState(app, user, {"m:1": ArmState(1.0, 2.0, 0.5)}, 3) for app in ("a", "b") for user in "12"]
    store.save_learned(Learned(states, []))
    assert sorted(VariablesRegistryStore(URL).load_states(), key=lambda s: (s.application, s.context)) == states
    store.save_learned(Learned([], [("b", "1")]))
    store.forget_states("a")
    assert store.load_states() == [states[3]]
