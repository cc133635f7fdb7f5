"""lepa.serving.redis_store: what is written; against a real server in tests/integration/test_redis_store.py"""

import pytest

from lepa.model.errors import LepaError
from lepa.serving.autoscale import Autoscale
from lepa.serving.records import (
    Application,
    ModelVersion,
    Registry,
    add_application,
    add_links,
    add_model,
    delete_application,
    set_autoscale,
    set_policy,
)
from lepa.serving.redis_store import RedisRegistryStore, changes, entries, registry_of
from lepa.serving.selection import PolicyOptions


def registry() -> Registry:
    found = add_application(Registry(), Application("app", "doubles", "-1", 1000))
    found = set_policy(found, "app", "majority", PolicyOptions(confidence_min=0.5))
    for name, version in (("n", "1"), ("m", "1"), ("m", "2")):
        found = add_model(found, ModelVersion(name, version, "doubles", ("a", "b"), "image"))
    return set_autoscale(add_links(found, "app", ("n", "m")), "m", Autoscale(replicas_min=0))


def test_a_registry_is_what_its_keys_say() -> None:
    assert registry_of(entries(registry())) == registry()
    assert registry_of({}) == Registry()


def test_keys_and_fields_are_clippers() -> None:
    found = entries(registry())
    assert found[6, "CURRENT_MODEL_VERSION:m"] == "2"
    assert found[7, "app"] == {"n", "m"}
    assert found[1, "app:0:0"] == '{"y_hat":"-1"}'
    model = found[2, "m:2"]
    assert isinstance(model, dict)
    assert (model["labels"], model["load"], model["valid"], model["batch_size"]) == ("a,b", "0.000000", "", "-1")


def test_only_what_has_changed_is_written() -> None:
    before = registry()
    after = delete_application(before, "app")
    commands = changes(entries(before), entries(after))
    assert set(commands) == {
        ("SELECT", "1"),
        ("DEL", "app:0:0"),
        ("SELECT", "5"),
        ("SELECT", "7"),
        ("DEL", "app"),
        ("SELECT", "6"),
        ("SET", "REVISION", str(after.revision)),
    }
    assert changes(entries(before), entries(before)) == []


def test_places_that_are_no_redis_and_a_redis_that_is_away_are_said() -> None:
    with pytest.raises(LepaError, match="expected redis://HOST:PORT"):
        RedisRegistryStore("http://a")
    with pytest.raises(LepaError, match=r"Redis at 127\.0\.0\.1:1 is away"):
        RedisRegistryStore("redis://127.0.0.1:1").load()
