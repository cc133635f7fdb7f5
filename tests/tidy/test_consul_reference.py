"""The reference of Consul's API names every route."""

from pathlib import Path

from lepa.consul.app import ROUTES

REFERENCE = (Path(__file__).parents[2] / "docs" / "reference" / "consul-api.md").read_text()


def test_every_route_is_documented() -> None:
    lines = REFERENCE.splitlines()
    missing = [
        f"{verb} {route.path}"
        for route in ROUTES
        for verb in route.verbs.split()
        if not any(line.startswith(f"| {verb} | `/v1/{route.path}` |") for line in lines)
    ]
    assert missing == []
