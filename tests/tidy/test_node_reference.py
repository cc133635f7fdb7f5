"""The references of the node name every attribute, variable and template function."""

import re
from pathlib import Path

from lepa.client import task_env
from lepa.client.fingerprint import cloud, host
from lepa.client.fingerprint.registry import FINGERPRINTERS
from lepa.client.hooks.template_functions import TEXT
from lepa.client.hooks.template_text import ABSENT, DISABLED
from lepa.client.settings import ClientSettings

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def test_every_attribute_is_documented(tmp_path: Path) -> None:
    text = (REFERENCE / "node-attributes.md").read_text()
    settings = ClientSettings(directory=tmp_path, name="n", network_interface="lo", cni_path="")
    found = {name for fingerprint in FINGERPRINTERS.values() for name in fingerprint(settings).attributes}
    assert [name for name in sorted({*found, *cloud.PATHS}) if f"`{name}`" not in text] == []
    assert host.CNI_PLUGINS_MAX > 0


def test_every_variable_is_documented() -> None:
    text = (REFERENCE / "task-environment.md").read_text()
    named = set(re.findall(r'"(NOMAD_[A-Z_]+[A-Z])"', Path(task_env.__file__).read_text()))
    assert len(named) > 15
    assert [name for name in sorted(named) if f"`{name}`" not in text] == []
    secrets = [name for name in task_env.HOST_DENIED if "LICENSE" not in name and f"`{name}`" not in text]
    assert secrets == []


def test_every_template_function_is_documented() -> None:
    text = (REFERENCE / "templates.md").read_text()
    words = set(re.findall(r"`(\w+)", text))
    assert sorted({*TEXT, *ABSENT, *DISABLED} - words) == []
