"""How long does a command take that needs no agent?

`lepa version` and `lepa --help` in processes of their own, from exec to exit, beside `python3 -c pass` of the same
interpreter, all three taking turns. Expected on two cores: 150 ms or less each; measured 59 and 68 ms, where an empty
Python takes 14 ms. What is above that is click (30 ms) and the table of commands: nothing else is imported.
"""

import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from benchmarks.harness import Figure

RUNS = 31
LEPA = str(Path(sys.executable).with_name("lepa"))
COMMANDS = {
    "version": [LEPA, "version"],
    "help": [LEPA, "--help"],
    "empty": [sys.executable, "-c", "pass"],
}


def run() -> list[Figure]:
    """Medians in milliseconds."""
    taken: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(RUNS):
        for name, command in COMMANDS.items():
            taken[name].append(_milliseconds(command))
    empty = median(taken["empty"])
    return [
        Figure(f"cli.{name}_ms", median(taken[name]), "ms", empty, "python3 -c pass") for name in ("version", "help")
    ]


def _milliseconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return (time.perf_counter() - started) * 1000
