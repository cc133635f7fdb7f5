"""How variables are written in files and shown."""

import json
from pathlib import Path

import pytest

from lepa.cli import variable_spec as v
from lepa.model.errors import LepaError

VARIABLE = {
    "Namespace": "default",
    "Path": "a/b",
    "CreateIndex": 5,
    "ModifyIndex": 7,
    "CreateTime": 1_780_000_000_000_000_000,
    "ModifyTime": 1_780_000_001_000_000_000,
    "Items": {"k": 'say "${x}"', "long key": "%{y}"},
}


def test_every_format_can_be_looked_at(tmp_path: Path) -> None:
    assert v.shown(VARIABLE, "json", None) == json.dumps(VARIABLE, indent=4)
    assert v.shown(VARIABLE, "go-template", "{{.Path}}") == "a/b"
    table = v.shown(VARIABLE, "table", None)
    assert "Check Index = 7" in table
    assert "Lock ID    = x" in v.as_table(VARIABLE | {"Lock": {"ID": "x", "TTL": "15s", "LockDelay": "15s"}})
    path = tmp_path / "again.hcl"
    path.write_text(v.shown(VARIABLE, "hcl", None))
    assert v.read_spec(f"@{path}", "json") == VARIABLE
    with pytest.raises(LepaError, match="needs -template"):
        v.shown(VARIABLE, "go-template", None)


def test_specifications_of_both_languages_and_of_blocks(tmp_path: Path) -> None:
    path = tmp_path / "spec"
    path.write_text('path = "p"\nitems {\n  a = "b"\n}\nlock {\n  ttl = "15s"\n  lock_delay = "20s"\n}\n')
    lock = {"TTL": "15s", "LockDelay": "20s"}
    assert v.read_spec(f"@{path}", "hcl") == {"Path": "p", "Items": {"a": "b"}, "Lock": lock}
    path.write_text('{"path": "p", "Items": {"a": "b"}}')
    assert v.gathered([f"@{path}", "a=c", "d=e"], "json") == {"Path": "p", "Items": {"a": "c", "d": "e"}}
    assert v.gathered(["q", f"@{path}"], "json")["Path"] == "q"
    for text, said in (("[]", "is an object"), ('{"items": 1}', "must be an object"), ('{"x": 1}', "not known")):
        path.write_text(text)
        with pytest.raises(LepaError, match=said):
            v.read_spec(f"@{path}", "json")
    with pytest.raises(LepaError, match="hcl or json"):
        v.read_spec(f"@{path}", "yaml")


def test_conflicts_are_sentences() -> None:
    said = str(v.refused(json.dumps(VARIABLE), 3))
    assert "the check-index 3 does not match the variable's index 7; it was last written at 2026-" in said
    assert "locked" in str(v.refused(json.dumps(VARIABLE | {"Lock": {"TTL": "15s"}}), 3))
    assert str(v.refused("no JSON", 3)) == "no JSON"
    assert str(v.refused("[]", 3)) == "[]"
