"""Stand-ins for CNI plugins: scripts that write down their command and their standard input, and answer."""

from pathlib import Path

SCRIPT = """#!/bin/sh
{{ printf '%s {name} ' "$CNI_COMMAND"; cat | tr -d '\\n'; echo; }} >> {log}
[ "$CNI_COMMAND" = ADD ] || exit 0
cat <<'END'
{answer}
END
exit {code}
"""


def plugin(folder: Path, name: str, answer: str, *, code: int = 0) -> Path:
    """A plugin that answers ADD."""
    path = folder / name
    path.write_text(SCRIPT.format(name=name, log=folder / "calls.log", answer=answer, code=code))
    path.chmod(0o755)
    return path


def calls(folder: Path) -> list[tuple[str, str, str]]:
    """Command, plugin and standard input of every call so far."""
    log = folder / "calls.log"
    lines = log.read_text().splitlines() if log.exists() else []
    return [(command, name, told) for command, name, told in (line.split(" ", 2) for line in lines)]
