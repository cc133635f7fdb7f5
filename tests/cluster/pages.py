"""How-to pages that are followed word by word, on the machines of a test bed.

A file is a code block behind a line with its name in backquotes and a colon at its end. A console block holds commands,
each behind the name of the machine that it is typed on (`one$ lepa node status`; `$` alone is the desk), and below a
command lines of what it prints. `…` in such a line stands for anything. A command that does not print them yet is typed
again, as a person would; one without any has to succeed. `lepa agent …` and what ends in `&` go on running.

What differs from the page: 10.0.0. is the bed's network, /var/lib/ a folder of the machine.
"""

import os
import re
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from tests.cluster.bed import NETWORK, Bed
from tests.cluster.machines import Machine
from tests.e2e.agents import LEPA

PAGES = Path(__file__).parents[2] / "docs" / "how-to"
COMMAND_S = 120.0
AGAIN_S = 60.0
PAUSE_S = 0.3


class Step(NamedTuple):
    """A command, the machine it is typed on, and lines that it prints."""

    machine: str
    command: str
    prints: tuple[str, ...]


class Page:
    """What a page tells to write and to type."""

    def __init__(self, name: str) -> None:
        text = (PAGES / name).read_text()
        self.files = dict(re.findall(r"`([\w-]+\.[\w.]+)`[^\n]*:\n\n```\w*\n(.*?)^```$", text, re.S | re.M))
        consoles = re.findall(r"^```console\n(.*?)^```$", text, re.S | re.M)
        self.steps = [step for block in consoles for step in _steps(block.replace("\\\n", ""))]


def _steps(block: str) -> list[Step]:
    found: list[Step] = []
    for line in block.splitlines():
        if command := re.match(r"(\w*)\$ (.*)", line):
            found.append(Step(command[1] or "desk", command[2], ()))
        elif line.strip():
            found[-1] = found[-1]._replace(prints=(*found[-1].prints, line))
    return found


class Reader:
    """Somebody who follows a page, with a shell on each machine."""

    def __init__(self, bed: Bed, page: Page) -> None:
        self._bed = bed
        self._page = page

    def prepare(self, *names: str) -> None:
        """Write the page's files on machines."""
        for name in names:
            machine = self._bed.machines[name]
            for file, text in self._page.files.items():
                (machine.folder / file).write_text(_moved(text, machine))

    def follow(self) -> None:
        """Type every command of the page."""
        for step in self._page.steps:
            self._type(step)

    def _type(self, step: Step) -> None:
        machine = self._bed.machines[step.machine]
        give_up = time.monotonic() + AGAIN_S
        while True:
            code, said = self._run(machine, _moved(step.command, machine))
            missing = [line for line in step.prints if not _is_printed(_moved(line, machine), said)]
            if not missing and (step.prints or code == 0):
                return
            if not step.prints or time.monotonic() > give_up:
                raise AssertionError(f"{step.machine}$ {step.command}\nended with {code}, missing {missing}:\n{said}")
            time.sleep(PAUSE_S)

    def _run(self, machine: Machine, command: str) -> tuple[int, str]:
        goes_on = command.endswith("&") or command.startswith("lepa agent ")
        log = machine.folder / ("background.log" if goes_on else "shell.log")
        environment = os.environ | {
            "PATH": os.pathsep.join([str(LEPA.parent), os.environ["PATH"], "/usr/sbin"]),
            "TMPDIR": str(machine.folder),
        }
        with log.open("a" if goes_on else "w") as output:
            shell = subprocess.Popen(
                machine.command("/bin/sh", "-c", command.rstrip("&") + (" &" if goes_on else "")),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            code = shell.wait(COMMAND_S)
        return code, log.read_text(errors="replace")


def _moved(text: str, machine: Machine) -> str:
    return text.replace("10.0.0.", f"{NETWORK}.").replace("/var/lib/", f"{machine.folder}/")


def _is_printed(line: str, said: str) -> bool:
    """Whether a line that a page shows is among those that were printed; spaces do not count."""
    parts = [r"\s+".join(map(re.escape, part.split())) for part in line.split("…")]
    wanted = re.compile(r"\s*" + r".*".join(rf"\s*{part}\s*" for part in parts) + r"\s*")
    return any(wanted.fullmatch(printed) for printed in said.splitlines())
