"""Rendering of one template."""

from collections.abc import Sequence
from typing import Any

import pytest
from tests.builders import make_service

from lepa.client.hooks.template_text import Need, render, with_delimiters
from lepa.model.errors import LepaError


class World:
    def __init__(self, **services: Sequence[Any]) -> None:
        self.env = {"NAME": "web", "EMPTY": ""}
        self.now_ns = 1_770_000_000_500_000_000
        self._services = services

    def known(self, need: Need) -> Sequence[Any] | None:
        return self._services.get(need.name or need.kind)

    def read_file(self, path: str) -> str:
        return f"<{path}>"


def text(template: str, world: World | None = None, **options: Any) -> str:
    return render(template, world or World(), **options).text


def test_variables_files_and_time() -> None:
    assert text('{{ env "NAME" }}{{ env "NONE" }} {{ envOrDefault "EMPTY" "x" }} {{ file "a" }}') == "web x <a>"
    assert text('{{ timestamp }} {{ timestamp "unix" }}') == "2026-02-02T02:40:00Z 1770000000"
    with pytest.raises(LepaError, match="NONE is not set"):
        text('{{ mustEnv "NONE" }}')


def test_services_that_are_known() -> None:
    db = [make_service("1", port=1, tags=("a",)), make_service("2", port=2, status="critical")]
    world = World(db=db, services=[("db", ("a",))])
    assert text('{{ range nomadService "db" }}{{ .Port }},{{ end }}', world) == "1,2,"
    assert text('{{ range service "db" }}{{ .Port }}{{ end }}', world) == "1"
    assert text('{{ range service "a.db|any" }}{{ .Port }}{{ end }}{{ range service "b.db" }}x{{ end }}', world) == "1"
    assert text('{{ range service "db@dc1" "any" }}{{ .Port }}{{ end }}', world) == "12"
    assert text('{{ range nomadServices }}{{ .Name }}{{ .Tags | join "" }}{{ end }}', world) == "dba"
    assert (
        text('{{ with nomadService "db" }}{{ with index . 0 }}{{ .Address }}{{ end }}{{ end }}', world) == "127.0.0.1"
    )
    assert len(text('{{ range nomadService 1 "key" "db" }}{{ .Port }}{{ end }}', world)) == 1


def test_what_is_not_known_yet_is_missing_and_empty() -> None:
    found = render('{{ range nomadService "db" }}x{{ else }}none{{ end }}{{ nomadServices | len }}', World())
    assert found.text == "none0"
    assert found.missing == found.needs == {Need("service", "db"), Need("services")}


def test_a_missing_key_is_an_error_when_wanted() -> None:
    template = '{{ with "{\\"a\\":1}" | parseJSON }}{{ .a }}{{ .b }}{{ end }}'
    assert text(template) == "1<no value>"
    with pytest.raises(LepaError, match='no entry for key "b"'):
        text(template, strict=True)


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{{ executeTemplate }}", "not allowed"),
        ('{{ key "x" }}', "a key-value store"),
        ('{{ secret "x" }}', "a secret store"),
        ('{{ nomadService "a" "b" }}', "expected a name"),
        ("{{ nope }}", "nope"),
        ("line\n{{ end }}", "line 2"),
    ],
)
def test_errors_say_what_is_wrong(template: str, said: str) -> None:
    with pytest.raises(LepaError, match=said):
        text(template)


def test_other_delimiters() -> None:
    assert text('<< env "NAME" >> {{ env "NAME" }} }}', left="<<", right=">>") == 'web {{ env "NAME" }} }}'
    assert with_delimiters("a [[ `]]` ]] b", "[[", "]]") == "a {{ `]]` }} b"
    assert with_delimiters('[["\\"]]"]]', "[[", "]]") == '{{"\\"]]"}}'
    with pytest.raises(LepaError, match='not closed by "]]"'):
        with_delimiters("[[ x", "[[", "]]")
