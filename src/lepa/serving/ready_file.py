"""How a process that was told "any free port" says which ports it got, and that it listens."""

from pathlib import Path
from typing import Any

import msgspec


def write_ready_file(path: Path, facts: dict[str, Any]) -> None:
    """Write the facts as JSON; the file is there whole, or not at all."""
    draft = path.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(facts))
    draft.rename(path)


def read_ready_file(path: Path) -> dict[str, Any] | None:
    """The facts, or None while there is no such file."""
    try:
        facts: dict[str, Any] = msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return None
    return facts
