from pathlib import Path

from lepa.drivers.docker_logs import Position, Seen

EARLY, STAMP, LATE = (f"2026-01-31T12:00:00.00000000{digit}Z" for digit in (1, 5, 9))


def test_what_was_copied_is_passed_over_and_the_rest_is_new() -> None:
    seen = Seen(STAMP, 2)
    assert [seen.passes(stamp) for stamp in (EARLY, STAMP, STAMP, STAMP, LATE)] == [False, False, False, True, True]


def test_without_a_position_everything_is_new() -> None:
    assert Seen("", 0).passes(EARLY)
    assert Seen("", 0).since == "0"


def test_docker_is_asked_in_seconds_and_nanoseconds() -> None:
    assert Seen(STAMP, 1).since == "1769860800.000000005"


def test_a_position_survives_its_writer(tmp_path: Path) -> None:
    path = str(tmp_path / "logs" / "task")
    position = Position(path)
    for stamp in (EARLY, STAMP, STAMP):
        position.note(stamp)
    position.close()
    again = Position(path).copy()
    assert [again.passes(stamp) for stamp in (STAMP, STAMP, STAMP)] == [False, False, True]


def test_a_damaged_position_means_from_the_beginning(tmp_path: Path) -> None:
    (tmp_path / "task").write_text("rubbish")
    assert Position(str(tmp_path / "task")).copy().since == "0"
