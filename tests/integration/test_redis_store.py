"""The registry in a real Redis: it survives, under the keys that Clipper's own parts read."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.serving.records import (
    Application,
    ModelVersion,
    Registry,
    add_application,
    add_links,
    add_model,
    delete_links,
)
from lepa.serving.redis_store import RedisConnection, RedisRegistryStore
from lepa.serving.selection import ArmState, SelectionState
from lepa.serving.selection_memory import Learned


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    server = shutil.which("redis-server")
    if server is None:
        pytest.fail("redis-server is missing: run script/debian test", pytrace=False)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found: int = probe.getsockname()[1]
    folder: Path = tmp_path_factory.mktemp("redis")
    options = ["--port", str(found), "--bind", "127.0.0.1", "--save", "", "--dir", str(folder)]
    with subprocess.Popen([server, *options], stdout=subprocess.DEVNULL) as process:
        for _ in range(200):
            try:
                RedisConnection("127.0.0.1", found).call([("PING",)])
                break
            except LepaError:
                time.sleep(0.05)
        yield found
        process.terminate()


def test_a_registry_and_what_was_learned_survive_and_have_clippers_keys(port: int) -> None:
    store = RedisRegistryStore(f"redis://127.0.0.1:{port}")
    assert store.load() == Registry()
    registry = add_application(Registry(), Application("app", "doubles", "-1", 1000))
    registry = add_model(registry, ModelVersion("m", "1", "doubles", ("a",), "image"))
    registry = add_links(registry, "app", ("m",))
    store.save(registry)
    state = SelectionState("app", "7", {"m:1": ArmState(1.0, 2.0, 0.5)}, 3)
    store.save_learned(Learned([state], []))
    store.close()

    again = RedisRegistryStore(f"redis://127.0.0.1:{port}")
    assert again.load() == registry
    assert again.load_states() == [state]

    def read(database: int, *command: str) -> object:
        return RedisConnection("127.0.0.1", port).call([("SELECT", str(database)), command])[1]

    assert read(5, "HGET", "app", "latency_slo_micros") == "1000"
    assert read(2, "HGET", "m:1", "container_name") == "image"
    assert read(6, "GET", "CURRENT_MODEL_VERSION:m") == "1"
    assert read(7, "SMEMBERS", "app") == ["m"]
    assert read(1, "GET", "app:0:0") == '{"y_hat":"-1"}'

    again.save(delete_links(registry, "app", ("m",)))
    assert read(7, "SMEMBERS", "app") == []
    again.forget_states("app")
    assert again.load_states() == []
    again.close()


def test_a_redis_that_holds_something_else_is_refused(port: int) -> None:
    RedisConnection("127.0.0.1", port).call([("SELECT", "5"), ("HSET", "other", "x", "y")])
    with pytest.raises(LepaError, match="does not hold a registry"):
        RedisRegistryStore(f"redis://127.0.0.1:{port}").load()
