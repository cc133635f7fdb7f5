"""A deployable model as one file, so that it can travel: a gzipped tar, named by what it holds.

The management frontend keeps archives and gives them out; model processes fetch theirs, check the digest, and unpack it
under a guard (no links out, no devices, no absolute names).
"""

import hashlib
import io
import tarfile
from pathlib import Path
from typing import NamedTuple

from lepa.kit.tar_guard import open_for_reading
from lepa.model.errors import LepaError, invalid

ARCHIVE_BYTES_MAX = 4 << 30
SCHEME = "archive:"


class ArchiveImage(NamedTuple):
    """Names one archive: `archive:{name}:{version}:{sha256}`."""

    name: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.name}:{self.version}:{self.sha256}"

    @property
    def path(self) -> str:
        """Its path at the management frontend."""
        return f"/admin/model_archive/{self.name}/{self.version}"


def parse_image(text: str) -> ArchiveImage:
    """The archive an image names. Raises LepaError(invalid)."""
    parts = text.removeprefix(SCHEME).split(":")
    if not text.startswith(SCHEME) or len(parts) != 3:
        raise invalid(f'"{text}" is not the image of a published model: expected archive:NAME:VERSION:SHA256')
    return ArchiveImage(*parts)


def pack(directory: Path) -> bytes:
    """The files of a directory as an archive; equal files give equal bytes."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", compresslevel=1, format=tarfile.PAX_FORMAT) as tar:
        for path in sorted(directory.rglob("*")):
            tar.add(path, path.relative_to(directory), recursive=False, filter=_plain)
    return buffer.getvalue()


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    return entry


def digest(archive: bytes) -> str:
    """What an archive is known by."""
    return hashlib.sha256(archive).hexdigest()


def unpack(archive: bytes, image: ArchiveImage, directory: Path) -> None:
    """Unpack an archive into a directory after checking that it is the one that was asked for."""
    if (found := digest(archive)) != image.sha256:
        raise LepaError("conflict", f"{image} was published again: its digest is now {found}; deploy the model again")
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
            guard = open_for_reading(tar)
            for entry in tar:
                guard.check(entry)
                tar.extract(entry, directory, set_attrs=False)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise invalid(f"{image} cannot be unpacked: {error}") from error
