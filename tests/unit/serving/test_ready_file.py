"""lepa.serving.ready_file"""

from pathlib import Path

from lepa.serving.ready_file import read_ready_file, write_ready_file


def test_a_ready_file_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "ready.json"
    assert read_ready_file(path) is None
    write_ready_file(path, {"port": 1337})
    assert read_ready_file(path) == {"port": 1337}
    assert list(tmp_path.iterdir()) == [path]
