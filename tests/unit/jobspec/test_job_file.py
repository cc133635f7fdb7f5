"""lepa.jobspec.job_file and lepa.jobspec.json_text."""

import json

import pytest

from lepa.jobspec import job_file, parse


def test_a_job_file_becomes_the_apis_json() -> None:
    found = parse(
        'job "x" {\n group "g" {\n task "t" {\n driver = "raw_exec"\n config { command = "/bin/true" }\n }\n }\n}\n'
    )
    task = {"Name": "t", "Driver": "raw_exec", "Config": {"command": "/bin/true"}}
    assert found.job == {"ID": "x", "Name": "x", "TaskGroups": [{"Name": "g", "Tasks": [task]}]}
    assert (found.diagnostics, found.warnings, found.message) == ((), (), "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "f:1,1-1: Missing job block"),
        ("locals {}\n", "f:2,1-1: Missing job block"),
        (
            'job "a" {}\njob "b" {}\n',
            'f:2,1-4: Duplicate job block; Only one job block is allowed, but there is also job "b". The',
        ),
        ("job {}\n", "f:1,1-4: Missing name for job"),
        ('x = 1\njob "a" {}\n', 'f:1,1-2: Unsupported argument; An argument named "x" is not expected here.'),
        (
            'volume "x" {}\njob "a" {}\n',
            'f:1,1-7: Unsupported block type; Blocks of type "volume" are not expected here.',
        ),
        ('job "a" {\n', "f:1,9-10: Unclosed configuration block"),
    ],
)
def test_what_is_no_job_file_is_refused(text: str, message: str) -> None:
    found = parse(text, filename="f")
    assert found.job is None
    assert message in found.message


@pytest.mark.parametrize(
    "wrapped", [{"ID": "x", "Count": 1}, {"Job": {"ID": "x", "Count": 1}}, {"job": {"ID": "x", "Count": 1}}]
)
def test_json_may_be_bare_or_wrapped(wrapped: dict[str, object]) -> None:
    assert parse(f"\n \t{json.dumps(wrapped)}").job == {"ID": "x", "Count": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"Job": {\n"ID": }}', "f:2,7-8: Invalid JSON; Expecting value."),
        ('{"Job": 5}', 'f:1,1-2: Invalid job; The value of "Job" must be an object.'),
        ('{"job": {"web": {"group": {}}}}', "HCL as JSON is not read; Write HCL, or the API's JSON"),
        ('{"a": Infinity}', "Infinity is not a number in JSON"),
        ('{"a": ' + "[" * 100_000, "The values are nested too deeply."),
        ('{"a": ' + "[" * 500 + "]" * 500 + "}", "nested more than 100 levels deep"),
        ('{"a": ' + "9" * 5000 + "}", "Invalid JSON"),
        ('{"a": 1} x', "Extra data"),
    ],
)
def test_broken_json_is_refused(text: str, message: str) -> None:
    found = parse(text, filename="f")
    assert found.job is None
    assert message in found.message


def test_a_file_that_is_too_large_is_refused() -> None:
    assert "File too large" in parse(" " * (job_file.HCL_SIZE_MAX + 1)).message
    assert "File too large" in parse("{" + " " * job_file.JSON_SIZE_MAX).message


def test_hcl1_is_refused() -> None:
    assert "HCL1 is not supported" in parse('job "x" {}', hcl1=True).message


def test_files_are_read_by_the_callers_function_or_not_at_all() -> None:
    text = 'job "x" {\n meta { a = file("~/a.txt") }\n}\n'
    assert parse(text, read_file=lambda path: f"<{path}>", env={"HOME": "/root"}).job == {
        "ID": "x",
        "Name": "x",
        "Meta": {"a": "</root/a.txt>"},
    }
    assert "filesystem function disabled" in parse(text).message


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            'printf "%{foo"',
            "f:6,9-11: Unclosed template sequence; There is no closing brace for this %{ before",
        ),
        (
            'printf "${foo"',
            "f:6,9-11: Unclosed template sequence; There is no closing brace for this ${ before",
        ),
        ("curl -w %{http_code}", 'f:6,11-20: Invalid template control keyword; "http_code" is not a valid template'),
        ("echo ${X:-5}", "f:6,9-10: Extra characters after expression; "),
    ],
)
def test_a_sequence_that_was_meant_literally_is_named_with_its_line(line: str, message: str) -> None:
    """B091: in a heredoc, where it may hide the closing marker and everything after it."""
    text = 'job "j" {{\n group "g" {{\n task "t" {{\n template {{\n data = <<EOH\n{}\nEOH\n}}\n}}\n}}\n}}\n'
    found = parse(text.format(line), filename="f")
    assert [each.render()[: len(message)] for each in found.diagnostics] == [message]
    doubled = parse(text.format(line.replace("%{", "%%{").replace("${", "$${")))
    assert doubled.job is not None
    template = doubled.job["TaskGroups"][0]["Tasks"][0]["Templates"][0]
    assert template == {"EmbeddedTmpl": f"{line}\n"}


def test_variables_may_be_used_everywhere() -> None:
    """B097."""
    text = """
    variable "n" { default = 2 }
    variable "s" { default = "x" }
    job "j" {
      datacenters = ["${var.s}1"]
      constraint { value = var.s }
      group "g" {
        count = var.n
        service { tags = [var.s, "v=${var.n}"] }
        task "t" {
          resources { cpu = var.n * 100 }
          artifact { source = "http://${var.s}/" }
          template { data = "${var.s} {{ env \\"X\\" }}" }
        }
      }
    }"""
    found = parse(text)
    assert found.job is not None, found.message
    group = found.job["TaskGroups"][0]
    assert found.job["Datacenters"] == ["x1"]
    assert found.job["Constraints"][0]["RTarget"] == "x"
    assert group["Count"] == 2
    assert group["Services"] == [{"Tags": ["x", "v=2"]}]
    assert group["Tasks"][0]["Resources"] == {"CPU": 200}
    assert group["Tasks"][0]["Artifacts"] == [{"GetterSource": "http://x/"}]
    assert group["Tasks"][0]["Templates"] == [{"EmbeddedTmpl": 'x {{ env "X" }}'}]
