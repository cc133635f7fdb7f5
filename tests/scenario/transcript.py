"""Scripts with transcripts: lines `> command words key=value` are carried out, lines `< …` are what came of it.

`#` begins a comment. With --rewrite the answers are written anew; the difference is then read by a person.
"""

from collections.abc import Callable
from pathlib import Path

Act = Callable[[str, list[str], dict[str, str]], list[str]]
"""Carries out one command: its name, its words, its options; answers with lines."""


def play(script: Path, act: Act) -> list[str]:
    """The script with the answers that `act` gives."""
    lines: list[str] = []
    for line in script.read_text().splitlines():
        if line.startswith("< "):
            continue
        lines.append(line)
        if line.startswith("> "):
            name, *rest = line[2:].split()
            words = [word for word in rest if "=" not in word]
            options = dict(word.split("=", 1) for word in rest if "=" in word)
            lines += [f"< {answer}" for answer in act(name, words, options)]
    return lines


def check(script: Path, act: Act, rewrite: bool) -> None:
    """The script still goes as it is written, or is written anew."""
    played = play(script, act)
    if rewrite:
        script.write_text("\n".join(played) + "\n")
    assert played == script.read_text().splitlines()
