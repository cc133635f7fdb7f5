"""Pure: which entries of a stranger's tar archive may be unpacked.

The rules of PEP 706's "data" filter, for every Python that lepa runs on (Debian 12's 3.11.2 has no such filter): names
stay inside, links lead inside, there are no devices and pipes. One rule is stricter, so that no check has to look at
the disk: nothing may be unpacked through a link that the archive itself made.
"""

import tarfile


class UnsafeEntry(tarfile.TarError):
    """An entry that must not be unpacked."""


class TarGuard:
    """Checks the entries of one archive, in their order."""

    def __init__(self) -> None:
        self._links: set[str] = set()

    def check(self, entry: tarfile.TarInfo) -> None:
        """Return when the entry may be unpacked. Raises UnsafeEntry."""
        path = _inside(entry.name, entry.name)
        self._require_no_link(path[:-1], entry.name)
        if entry.issym():
            self._require_inside_target(path, entry)
        elif entry.islnk():
            self._require_no_link(_inside(entry.linkname, entry.name)[:-1], entry.name)
        elif not (entry.isreg() or entry.isdir()):
            raise UnsafeEntry(f'entry "{entry.name}" is a device or a pipe')
        if entry.issym():
            self._links.add("/".join(path))
        elif "/".join(path) in self._links:
            raise UnsafeEntry(f'entry "{entry.name}" replaces a link of the archive')

    def _require_no_link(self, directories: list[str], name: str) -> None:
        for depth in range(1, len(directories) + 1):
            if "/".join(directories[:depth]) in self._links:
                raise UnsafeEntry(f'entry "{name}" leads through a link of the archive')

    def _require_inside_target(self, path: list[str], entry: tarfile.TarInfo) -> None:
        """`..` may only stand at the beginning of a link's target, and not more often than it is deep."""
        parts = [part for part in entry.linkname.split("/") if part not in {"", "."}]
        upward = next((n for n, part in enumerate(parts) if part != ".."), len(parts))
        if entry.linkname.startswith("/") or upward > len(path) - 1 or ".." in parts[upward:]:
            raise UnsafeEntry(f'link "{entry.name}" leads outside of the archive')


def _inside(name: str, entry: str) -> list[str]:
    """The parts of a name that stays inside."""
    parts = [part for part in name.split("/") if part not in {"", "."}]
    if name.startswith("/") or ".." in parts or "\\" in name:
        raise UnsafeEntry(f'entry "{entry}" leads outside of the archive')
    return parts


def open_for_reading(archive: tarfile.TarFile) -> TarGuard:
    """A guard for `archive`, which is told to unpack what it is given: newer versions of Python would filter again."""
    archive.extraction_filter = lambda member, path: member
    return TarGuard()
