"""lepa.jobspec.mapping, with the tables of lepa.jobspec.schema."""

from typing import Any

import pytest

from lepa.jobspec import parse
from lepa.jobspec.mapping import distance


def job(body: str) -> dict[str, Any]:
    found = parse(f'job "j" {{\n{body}\n}}\n', filename="j")
    assert found.job is not None, found.message
    return found.job


def problems(body: str) -> list[str]:
    found = parse(f'job "j" {{\n{body}\n}}\n', filename="j")
    assert (found.job is None) == bool(found.diagnostics)
    return [each.render() for each in found.diagnostics]


def task(body: str) -> dict[str, Any]:
    found: dict[str, Any] = job(f'group "g" {{\n task "t" {{\n{body}\n }}\n}}')["TaskGroups"][0]["Tasks"][0]
    return found


def test_only_what_the_file_sets_is_in_the_job() -> None:
    assert job("") == {"ID": "j", "Name": "j"}
    assert job('group "g" {}')["TaskGroups"] == [{"Name": "g"}]


def test_attributes_have_the_keys_and_types_of_the_api() -> None:
    body = 'priority = "70"\nall_at_once = "true"\ndatacenters = ["a", 1]\ntype = "batch"\nregion = null'
    assert job(body) == {
        "ID": "j",
        "Name": "j",
        "Priority": 70,
        "AllAtOnce": True,
        "Datacenters": ["a", "1"],
        "Type": "batch",
    }


@pytest.mark.parametrize(
    ("text", "ns"), [('"30s"', 30 * 10**9), ('"1h30m"', 5400 * 10**9), ("5000000000", 5 * 10**9), ('"0"', 0)]
)
def test_durations_are_nanoseconds(text: str, ns: int) -> None:
    assert task(f"kill_timeout = {text}")["KillTimeout"] == ns


def test_maps_may_be_blocks_or_arguments() -> None:
    assert task("env {\n A = 1\n B = true\n}")["Env"] == {"A": "1", "B": "true"}
    assert task('env = {"a.b" = "c", d.e = 2}')["Env"] == {"a.b": "c", "d.e": "2"}


@pytest.mark.parametrize("name", ["env", "meta"])
def test_texts_by_name_are_a_block_or_a_map_and_the_map_takes_any_name(name: str) -> None:
    """B096."""
    assert task(f'{name} {{\n a = "c"\n}}')[name.capitalize()] == {"a": "c"}
    assert task(f'{name} = {{"a.b" = "c", "d-e/f g" = "h"}}')[name.capitalize()] == {"a.b": "c", "d-e/f g": "h"}
    assert task("meta {\n a = null\n}")["Meta"] == {}


def test_the_config_of_a_driver_is_taken_as_it_is() -> None:
    config = """config {
      image = "x"
      ports = ["a", 1, true]
      port_map { db = 1234 }
      mount {
        type = "bind"
        options { size = 5 }
      }
      mount {
        type = "tmpfs"
      }
      labels "a" "b" {
        c = 1.5
      }
    }"""
    assert task(config)["Config"] == {
        "image": "x",
        "ports": ["a", 1, True],
        "port_map": [{"db": 1234}],
        "mount": [{"type": "bind", "options": [{"size": 5}]}, {"type": "tmpfs"}],
        "labels": [{"a": [{"b": [{"c": 1.5}]}]}],
    }
    assert task("config = { a = {b = [1]} }")["Config"] == {"a": {"b": [1]}}


def test_blocks_are_objects_lists_or_objects_by_label() -> None:
    found = job(
        """group "g" {
          restart { attempts = 1 }
          volume "a" { type = "host" }
          volume "b" { type = "csi" }
          task "one" {}
          task "two" {}
        }"""
    )["TaskGroups"][0]
    logs = task('logs {\n ship "team" { type = "loki" }\n }')["LogConfig"]
    assert logs == {"Ship": [{"Name": "team", "Type": "loki"}]}
    assert found == {
        "Name": "g",
        "RestartPolicy": {"Attempts": 1},
        "Volumes": {"a": {"Name": "a", "Type": "host"}, "b": {"Name": "b", "Type": "csi"}},
        "Tasks": [{"Name": "one"}, {"Name": "two"}],
    }


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("cuont = 1", 'j:2,1-6: Unsupported argument; An argument named "cuont" is not expected here.'),
        ("datacentres = []", 'Did you mean "datacenters"?'),
        ("group = 5", 'Did you mean to define a block of type "group"?'),
        ("grp {}", "Unsupported block type"),
        ("gruop {}", 'Blocks of type "gruop" are not expected here. Did you mean "group"?'),
        ("priority {}", "Then use an equals sign: priority = value."),
        ("group {}", 'j:2,1-6: Missing name for group; All group blocks must have 1 label (name): group "name"'),
        ('group "a" "b" {}', "Extraneous label for group; For group blocks one label (the name) is expected"),
        ('update "x" {}', "For update blocks no labels are expected"),
        (
            "update {}\nupdate {}",
            "j:3,1-7: Duplicate update block; Only one update block is allowed. Another was defined at j:2,1-7.",
        ),
        ("meta {}\nmeta {}", "Duplicate meta block"),
        ("meta = {}\nmeta {}", "Duplicate meta block"),
        ('meta "x" {}', "Extraneous label for meta"),
        ("meta {\n a {}\n}", "Unexpected block; Only arguments (name = value) are expected in meta."),
        ("meta = []", 'Unsuitable value for "meta": a map of strings is required, but have list.'),
        ("priority = 1.5", "value must be a whole number"),
        (
            'priority = "high"',
            'j:2,12-18: Incorrect attribute value type; Unsuitable value for "priority": a number is required',
        ),
        ("priority = 99999999999999999999", "out of the range of 64 bits"),
        ("all_at_once = 5", "bool required, but have number"),
        ('datacenters = "dc1"', "a list of strings is required, but have string"),
        ("datacenters = [[]]", "element 0: string required, but have list"),
        ("type = []", "string required, but have list"),
        ('group "g" {\n shutdown_delay = "5"\n}', 'invalid duration "5": expected a number with a unit'),
        pytest.param(
            'group "g" {\n scaling {\n  min = 1\n }\n}',
            'Missing required argument; The argument "max" is required in scaling',
            id="B113",
        ),
        ('group "g" {\n volume "a" {}\n volume "a" {}\n}', "Duplicate volume block"),
        ('group "g" {\n task "t" {\n  config = 5\n }\n}', "an object is required, but have number"),
        ('group "g" {\n task "t" {\n  config {\n a = 1\n a {}\n }\n }\n}', "Duplicate a block"),
        ('group "g" {\n task "t" {\n  service = 5\n }\n}', 'Did you mean to define a block of type "service"?'),
        ('group "g" {\n service {\n check {\n header {\n A = "x"\n}\n}\n}\n}', "a list of strings is required"),
        ('group "g" {\n service {\n check {\n header = {A = [5]}\n}\n}\n}', "a list of strings is required"),
        ('group "g" {\n service {\n check {\n header = 5\n}\n}\n}', "a map of lists of strings is required"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(body: str, message: str) -> None:
    """B099: `service = 5`, and others of its kind."""
    found = problems(body)
    assert len(found) == 1, found
    assert message in found[0]


def test_all_mistakes_are_told_at_once() -> None:
    found = problems('priority = "x"\ncuont = 1\ngroup "g" {\n count = []\n task {}\n}\nupdate {\n stagger = "1"\n}')
    assert [each.split(":")[1].split(",")[0] for each in found] == ["2", "3", "5", "6", "9"]


# Dynamic blocks


def test_a_dynamic_block_makes_a_block_for_each_element() -> None:
    body = """group "g" {
      network {
        dynamic "port" {
          for_each = {http = 80, db = 0}
          labels   = [port.key]
          content {
            static = port.value
          }
        }
      }
    }"""
    assert job(body)["TaskGroups"][0]["Networks"] == [
        {"DynamicPorts": [{"Label": "db", "Value": 0}], "ReservedPorts": [{"Label": "http", "Value": 80}]}
    ]


def test_a_dynamic_block_may_name_its_iterator_and_be_inside_another() -> None:
    body = """dynamic "group" {
      for_each = ["a", "b"]
      iterator = g
      labels   = ["g-${g.value}"]
      content {
        count = g.key
        dynamic "task" {
          for_each = convert(["x"], set(string))
          labels   = ["${g.value}-${task.value}"]
          content {}
        }
      }
    }"""
    assert job(body)["TaskGroups"] == [
        {"Name": "g-a", "Count": 0, "Tasks": [{"Name": "a-x"}]},
        {"Name": "g-b", "Count": 1, "Tasks": [{"Name": "b-x"}]},
    ]


@pytest.mark.parametrize(
    ("text", "place", "name"),
    [
        ("\njob {}\n", "j:2,1-4", "job"),
        ('job "x" {\n\n group {}\n}\n', "j:3,2-7", "group"),
        ('job "x" {\n group "g" {\n  task {}\n }\n}\n', "j:3,3-7", "task"),
    ],
)
def test_a_missing_name_is_told_with_its_line(text: str, place: str, name: str) -> None:
    """B100."""
    found = parse(text, filename="j")
    assert found.job is None
    (problem,) = found.diagnostics
    assert problem.render().startswith(f"{place}: Missing name for {name};")


def test_a_dynamic_block_works_in_a_driver_config() -> None:
    body = 'config {\n dynamic "mount" {\n for_each = [1, 2]\n content {\n size = mount.value\n}\n}\n}'
    assert task(body)["Config"] == {"mount": [{"size": 1}, {"size": 2}]}


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("dynamic {}", "Missing name for dynamic"),
        ('dynamic "group" {\n for_each = []\n}', 'needs exactly one block "content"'),
        ('dynamic "group" {\n content {}\n}', 'The argument "for_each" is required in dynamic "group"'),
        (
            'dynamic "group" {\n for_each = []\n x = 1\n content {}\n}',
            'An argument named "x" is not expected in dynamic',
        ),
        ('dynamic "group" {\n for_each = []\n iterator = "x"\n content {}\n}', "The iterator is a bare name"),
        ('dynamic "group" {\n for_each = 5\n content {}\n}', "Iteration over non-iterable value"),
        ('dynamic "group" {\n for_each = [1]\n labels = 5\n content {}\n}', "Invalid dynamic block label"),
        ('dynamic "group" {\n for_each = [1]\n content {}\n}', "Missing name for group"),
        ('dynamic "group" {\n for_each = var.x\n content {}\n}', 'named "x" has not been declared'),
    ],
)
def test_a_broken_dynamic_block_is_refused(body: str, message: str) -> None:
    found = problems(body)
    assert len(found) == 1, found
    assert message in found[0]


def test_the_number_of_blocks_is_bounded() -> None:
    body = 'dynamic "group" {\n for_each = range(1000)\n labels = ["g"]\n content {\n'
    body += 'dynamic "task" {\n for_each = range(1000)\n labels = ["t"]\n content {}\n}\n}\n}'
    assert "The file comes to more than 20000 blocks." in problems(body)[0]


def test_names_are_close_when_few_letters_differ() -> None:
    assert distance("count", "count") == 0
    assert distance("cuont", "count") == 2
    assert distance("tag", "tags") == 1
    assert distance("a", "abcd") == 9


def test_a_word_without_quotes_is_no_name_of_a_driver() -> None:
    found = problems('group "g" {\n task "t" {\n driver = docker\n }\n}')
    assert len(found) == 1, found
    assert 'Did you mean the text "docker", in quotes?' in found[0]


@pytest.mark.parametrize("value", ["attr.kernel.name", "NOMAD_PORT_http", '"${word}"', '"a=${word}"'])
def test_what_only_the_node_knows_needs_no_quotes(value: str) -> None:
    assert problems(f'meta {{\n a = {value}\n}}\ngroup "g" {{\n}}') == []
