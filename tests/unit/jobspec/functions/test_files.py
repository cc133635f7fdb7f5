import pytest
from tests.calls import refusal, value

FILES = {"a.txt": "hello ${name}", "/home/u/b": "b"}


def read(path: str) -> str:
    if path == "binary":
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")
    if path not in FILES:
        raise FileNotFoundError(2, "No such file or directory")
    return FILES[path]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('file("a.txt")', "hello ${name}"),
        ('file("~/b")', "b"),
        ('filebase64("a.txt")', "aGVsbG8gJHtuYW1lfQ=="),
        ('fileexists("a.txt")', True),
        ('fileexists("c")', False),
        ('fileexists("binary")', True),
        ('pathexpand("~/x")', "/home/u/x"),
        ('pathexpand("x")', "x"),
        ('basename("/a/b.c")', "b.c"),
        ('dirname("/a/b.c")', "/a"),
        ('dirname("b")', "."),
        ('abspath("/a/../b")', "/b"),
    ],
)
def test_file_function(text: str, expected: object) -> None:
    assert value(text, read, "/home/u") == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('file("c")', 'cannot read "c": No such file or directory'),
        ('file("binary")', 'contents of "binary" are not valid UTF-8'),
        ('abspath("a")', '"a" is relative, and to what is not known here'),
    ],
)
def test_what_a_file_function_refuses(text: str, message: str) -> None:
    assert message in refusal(text, read)


@pytest.mark.parametrize(
    "text", ['file("a.txt")', 'fileexists("a.txt")', 'templatefile("a.txt", {})', 'filebase64("a.txt")']
)
def test_without_a_reader_no_file_is_read(text: str) -> None:
    assert "filesystem function disabled" in refusal(text)
