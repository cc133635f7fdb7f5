"""The repository checks its own shape."""

import ast
import configparser
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "lepa"
MODULES = sorted(path for path in SOURCE.rglob("*.py"))
BANNED = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|NotImplementedError|breakpoint\(|pytest\.(skip|mark\.(skip|xfail))|assert True"
)
TEXT = {".py", ".md", ".toml", ".hcl", ".sh", ".txt", ".html", ".js", ".css"}


def dotted(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    return name.removesuffix(".__init__")


def docstring(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text())) or ""


def tracked_files() -> list[Path]:
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [ROOT / name for name in names if (ROOT / name).is_file()]


def test_every_module_says_what_it_is_for() -> None:
    assert [str(path) for path in MODULES if not docstring(path)] == []


def test_pure_modules_are_those_that_the_import_contract_holds() -> None:
    said = {dotted(path) for path in MODULES if docstring(path).startswith("Pure:")}
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter")
    held = set(contract["importlinter:contract:pure"]["source_modules"].split())
    assert sorted(said - held) == [], "add these to the pure contract in .importlinter"
    assert sorted(held - said) == [], "these do not say that they are pure"


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_module_has_a_test_file(path: Path) -> None:
    if path.name in {"__init__.py", "__main__.py"}:
        return
    package = path.relative_to(SOURCE).parent
    mirrored = ROOT / "tests" / "unit" / package / f"test_{path.stem}.py"
    elsewhere = f"{dotted(path)}"
    named = any(elsewhere in test.read_text() for test in (ROOT / "tests").rglob("test_*.py"))
    assert mirrored.exists() or named, f"no test mentions {elsewhere}, and {mirrored.relative_to(ROOT)} does not exist"


def test_no_file_is_empty() -> None:
    """What a program left where a test ran is no part of the project."""
    found = [path.name for path in tracked_files() if not path.stat().st_size]
    assert set(found) <= {"py.typed", "__init__.py"}


def test_no_banned_words() -> None:
    found = []
    for path in tracked_files():
        if path.suffix in TEXT and path != Path(__file__) and "locks" not in path.parts:
            found += [
                f"{path.relative_to(ROOT)}:{n}"
                for n, line in enumerate(path.read_text().splitlines(), 1)
                if BANNED.search(line)
            ]
    assert found == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = []
    for path in tracked_files():
        if path.suffix != ".md":
            continue
        for target in re.findall(r"\]\(([^)#\s]+?)(?:#[^)]*)?\)", path.read_text()):
            if "://" not in target and not target.startswith("mailto:") and not (path.parent / target).exists():
                broken.append(f"{path.relative_to(ROOT)} -> {target}")
    assert broken == []


def test_scripts_can_be_run() -> None:
    for script in [*(ROOT / "script").iterdir(), ROOT / ".ci" / "run"]:
        assert script.stat().st_mode & 0o111, f"{script} is not executable"
