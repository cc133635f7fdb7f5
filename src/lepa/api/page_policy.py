"""Pure: what may be set of the pages for a browser, apart from them: a configuration loads no web server."""

from collections.abc import Mapping
from typing import Final, NamedTuple

POLICY: Final[Mapping[str, tuple[str, ...]]] = {
    "default-src": ("'none'",),
    "base-uri": ("'none'",),
    "connect-src": ("'self'",),
    "form-action": ("'none'",),
    "frame-ancestors": ("'none'",),
    "img-src": ("'self'", "data:"),
    "script-src": ("'self'",),
    "style-src": ("'self'",),
}
"""The content security policy where the configuration says nothing else: all of this agent, nothing inline."""


class PageSettings(NamedTuple):
    """Settings of the pages. label: a short text shown on each, with two CSS colours ("" for the usual ones). policy:
    the directives of the content security policy with their sources."""

    enabled: bool = True
    label: str = ""
    label_background: str = ""
    label_color: str = ""
    policy: Mapping[str, tuple[str, ...]] = POLICY
