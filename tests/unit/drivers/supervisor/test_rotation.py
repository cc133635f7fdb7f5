from lepa.drivers.supervisor.rotation import LINE_BYTES_MAX, Cut, cut, expired, log_number, newest


def test_what_fits_is_written_whole() -> None:
    assert cut(b"abc", size=0, limit=10, mid_line=False) == Cut(3, rotate=False)
    assert cut(b"abc", size=7, limit=10, mid_line=True) == Cut(3, rotate=False)


def test_a_file_ends_after_the_last_line_that_fits() -> None:
    assert cut(b"aaa\nbbb\nccc\n", size=2, limit=10, mid_line=False) == Cut(8, rotate=True)


def test_a_line_that_does_not_fit_goes_to_the_next_file() -> None:
    assert cut(b"a long line\n", size=5, limit=10, mid_line=False) == Cut(0, rotate=True)


def test_a_line_begun_is_finished_in_its_file() -> None:
    assert cut(b"rest of it\nnext", size=9, limit=10, mid_line=True) == Cut(11, rotate=True)
    assert cut(b"no end yet", size=9, limit=10, mid_line=True) == Cut(10, rotate=False)


def test_a_line_longer_than_a_file_and_its_margin_is_cut() -> None:
    endless = b"x" * (3 * LINE_BYTES_MAX)
    first = cut(endless, size=0, limit=10, mid_line=False)
    assert first == Cut(10 + LINE_BYTES_MAX, rotate=True)
    assert cut(endless, size=10 + LINE_BYTES_MAX, limit=10, mid_line=True) == Cut(0, rotate=True)


def test_only_numbered_files_of_the_stream_count() -> None:
    assert log_number("web.stdout.12", "web.stdout") == 12
    for name in ("web.stdout", "web.stdout.x", "web.stderr.1", "web.stdout.1.gz", "web.stdout.²"):
        assert log_number(name, "web.stdout") is None


def test_the_newest_number_is_taken_up_and_the_oldest_files_go() -> None:
    names = ["t.stdout.8", "t.stdout.9", "t.stdout.10", "t.stderr.99", "other"]
    assert newest(names, "t.stdout") == 10
    assert newest([], "t.stdout") == 0
    assert expired(names, "t.stdout", current=11, files_max=3) == ["t.stdout.8"]
    assert expired(names, "t.stdout", current=11, files_max=0) == ["t.stdout.10", "t.stdout.8", "t.stdout.9"]
