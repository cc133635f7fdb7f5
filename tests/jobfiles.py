"""Real job files from public repositories, and what is known about them.

They stand in the folder `jobfiles` of LEPA_SHARED (default: ../shared beside the checkout); its README.md tells more.
"""

import csv
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SHARED = Path(os.environ.get("LEPA_SHARED") or Path(__file__).parents[2] / "shared")
FOLDER = SHARED / "jobfiles"


@dataclass(frozen=True)
class JobFile:
    """One row of the index. syntax: does HashiCorp's parser accept it? expected: the outcome of parsing."""

    path: Path
    name: str
    kind: str
    syntax: bool
    expected: str

    @property
    def text(self) -> str:
        """The file with its line ends as they are."""
        with self.path.open(newline="") as file:
            return file.read()

    @property
    def reader(self) -> Callable[[str], str]:
        """Reads files beside this one, for file() and templatefile()."""
        return lambda name: (self.path.parent / name).read_text()


def job_files() -> list[JobFile]:
    """Every file of the index; fails when the folder is not there."""
    with (FOLDER / "index.tsv").open() as index:
        rows = list(csv.DictReader(index, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        JobFile(
            FOLDER / row["file"], row["file"], row["kind"], row["hcl2_syntax"].startswith("yes"), row["expect_parse"]
        )
        for row in rows
    ]
