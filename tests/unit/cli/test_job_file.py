"""Reading and formatting job files."""

import io
import sys
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run

from lepa.cli.job_file import read_job
from lepa.jobspec import parse
from lepa.model.errors import LepaError

TEXT = 'job "web" {\n  group "page" {\n    count = var.n\n  }\n}\nvariable "n" { default = 1 }\n'
UNTIDY = 'job   "web" {\ntype="batch"\n}\n'
TIDY = 'job "web" {\n  type = "batch"\n}\n'


def test_variables_come_from_flags_files_and_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """B093: the later wins."""
    path, values = tmp_path / "web.nomad.hcl", tmp_path / "values.hcl"
    path.write_text(TEXT)
    values.write_text("n = 3\n")

    def count(*flags: str, files: tuple[str, ...] = ()) -> int:
        return int(read_job(str(path), flags, files).job["TaskGroups"][0]["Count"])

    assert count() == 1
    monkeypatch.setenv("NOMAD_VAR_n", "2")
    assert count() == 2
    assert count(files=(str(values),)) == 3
    assert count("n=4", files=(str(values),)) == 4


def test_the_text_and_its_variables_are_kept_with_the_job(tmp_path: Path) -> None:
    path, values = tmp_path / "web.nomad.hcl", tmp_path / "values.hcl"
    path.write_text(TEXT)
    values.write_text("n = 3\n")
    assert read_job(str(path), ["n=4"], [str(values)]).submission == {
        "Source": TEXT,
        "Format": "hcl2",
        "VariableFlags": {"n": "4"},
        "Variables": "n = 3\n",
    }


def test_what_several_files_and_the_environment_say_is_kept_as_one_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B094: what is kept gives the same job, wherever it is read again."""
    path, first, second = tmp_path / "web.nomad.hcl", tmp_path / "first.hcl", tmp_path / "second.json"
    path.write_text(TEXT + 'variable "where" { type = list(string) }\nvariable "note" {}\n')
    first.write_text('n = 3\nnote = "first"\n')
    second.write_text('{"n": 4}')
    monkeypatch.setenv("NOMAD_VAR_where", '["a", "b"]')
    monkeypatch.setenv("NOMAD_VAR_note", "environment")
    kept = read_job(str(path), [], [str(first), str(second)])
    assert kept.submission["Variables"] == 'n = 4\nnote = "first"\nwhere = ["a", "b"]\n'
    monkeypatch.undo()
    assert parse(path.read_text(), var_files=[("kept", kept.submission["Variables"])]).job == kept.job


def test_json_is_a_job_file_too(tmp_path: Path) -> None:
    path = tmp_path / "web.json"
    path.write_text('{"Job": {"ID": "web"}}')
    read = read_job(str(path), json=True)
    assert (read.job["ID"], read.submission["Format"]) == ("web", "json")
    path.write_text(TEXT)
    with pytest.raises(LepaError, match="which -json promises"):
        read_job(str(path), json=True)


def test_a_job_may_come_through_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert read_job("-").job["ID"] == "web"


def test_files_are_read_beside_the_job_file(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("hello")
    path = tmp_path / "web.nomad.hcl"
    path.write_text('job "web" {\n  meta {\n    note = file("note.txt")\n  }\n}\n')
    assert read_job(str(path)).job["Meta"] == {"note": "hello"}


def test_mistakes_are_shown_with_the_line_and_a_caret(tmp_path: Path) -> None:
    path = tmp_path / "web.nomad.hcl"
    path.write_text('job "web" {\n  tpye = "batch"\n}\n')
    with pytest.raises(LepaError) as caught:
        read_job(str(path))
    assert '2 |   tpye = "batch"\n  |   ^' in caught.value.message


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (None, (), "No such file or directory"),
        (b"\xff\xfe", (), "is not UTF-8 text"),
        (b"", ("novalue",), "-var wants name=value"),
    ],
)
def test_unreadable_input_is_a_sentence(
    tmp_path: Path, content: bytes | None, flags: tuple[str, ...], message: str
) -> None:
    path = tmp_path / "web.nomad.hcl"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(LepaError, match=message):
        read_job(str(path), flags)


def test_an_address_that_nobody_answers_is_a_sentence() -> None:
    with pytest.raises(LepaError, match=r"cannot download http://127\.0\.0\.1:1/x"):
        read_job("http://127.0.0.1:1/x")


# lepa fmt


def test_fmt_writes_what_it_changes_and_names_it(tmp_path: Path, lepa: Run) -> None:
    path = tmp_path / "a.hcl"
    path.write_text(UNTIDY)
    assert lepa("fmt", str(path)).out == f"{path}\n"
    assert path.read_text() == TIDY
    assert lepa("fmt", str(path)).out == ""


def test_fmt_check_touches_nothing(tmp_path: Path, lepa: Run) -> None:
    path = tmp_path / "a.hcl"
    path.write_text(UNTIDY)
    assert lepa("fmt", "-check", str(path)).code == 1
    assert path.read_text() == UNTIDY
    path.write_text(TIDY)
    assert lepa("fmt", "-check", str(path)).code == 0


def test_fmt_looks_into_directories(tmp_path: Path, lepa: Run) -> None:
    below = tmp_path / "below"
    below.mkdir()
    for path in (tmp_path / "a.nomad", below / "b.hcl", tmp_path / "c.txt"):
        path.write_text(UNTIDY)
    assert lepa("fmt", "-check", str(tmp_path)).out == f"{tmp_path / 'a.nomad'}\n"
    assert lepa("fmt", "-check", "-recursive", str(tmp_path)).out.count("\n") == 2


def test_fmt_of_standard_input_adds_nothing(lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """B133."""
    for text in (TIDY, UNTIDY):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert lepa("fmt", "-").out == TIDY


def test_fmt_can_print_instead(tmp_path: Path, lepa: Run) -> None:
    path = tmp_path / "a.hcl"
    path.write_text(UNTIDY)
    assert lepa("fmt", "-write=false", str(path)).out == TIDY
    assert path.read_text() == UNTIDY


def test_fmt_refuses_what_it_cannot_read(tmp_path: Path, lepa: Run) -> None:
    path = tmp_path / "a.hcl"
    path.write_text('job "web" {\n')
    done = lepa("fmt", str(path), str(tmp_path / "none.hcl"))
    assert done.code == 1
    assert "a.hcl:1:" in done.error
    assert lepa("fmt", str(tmp_path / "none.hcl")).error.endswith("none.hcl: No such file or directory\n")
