"""Job files on this side: reading one with its variables, and `lepa fmt`."""

import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from lepa.cli.flags import argument, command, flag
from lepa.cli.output import Json
from lepa.cli.session import read_input
from lepa.model.errors import invalid

if TYPE_CHECKING:
    from lepa.jobspec import Diagnostic

DOWNLOAD_TIMEOUT_S = 30.0
DOWNLOAD_MAX = 16 * 1024 * 1024
SUFFIXES = (".nomad", ".hcl")


@dataclass(frozen=True)
class JobFile:
    """A job as its file says it, and the text that is kept with it."""

    job: Json
    submission: Json
    warnings: tuple[str, ...] = ()


def read_job(
    path: str, variables: Sequence[str] = (), var_files: Sequence[str] = (), *, json: bool = False, strict: bool = True
) -> JobFile:
    """The job of a file, a URL or standard input (`-`). Raises LepaError with every mistake in it."""
    from lepa.jobspec import parse

    text = _text(path)
    given = dict(_variable(each) for each in variables)
    files = [(name, _decoded(read_input(name), name)) for name in var_files]
    if json and not text.lstrip().startswith("{"):
        raise invalid(f"{path} is no JSON object, which -json promises")
    parsed = parse(
        text,
        filename=_name(path),
        variables=given,
        var_files=files,
        env=os.environ,
        read_file=_reader(path),
        strict=strict,
    )
    if parsed.job is None:
        _refuse(path, parsed.diagnostics)
    form = "json" if text.lstrip().startswith("{") else "hcl2"
    submission = {"Source": text, "Format": form, "VariableFlags": given, "Variables": _kept_variables(text, files)}
    return JobFile(parsed.job, submission, tuple(each.render() for each in parsed.warnings))


def _kept_variables(text: str, files: Sequence[tuple[str, str]]) -> str:
    """What variable files and the environment say, as one text; a single file as it is."""
    from lepa.jobspec import variable_text

    from_environment = any(name.startswith(("NOMAD_VAR_", "LEPA_VAR_")) for name in os.environ)
    if len(files) <= 1 and not from_environment and not any(each.lstrip().startswith("{") for _, each in files):
        return "".join(each for _, each in files)
    return variable_text(text, var_files=files, env=os.environ) or ""


def _text(path: str) -> str:
    if path.startswith(("http://", "https://")):
        return _decoded(_download(path), path)
    return _decoded(read_input(path), path)


def _download(url: str) -> bytes:
    from http.client import HTTPException
    from urllib.request import urlopen

    try:
        with urlopen(url, timeout=DOWNLOAD_TIMEOUT_S) as response:
            data: bytes = response.read(DOWNLOAD_MAX)
    except (OSError, HTTPException) as error:
        raise invalid(f"cannot download {url}: {getattr(error, 'reason', None) or error}") from error
    return data


def _decoded(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise invalid(f"{name} is not UTF-8 text: {error.reason} at byte {error.start}") from error


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise invalid(f"-var wants name=value, not {text!r}")
    return name.strip(), value


def _name(path: str) -> str:
    return "<stdin>" if path == "-" else path


def _reader(path: str) -> "Reader":
    return Reader(Path.cwd() if path == "-" or "://" in path else Path(path).resolve().parent)


class Reader:
    """Reads what file() names: as it is, or beside the job file."""

    def __init__(self, beside: Path) -> None:
        self._beside = beside

    def __call__(self, name: str) -> str:
        """The text of a file. Raises OSError."""
        given = Path(name).expanduser()
        path = given if given.is_absolute() or given.exists() else self._beside / given
        return path.read_text(encoding="utf-8")


def _refuse(path: str, diagnostics: Sequence["Diagnostic"]) -> NoReturn:
    told = "\n\n".join(each.render_excerpt() for each in diagnostics)
    raise invalid(f"Error getting job struct: {_name(path)} is no valid job file\n\n{told}\n")


# lepa fmt


@command()
@argument("paths", required=False, many=True, shown="[path ...]")
@flag("check", "Change nothing; exit with 1 when a file is not in canonical form.")
@flag("write", "Write files; with false, print them.", default=True)
@flag("list", "Print the names of files that change.", default=True)
@flag("recursive", "Look into directories below, too.")
def fmt(paths: tuple[str, ...], check: bool, write: bool, list: bool, recursive: bool) -> int:
    """Bring job files into canonical form.

    Directories stand for the .nomad and .hcl files in them; without a path, the current one is meant. With - the text
    is read from standard input and written to standard output.
    """
    if paths == ("-",):
        return _fmt_input(check)
    changed = [_fmt_file(path, check=check, write=write, list=list) for path in _files(paths or (".",), recursive)]
    return 1 if check and any(changed) else 0


def _fmt_input(check: bool) -> int:
    text = _decoded(read_input("-"), "<stdin>")
    formatted = _formatted(text, "<stdin>")
    if not check:
        sys.stdout.write(formatted)
    return 1 if check and formatted != text else 0


def _fmt_file(path: Path, *, check: bool, write: bool, list: bool) -> bool:
    text = _decoded(read_input(str(path)), str(path))
    formatted = _formatted(text, str(path))
    if not write and not check:
        sys.stdout.write(formatted)
    if formatted == text:
        return False
    if list and (write or check):
        click.echo(path)
    if write and not check:
        path.write_text(formatted, encoding="utf-8")
    return True


def _formatted(text: str, name: str) -> str:
    from lepa.jobspec import format_text

    formatted = format_text(text, name)
    if formatted.diagnostics:
        raise invalid("\n\n".join(each.render_excerpt() for each in formatted.diagnostics) + "\n")
    return formatted.text


def _files(paths: Sequence[str], recursive: bool) -> Iterator[Path]:
    for path in map(Path, paths):
        if not path.exists():
            raise invalid(f"cannot read {path}: No such file or directory")
        if not path.is_dir():
            yield path
            continue
        found = path.rglob("*") if recursive else path.glob("*")
        yield from sorted(each for each in found if each.suffix in SUFFIXES and each.is_file())
