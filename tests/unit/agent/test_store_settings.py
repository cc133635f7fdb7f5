"""Where a server keeps its state, and what its data directory holds from before."""

from pathlib import Path
from typing import Any

import pytest

from lepa.agent.config import Config
from lepa.agent.config_loader import build
from lepa.agent.store_peers import join_addresses
from lepa.agent.store_settings import (
    RECORD,
    STATE_FILE,
    check_cluster_id,
    check_folder,
    joins,
    kind_of,
    read_record,
    write_record,
)
from lepa.model.errors import LepaError
from lepa.store.formation import Membership, Peer


def built(**server: Any) -> Config:
    return build({"data_dir": "/x", "server": {"enabled": True, **server}}).config


@pytest.mark.parametrize(
    ("server", "kind"),
    [
        ({}, "file"),
        ({"bootstrap_expect": 1}, "file"),
        ({"bootstrap_expect": 1, "retry_join": ["elsewhere"]}, "file"),
        ({"bootstrap_expect": 3}, "own"),
        ({"retry_join": ["10.0.0.1"]}, "own"),
        ({"server_join": {"retry_join": ["10.0.0.1"]}}, "own"),
        ({"server_join": {"retry_join": 5}}, "file"),
        ({"etcd": {"endpoints": ["10.0.0.1:2379"]}}, "external"),
        ({"bootstrap_expect": 3, "etcd": {"endpoints": ["10.0.0.1:2379"]}}, "external"),
    ],
)
def test_where_the_state_is_kept(server: dict[str, Any], kind: str) -> None:
    assert kind_of(built(**server)) == kind


def test_other_servers_are_named_in_any_of_nomads_ways() -> None:
    found = joins(
        built(retry_join=["a"], start_join=["b", "a"], server_join={"retry_join": ["c"], "start_join": ["d"]})
    )
    assert found == ("a", "b", "c", "d")


def test_an_entry_without_a_port_or_with_a_usual_one_means_the_internal_port() -> None:
    entries = [
        "10.0.0.1",
        "10.0.0.2:4648",
        "10.0.0.3:4647",
        "10.0.0.4:14648",
        "name",
        "2001:db8::1",
        "[2001:db8::2]:4648",
        "name",
    ]
    assert join_addresses(entries, 4647, 4648) == (
        "10.0.0.1:4647",
        "10.0.0.2:4647",
        "10.0.0.3:4647",
        "name:4647",
        "[2001:db8::1]:4647",
        "[2001:db8::2]:4647",
    )


def test_the_state_of_a_lone_server_is_not_passed_over(tmp_path: Path) -> None:
    check_folder(tmp_path, "own")
    (tmp_path / STATE_FILE).touch()
    check_folder(tmp_path, "file")
    for kind in ("own", "external"):
        with pytest.raises(LepaError, match=r"state of a server that was alone.*operator snapshot save"):
            check_folder(tmp_path, kind)  # type: ignore[arg-type]


def test_the_state_of_one_of_several_is_not_passed_over(tmp_path: Path) -> None:
    membership = Membership("x", "b", (Peer("b", "r", "p", "c"),))
    write_record(tmp_path, membership)
    assert read_record(tmp_path) == membership
    check_folder(tmp_path, "own")
    with pytest.raises(LepaError, match=r"is of a server with an etcd of its own \(cluster x\)"):
        check_folder(tmp_path, "file")
    (tmp_path / RECORD).write_text("{")
    with pytest.raises(LepaError, match=r"is damaged .*it joins anew"):
        read_record(tmp_path)


def test_an_external_etcd_with_another_state_than_before_is_refused(tmp_path: Path) -> None:
    check_cluster_id(tmp_path, "first")
    check_cluster_id(tmp_path, "first")
    with pytest.raises(LepaError, match="belongs to the cluster first, and the etcd holds second"):
        check_cluster_id(tmp_path, "second")
