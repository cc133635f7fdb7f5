"""Settings of the pages for a browser."""

from typing import Any

import pytest

from lepa.agent.config_loader import build
from lepa.agent.page_settings import page_settings
from lepa.model.errors import LepaError

DEV = {"data_dir": "/tmp/x", "server": {"enabled": True}}


def test_pages_take_nomads_block() -> None:
    policy = {"connect_src": ["'self'", "https://a.example"], "img_src": []}
    label = {"text": "staging", "background_color": "#a00", "text_color": "white"}
    block = {"enabled": True, "show_cli_hints": True, "label": label, "content_security_policy": policy}
    found = build(DEV | {"ui": block})
    pages = page_settings(found.config)
    assert (pages.enabled, pages.label, pages.label_background, pages.label_color) == (True, "staging", "#a00", "white")
    assert pages.policy["connect-src"] == ("'self'", "https://a.example")
    assert pages.policy["script-src"] == ("'self'",)
    assert pages.policy["base-uri"] == ("'none'",)
    assert any("ui.show_cli_hints" in warning for warning in found.warnings)
    assert not page_settings(build(DEV | {"ui": {"enabled": False}}).config).enabled


@pytest.mark.parametrize(
    ("block", "said"),
    [
        ({"label": {"background_color": "red; } body { display: none"}}, "no colour"),
        ({"label": {"text": "x" * 65}}, "at most 64"),
        ({"content_security_policy": {"img_src": ["'self'; script-src *"]}}, "not one source"),
        ({"enbled": True}, "enabled"),
    ],
)
def test_pages_refuse_what_would_break_them(block: dict[str, Any], said: str) -> None:
    with pytest.raises(LepaError, match=said):
        build(DEV | {"ui": block})
