"""Root keys come, take over and go."""

import pytest
from tests.world import World

from lepa.model.acl import RootKey, Variable
from lepa.model.errors import LepaError
from lepa.state.commands import keyring
from lepa.state.commands.variables import apply_variable


def states(world: World) -> dict[str, str]:
    return {key.key_id: key.state for key in world.snapshot.root_keys()}


def test_a_new_key_takes_over() -> None:
    world = World()
    world.do(keyring.add_key, RootKey(key_id="a"))
    world.do(keyring.add_key, RootKey(key_id="b"))
    assert states(world) == {"a": "inactive", "b": "active"}


def test_a_prepublished_key_waits_for_its_time() -> None:
    world = World()
    world.do(keyring.add_key, RootKey(key_id="a"))
    world.do(keyring.add_key, RootKey(key_id="b", state="prepublished"))
    assert states(world) == {"a": "active", "b": "prepublished"}
    world.do(keyring.activate, "b")
    assert states(world) == {"a": "inactive", "b": "active"}


def test_a_key_that_is_needed_stays() -> None:
    world = World()
    world.do(keyring.add_key, RootKey(key_id="a"))
    with pytest.raises(LepaError, match="active root key"):
        world.do(keyring.delete_key, "a", force=True)
    world.do(apply_variable, "set", Variable(namespace="default", path="p", key_id="a", data=b"x"))
    world.do(keyring.add_key, RootKey(key_id="b"))
    with pytest.raises(LepaError, match="in use"):
        world.do(keyring.delete_key, "a", force=False)
    world.do(keyring.delete_key, "a", force=True)
    assert states(world) == {"b": "active"}
    with pytest.raises(LepaError, match="not found"):
        world.do(keyring.delete_key, "a", force=False)


def test_only_old_keys_are_replaced_everywhere() -> None:
    world = World()
    world.do(keyring.add_key, RootKey(key_id="a"))
    world.do(keyring.mark_rekeying, "a")
    assert states(world) == {"a": "active"}
    world.do(keyring.add_key, RootKey(key_id="b"))
    world.do(keyring.mark_rekeying, "a")
    assert states(world)["a"] == "rekeying"
    world.do(keyring.mark_rekeyed, "a")
    assert states(world)["a"] == "inactive"
