"""Java's command line, and what it says of itself."""

from pathlib import Path

import pytest

from lepa.drivers.java import OPTIONS, OciJava, command_line, version_attributes
from lepa.drivers.oci import ExecSettings
from lepa.drivers.protocol import TaskConfig

SAID = """openjdk version "17.0.15" 2025-04-15
OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)
OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)
"""


def test_a_jar_with_options_and_arguments(tmp_path: Path) -> None:
    (tmp_path / "local").mkdir()
    (tmp_path / "local/app.jar").touch()
    config = {"jar_path": "app.jar", "jvm_options": ["-Xmx64m"], "args": ["-x", "1"], "class_path": "/local/lib"}
    task = TaskConfig(id="t", alloc_id="a", task_dir=str(tmp_path), config=config)
    assert command_line("java", task) == ("java", "-Xmx64m", "-cp", "/local/lib", "-jar", "/local/app.jar", "-x", "1")


def test_a_class() -> None:
    task = TaskConfig(id="t", alloc_id="a", config={"class": "Hello", "class_path": "/local"})
    assert command_line("java", task) == ("java", "-cp", "/local", "Hello")


def test_the_version_becomes_attributes() -> None:
    assert version_attributes("Picked up _JAVA_OPTIONS: -Xmx1g\n" + SAID) == {
        "driver.java.version": "17.0.15",
        "driver.java.runtime": "OpenJDK Runtime Environment (build 17.0.15+6-Debian-1deb12u1)",
        "driver.java.vm": "OpenJDK 64-Bit Server VM (build 17.0.15+6-Debian-1deb12u1, mixed mode, sharing)",
    }
    assert version_attributes("Error: no Java here") == {}


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "jar_path or class must be set"),
        ({"class": "A", "jar_path": "b.jar"}, "only one of jar_path and class"),
        ({"class": "A", "command": "sh"}, "java has no option 'command'"),
        ({"class": "A", "jvm_options": "-Xmx1m"}, "jvm_options must be a list"),
        ({"class": "A", "cap_add": ["sys_admin"]}, "cap_add: sys_admin"),
    ],
)
def test_bad_options_are_told(config: dict[str, object], said: str, tmp_path: Path) -> None:
    driver = OciJava.__new__(OciJava)
    driver._settings = ExecSettings()
    assert said in "; ".join(driver.problems(config))
    assert OPTIONS.problems({"class": "A"}) == []
