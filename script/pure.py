#!/usr/bin/env python3
"""Writes the list of pure modules into .importlinter: those whose docstring begins with "Pure:"."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[1]
CONTRACT = ROOT / ".importlinter"


def pure_modules() -> list[str]:
    """Dotted names, sorted."""
    source = ROOT / "src"
    said = [path for path in sorted(source.rglob("*.py")) if _docstring(path).startswith("Pure:")]
    return [".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__") for path in said]


def _docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def main() -> None:
    """Replace the list in place."""
    before, _, rest = CONTRACT.read_text().partition("[importlinter:contract:pure]")
    head, _, tail = rest.partition("source_modules =")
    _, _, forbidden = tail.partition("forbidden_modules")
    listed = "".join(f"    {name}\n" for name in pure_modules())
    CONTRACT.write_text(f"{before}[importlinter:contract:pure]{head}source_modules =\n{listed}forbidden_modules{forbidden}")


if __name__ == "__main__":
    main()
