"""Network namespaces with a name; made for real, so as root."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.components import require_root

from lepa.client.network import namespace


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    require_root()
    found = tmp_path / "netns" / "one"
    yield found
    namespace.remove(found)


def test_a_namespace_is_made_with_loopback_and_outlives_its_maker(path: Path) -> None:
    namespace.make(path)
    assert namespace.exists(path)
    heard: list[str] = []

    def look() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()):
            heard.append("loopback")
        heard.extend(name for _, name in socket.if_nameindex())

    namespace.run_inside(path, look)
    assert heard[:2] == ["loopback", "lo"]
    assert "eth0" not in heard


def test_this_process_stays_where_it_is(path: Path) -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    namespace.make(path)
    namespace.run_inside(path, lambda: None)
    assert Path("/proc/thread-self/ns/net").readlink() == before


def test_a_removed_one_leaves_no_file(path: Path) -> None:
    namespace.make(path)
    namespace.remove(path)
    assert not path.exists()
    namespace.remove(path)


def test_a_plain_file_is_what_a_restart_of_the_host_leaves(path: Path) -> None:
    path.parent.mkdir()
    path.touch()
    assert not namespace.exists(path)
    assert not namespace.exists(path.with_name("nothing"))


def test_what_fails_inside_is_told(path: Path) -> None:
    namespace.make(path)

    def fail() -> None:
        raise OSError(5, "no luck")

    with pytest.raises(OSError, match="no luck"):
        namespace.run_inside(path, fail)
