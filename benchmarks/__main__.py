"""Runs the benchmarks and prints each figure beside its comparison: `script/bench [--only GLOB] [--short]`."""

import argparse
import fnmatch
import importlib
import json
import pkgutil
import sys
import traceback
from pathlib import Path

import benchmarks
from benchmarks.harness import Figure


def main() -> int:
    """Run the chosen benchmark files one after another; 1 when one of them failed."""
    parser = argparse.ArgumentParser(prog="script/bench", description=__doc__)
    parser.add_argument(
        "--only", metavar="GLOB", default="*", help="files or figures, such as 'scheduler*' or 'dns.srv'"
    )
    parser.add_argument("--short", action="store_true", help="smaller forms of the benchmarks that have one")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the figures as a list of JSON objects")
    arguments = parser.parse_args()
    figures: list[Figure] = []
    failed = False
    for name in chosen_files(arguments.only):
        try:
            module = importlib.import_module(f"benchmarks.{name}")
            results = getattr(module, "run_short", module.run)() if arguments.short else module.run()
        except Exception:
            traceback.print_exc()
            failed = True
            continue
        for figure in results:
            if wanted(name, figure.name, arguments.only):
                print(figure.line(), flush=True)
                figures.append(figure)
    if arguments.json:
        arguments.json.write_text(json.dumps([figure.record() for figure in figures], indent=2) + "\n")
    return 1 if failed else 0


def chosen_files(only: str) -> list[str]:
    """Benchmark files that the glob names, or whose declared FIGURES it names; all for "*"."""
    names = [module.name for module in pkgutil.iter_modules(benchmarks.__path__)]
    files = [name for name in names if not name.startswith("_") and name not in {"harness"}]
    chosen = [name for name in files if fnmatch.fnmatch(name, only)]
    return chosen or [name for name in files if any(fnmatch.fnmatch(f, only) for f in declared(name))]


def declared(name: str) -> tuple[str, ...]:
    """Names of the figures a benchmark file says it gives, in its FIGURES."""
    return tuple(getattr(importlib.import_module(f"benchmarks.{name}"), "FIGURES", ()))


def wanted(file: str, figure: str, only: str) -> bool:
    """Whether a figure was asked for: by its own name or by its file's."""
    return fnmatch.fnmatch(file, only) or fnmatch.fnmatch(figure, only)


if __name__ == "__main__":
    sys.exit(main())
