"""`docs/tutorials/serve-a-model.md`, followed from its first line to its last: files, commands and what they print."""

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest
from tests import components
from tests.e2e.agents import LEPA, eventually, running

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "serve-a-model.md"
TIMEOUT_S = 120.0
PORT = re.compile(r"(?<=http://127\.0\.0\.1:)\d+")
"""Of the query frontend, which is another one each time."""
QUERY_ID = re.compile(r'(?<="query_id":)\d+')


class Step(NamedTuple):
    """A command of the page, and what the page shows that it prints: "" for nothing in particular."""

    command: str
    shown: str


def files(text: str) -> dict[str, str]:
    """What the page shows for each file that it names."""
    return dict(re.findall(r"^`(\S+)`:\n\n```python\n(.*?)^```$", text, re.S | re.M))


def steps(text: str) -> list[Step]:
    """The commands in their order."""
    blocks = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.S | re.M))
    return [Step(*entry.split("\n", 1)) for entry in re.split(r"^\$ ", blocks, flags=re.M)[1:]]


class Reader:
    """Somebody whose agent runs, as after the first command, and who types the others one after another."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {**environment, "PATH": f"{LEPA.parent}{os.pathsep}{os.environ['PATH']}"}
        self._port = "1"

    def follows(self, step: Step) -> str:
        """Type a command and see what the page shows; what was printed.

        An answer may be the default for a moment, on a busy machine or until the query frontend has heard of a change:
        a question is asked again.
        """
        if step.command.startswith(("lepa predict", "curl")):
            return eventually(lambda: self._answer(step))
        printed = self._types(step)
        assert not step.shown or _same(printed, step.shown), printed
        self._port = next(iter(PORT.findall(printed)), self._port)
        return printed

    def _answer(self, step: Step) -> str:
        """What a question was answered, "" where the page shows something else."""
        printed = self._types(step)
        return printed if _same(printed, step.shown) else ""

    def _types(self, step: Step) -> str:
        done = subprocess.run(
            ["/bin/bash", "-c", PORT.sub(self._port, step.command)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
        )
        assert done.returncode == 0, f"$ {step.command}\n{done.stdout}{done.stderr}"
        return done.stdout


def _same(printed: str, shown: str) -> bool:
    """Equal but for what is another one each time."""
    return _lasting(printed) == _lasting(shown)


def _lasting(text: str) -> str:
    return QUERY_ID.sub("N", PORT.sub("PORT", text)).rstrip("\n")


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    components.require("curl", "curl")
    with running(tmp_path / "agent") as agent:
        (tmp_path / "reader").mkdir()
        for name, content in files(PAGE.read_text()).items():
            (tmp_path / "reader" / name).write_text(content)
        yield Reader(tmp_path / "reader", agent.environment())


def test_the_tutorial_is_what_happens(reader: Reader) -> None:
    first, *rest = steps(PAGE.read_text())
    assert first == Step("lepa agent -dev", "")
    printed = {step.command: reader.follows(step) for step in rest}
    assert len(printed) == len(rest) > 4
    assert "clipper-default-cluster-model-iris-1" in printed["lepa job status"]
    assert "iris:1" in printed["lepa model top -once"]
