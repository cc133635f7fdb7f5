"""lepa.serving.registry_store"""

from pathlib import Path

import pytest

from lepa.model.errors import LepaError
from lepa.serving.records import Application, ModelVersion, Registry, add_application, add_links, add_model
from lepa.serving.registry_store import MemoryRegistryStore, RegistryStore, SqliteRegistryStore


def some_registry() -> Registry:
    registry = add_application(Registry(), Application("app", "doubles", "é", 1000))
    registry = add_model(registry, ModelVersion("m", "1", "doubles", ("a", "b")))
    return add_links(registry, "app", ("m",))


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_what_was_saved_is_loaded(kind: str, tmp_path: Path) -> None:
    store: RegistryStore = MemoryRegistryStore() if kind == "memory" else SqliteRegistryStore(tmp_path / "r.sqlite")
    assert store.load() == Registry()
    store.save(Registry(1))
    store.save(some_registry())
    assert store.load() == some_registry()
    store.close()


def test_a_file_is_read_by_the_next_process(tmp_path: Path) -> None:
    first = SqliteRegistryStore(tmp_path / "data" / "r.sqlite")
    first.save(some_registry())
    first.close()
    second = SqliteRegistryStore(tmp_path / "data" / "r.sqlite")
    assert second.load() == some_registry()
    second.close()


def test_a_file_that_is_not_ours_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "r.sqlite"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(LepaError, match=r"r\.sqlite does not hold a registry of lepa"):
        SqliteRegistryStore(path)


def test_a_registry_that_makes_no_sense_is_refused(tmp_path: Path) -> None:
    store = SqliteRegistryStore(tmp_path / "r.sqlite")
    store._database.execute("INSERT INTO registry VALUES (1, '[]')")
    with pytest.raises(LepaError, match="does not hold a registry"):
        store.load()
    store.close()
