"""The documents name what is there."""

from pathlib import Path

import msgspec

from lepa.agent.config import Config, Section
from lepa.api.app import ROUTES
from lepa.api.jobs import ROUTES_OF_ONE_JOB

DOCS = Path(__file__).parents[2] / "docs"


def test_every_route_is_documented() -> None:
    text = (DOCS / "reference" / "http-api.md").read_text()
    paths = [route.path for route in ROUTES if route.path != "job/{tail:.+}"]
    paths += ["job/{id}" + (f"/{suffix}" if suffix else "") for suffix in ROUTES_OF_ONE_JOB]
    assert [path for path in paths if f"`/v1/{path}`" not in text] == []


def settings_of(kind: type[Section], prefix: str = "") -> list[str]:
    found = []
    for field in msgspec.structs.fields(kind):
        inner = field.type
        if isinstance(inner, type) and issubclass(inner, Section):
            found += settings_of(inner, f"{prefix}{field.name}.")
        else:
            found.append(prefix + field.name)
    return found


def test_every_setting_is_documented() -> None:
    text = (DOCS / "reference" / "agent-config.md").read_text()
    assert [name for name in settings_of(Config) if f"`{name}`" not in text] == []
