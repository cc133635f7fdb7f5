"""The settings of the pages for a browser, made of the agent's configuration."""

import re

from msgspec import structs

from lepa.agent.config import Config
from lepa.api.page_policy import POLICY, PageSettings
from lepa.model.errors import invalid

LABEL_MAX = 64
_COLOR = re.compile(r"#[0-9a-fA-F]{3,8}|[a-zA-Z]*")
_SOURCE = re.compile(r"[^\s;,]+")


def page_settings(config: Config) -> PageSettings:
    """Settings of the pages for a browser. Raises LepaError(invalid)."""
    label = config.ui.label
    if len(label.text) > LABEL_MAX:
        raise invalid(f"configuration: ui.label.text: {len(label.text)} characters; at most {LABEL_MAX} are shown")
    for name in ("background_color", "text_color"):
        if not _COLOR.fullmatch(getattr(label, name)):
            raise invalid(
                f'configuration: ui.label.{name}: "{getattr(label, name)}" is no colour such as "#aa0000" or "darkred"'
            )
    given = {name.replace("_", "-"): value for name, value in structs.asdict(config.ui.content_security_policy).items()}
    for name, sources in given.items():
        for source in sources:
            if not _SOURCE.fullmatch(source):
                raise invalid(f'configuration: ui.content_security_policy: "{source}" of {name} is not one source')
    return PageSettings(
        enabled=config.ui.enabled,
        label=label.text,
        label_background=label.background_color,
        label_color=label.text_color,
        policy={**POLICY, **given},
    )
