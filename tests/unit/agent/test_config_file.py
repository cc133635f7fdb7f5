"""Configuration files as nested dicts."""

from pathlib import Path

import pytest

from lepa.agent.config_file import load, merge, parse
from lepa.model.errors import LepaError


def test_blocks_become_dicts_and_labels_keys() -> None:
    assert parse('plugin "docker" {\nconfig { a = [1, "x"] }\n}', "f") == {
        "plugin": {"docker": {"config": {"a": [1, "x"]}}}
    }


def test_json_is_taken_as_it_is() -> None:
    assert parse('{"ports": {"http": 1}}', "f") == {"ports": {"http": 1}}


def test_maps_are_joined_lists_appended_and_the_rest_overridden() -> None:
    under = {"a": {"x": 1, "y": 2}, "l": ["p"], "s": 1}
    assert merge(under, {"a": {"y": 3}, "l": ["q", "p"], "s": 2}) == {"a": {"x": 1, "y": 3}, "l": ["p", "q"], "s": 2}


def test_a_directorys_files_are_read_in_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "b.hcl").write_text('name = "b"')
    (tmp_path / "a.hcl").write_text('name = "a"\nregion = "r"')
    (tmp_path / "ignored.txt").write_text("}")
    assert load([tmp_path]) == {"name": "b", "region": "r"}


@pytest.mark.parametrize("text", ["ports {", "a = ", "a = var.x", '{"a": '])
def test_mistakes_are_told_with_file_line_and_column(text: str) -> None:
    with pytest.raises(LepaError, match=r"agent.hcl:1,\d+"):
        parse(text, "agent.hcl")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match=r"cannot read configuration .*nowhere.hcl: No such file"):
        load([tmp_path / "nowhere.hcl"])


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.hcl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LepaError, match="not UTF-8 text"):
        load([tmp_path / "x.hcl"])
