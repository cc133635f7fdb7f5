"""The tables: lepa.jobspec.job_blocks, lepa.jobspec.service_blocks and lepa.jobspec.connect_blocks."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lepa.jobspec import parse
from lepa.jobspec.job_blocks import JOB
from lepa.jobspec.schema import BlockSchema, Kind

EXAMPLES = {
    Kind.STRING: '"text"',
    Kind.BOOL: "true",
    Kind.INT: "7",
    Kind.DURATION: '"7s"',
    Kind.STRINGS: '["text"]',
    Kind.INTS: "[7]",
    Kind.MAP: '{ name = "text" }',
    Kind.LISTS: '{ name = ["text"] }',
    Kind.FREE: "{ name = 7 }",
}
SHORTHAND = frozenset({"constraint", "affinity", "scaling", "identity"})
"""Blocks whose attributes exclude each other or mean something together."""


def tables(schema: BlockSchema, path: str = "") -> Iterator[tuple[str, BlockSchema]]:
    path = f"{path}.{schema.name}" if path else schema.name
    yield path, schema
    for row in schema.blocks.values():
        yield from tables(row.schema, path)


TABLES = dict(tables(JOB))


def written(path: str, body: str) -> str:
    """A job file with one block of that path, holding the body."""
    inner = body
    names = path.split(".")
    for depth in range(len(names), 0, -1):
        schema = TABLES[".".join(names[:depth])]
        label = ' "cpu"' if schema.label else ""
        required = "\n".join(
            f"{row.name} = {EXAMPLES[row.kind]}"
            for row in schema.attributes.values()
            if row.required and depth < len(names)
        )
        inner = f"{names[depth - 1]}{label} {{\n{required}\n{inner}\n}}"
    return inner + "\n"


@pytest.mark.parametrize("path", sorted(TABLES))
def test_every_attribute_of_every_block_is_read(path: str) -> None:
    schema = TABLES[path]
    if schema.name in SHORTHAND:
        return
    body = "\n".join(f"{row.name} = {EXAMPLES[row.kind]}" for row in schema.attributes.values())
    found = parse(written(path, body))
    assert found.job is not None, found.message


@pytest.mark.parametrize("path", sorted(TABLES))
def test_an_unknown_attribute_of_every_block_is_refused(path: str) -> None:
    found = parse(written(path, "zzzzzzz = 1"))
    assert any('An argument named "zzzzzzz" is not expected here.' in each.detail for each in found.diagnostics)


@pytest.mark.parametrize("path", sorted(TABLES))
def test_a_wrong_type_is_refused_for_every_attribute(path: str) -> None:
    schema = TABLES[path]
    body = "\n".join(f"{row.name} = f" for row in schema.attributes.values())
    wrong = body.replace("= f", "= [{}]")
    if not wrong:
        return
    found = parse(written(path, wrong))
    refused = [each for each in found.diagnostics if each.summary == "Incorrect attribute value type"]
    free = [row for row in schema.attributes.values() if row.kind is Kind.FREE]
    assert len(refused) == len(schema.attributes) - len(free), found.message


@pytest.mark.parametrize("path", sorted(TABLES))
def test_keys_of_a_block_are_not_used_twice(path: str) -> None:
    schema = TABLES[path]
    keys = [row.key for row in (*schema.attributes.values(), *schema.blocks.values())]
    assert len(keys) == len(set(keys))


def test_a_gateway_of_the_service_mesh() -> None:
    text = """job "j" {
      group "g" {
        service {
          connect {
            gateway {
              proxy {
                connect_timeout = "5s"
                envoy_gateway_bind_addresses "a" {
                  address = "10.0.0.1"
                  port    = 80
                }
              }
              ingress {
                listener {
                  port = 8080
                  service {
                    name  = "web"
                    hosts = ["a.example"]
                    request_headers {
                      add { x = "1" }
                    }
                  }
                }
              }
              mesh {}
            }
          }
        }
      }
    }"""
    found = parse(text)
    assert found.job is not None, found.message
    assert found.job["TaskGroups"][0]["Services"][0]["Connect"]["Gateway"] == {
        "Proxy": {
            "ConnectTimeout": 5_000_000_000,
            "EnvoyGatewayBindAddresses": {"a": {"Name": "a", "Address": "10.0.0.1", "Port": 80}},
        },
        "Ingress": {
            "Listeners": [
                {
                    "Port": 8080,
                    "Services": [{"Name": "web", "Hosts": ["a.example"], "RequestHeaders": {"Add": {"x": "1"}}}],
                }
            ]
        },
        "Mesh": {},
    }


PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "job-file.md").read_text()


@pytest.mark.parametrize("path", sorted(TABLES))
def test_every_row_is_on_the_reference_page(path: str) -> None:
    schema = TABLES[path]
    headings = (f"### `{schema.name}`", f"### `{'` > `'.join(path.split('.')[-2:])}`".replace("` > `", " > "))
    section = next((PAGE.split(f"{heading}\n")[1] for heading in headings if f"{heading}\n" in PAGE), PAGE)
    table = section.split("\n### ")[0] if section is not PAGE else PAGE
    names = [*schema.attributes, *schema.blocks]
    assert [name for name in names if f"| `{name}` |" not in table] == []


def test_jobs_wait_for_others_and_children_for_their_turn() -> None:
    text = """
job "report" {
  type = "batch"
  after {
    job = "etl"
  }
  after {
    job       = "db"
    namespace = "data"
    status    = "running"
  }
  parameterized {
    max_running = 3
  }
  group "g" {
    task "t" {
      driver = "raw_exec"
    }
  }
}
"""
    parsed = parse(text)
    assert parsed.job is not None
    assert parsed.job["After"] == [{"Job": "etl"}, {"Job": "db", "Namespace": "data", "Status": "running"}]
    assert parsed.job["ParameterizedJob"]["MaxRunning"] == 3
