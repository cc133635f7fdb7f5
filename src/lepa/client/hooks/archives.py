"""Unpacks archives from strangers into an empty directory of the agent's own.

Names and links that lead outside, devices and pipes are refused; so are more than FILES_MAX entries and more than
BYTES_MAX bytes, counted while they are written, because what an archive says about itself need not be true.
"""

import bz2
import gzip
import lzma
import os
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from lepa.client import confined
from lepa.kit.tar_guard import open_for_reading
from lepa.model.errors import LepaError, invalid

FILES_MAX = 4096
BYTES_MAX = 100 * 1024**3
CHUNK = 1024 * 1024
BROKEN = (tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, RuntimeError)

SINGLE: Mapping[str, Callable[[Path], Any]] = {"gz": gzip.GzipFile, "bz2": bz2.BZ2File, "xz": lzma.LZMAFile}
"""Kinds that hold one file without a name."""


class Allowance:
    """What may still be written."""

    def __init__(self, files: int, size: int) -> None:
        self._files, self._bytes = files, size
        self._files_left, self._bytes_left = files, size

    def take_file(self) -> None:
        """One more entry."""
        self._files_left -= 1
        if self._files_left < 0:
            raise invalid(f"the archive holds more than {self._files} entries")

    def copy(self, source: IO[bytes], target: IO[bytes]) -> None:
        """All of `source`, as far as it is allowed."""
        while chunk := source.read(CHUNK):
            self._bytes_left -= len(chunk)
            if self._bytes_left < 0:
                raise invalid(f"the archive holds more than {self._bytes} bytes")
            target.write(chunk)


def unpack(archive: Path, kind: str, target: Path, name: str, *, files: int = FILES_MAX, size: int = BYTES_MAX) -> None:
    """Unpack `archive` into `target`. name: its own file name, for kinds that hold one file. Raises LepaError."""
    allowance = Allowance(files, size)
    try:
        if kind == "zip":
            _unzip(archive, target, allowance)
        elif kind in SINGLE:
            _decompress(archive, kind, target / name.rsplit(".", 1)[0], allowance)
        else:
            _untar(archive, target, allowance)
    except BROKEN as error:
        raise invalid(f"the archive cannot be read: {error}") from error
    except OSError as error:
        raise LepaError("internal", f"the archive cannot be unpacked: {error}") from error


def _decompress(archive: Path, kind: str, target: Path, allowance: Allowance) -> None:
    allowance.take_file()
    with SINGLE[kind](archive) as source, target.open("wb") as written:
        allowance.copy(source, written)


def _untar(archive: Path, target: Path, allowance: Allowance) -> None:
    with tarfile.open(archive, "r:*") as opened:
        guard = open_for_reading(opened)
        for member in opened:
            allowance.take_file()
            guard.check(member)
            if member.isreg():
                source = opened.extractfile(member)
                assert source is not None
                _write(target, member.name, (member.mode or 0o644) & 0o755 | 0o600, source, allowance)
            else:
                opened.extract(member, target, set_attrs=False)


def _unzip(archive: Path, target: Path, allowance: Allowance) -> None:
    with zipfile.ZipFile(archive) as opened:
        for member in opened.infolist():
            allowance.take_file()
            mode = member.external_attr >> 16
            if stat.S_IFMT(mode) not in {0, stat.S_IFREG, stat.S_IFDIR}:
                raise invalid(f'entry "{member.filename}" is neither a file nor a directory')
            _require_inside(member.filename)
            if member.is_dir():
                (target / member.filename).mkdir(parents=True, exist_ok=True)
            else:
                with opened.open(member) as source:
                    _write(target, member.filename, (mode & 0o755 or 0o644) | 0o600, source, allowance)


def _require_inside(name: str) -> None:
    if name.startswith("/") or "\\" in name or ".." in name.split("/"):
        raise invalid(f'entry "{name}" leads outside of the archive')


def _write(target: Path, name: str, mode: int, source: IO[Any], allowance: Allowance) -> None:
    """One file. Links that an earlier entry made are not followed: `confined` would refuse to leave `target`."""
    with confined.directory(target, os.path.dirname(name), create=True) as parent:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(os.path.basename(name), flags, mode, dir_fd=parent)
    with os.fdopen(handle, "wb") as written:
        allowance.copy(source, written)
        os.fchmod(written.fileno(), mode)
