"""Pure: Traefik's tags to routes."""

from collections.abc import Mapping

from lepa.ingress.route_spec import Reading


def read_tags(service: str, tags: tuple[str, ...], entrypoints: Mapping[str, str]) -> Reading:
    """The routes of a service's Traefik tags."""
    return Reading()
