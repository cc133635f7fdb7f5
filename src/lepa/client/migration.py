"""Moves the data of an ephemeral disk from one node to another: `ephemeral_disk { sticky = true, migrate = true }`.

What moves is `alloc/data` and each task's `local`, as one tar stream that the node which had them sends once the old
allocation has ended. Links stay links. The new node unpacks into a directory of its own, guarded against whatever a
stranger might send, and puts the data in their place only when all of it has come; an attempt that breaks off leaves
nothing and is begun again, a few times.
"""

import asyncio
import contextlib
import os
import shutil
import ssl
import stat
import tarfile
from collections.abc import AsyncGenerator, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import aiohttp

from lepa.client.alloc_dir import KEPT, AllocDir
from lepa.kit.tar_guard import UnsafeEntry, open_for_reading
from lepa.kit.tasks import Tasks
from lepa.model.errors import Code, LepaError
from lepa.model.migration import MigrateSource

CHUNK: Final = 256 * 1024
PIECES_MAX: Final = 16
"""Pieces of CHUNK bytes that wait for a slow receiver."""
ENTRIES_MAX: Final = 200_000
TRIES_MAX: Final = 3
PAUSE_S: Final = 2.0
SILENT_S: Final = 400.0
"""How long nothing may come: the old allocation may take its time to end."""
MIB: Final = 1024 * 1024
INCOMING: Final = ".incoming"
PERMISSIONS: Final = 0o777


# Sending


def moved_directories(directory: AllocDir, tasks: Sequence[str]) -> list[str]:
    """What of an allocation moves, relative to its directory."""
    return ["alloc/data", *(f"{task}/{name}" for task in tasks for name in KEPT)]


async def pack(directory: AllocDir, tasks: Sequence[str]) -> AsyncGenerator[bytes]:
    """The tar stream, piece by piece."""
    pieces: asyncio.Queue[bytes | None] = asyncio.Queue(PIECES_MAX)
    loop = asyncio.get_running_loop()

    def send(piece: bytes | None) -> None:
        asyncio.run_coroutine_threadsafe(pieces.put(piece), loop).result()

    async with Tasks("client.migration") as running:
        writing = running.start("pack", asyncio.to_thread(_pack, directory, tasks, send))
        writing.add_done_callback(lambda _: None)
        while (piece := await pieces.get()) is not None:
            yield piece
        await writing


def _pack(directory: AllocDir, tasks: Sequence[str], send: Any) -> None:
    try:
        with tarfile.open(fileobj=_Pieces(send), mode="w|", bufsize=CHUNK) as archive:  # type: ignore[call-overload]
            for name in moved_directories(directory, tasks):
                for path in _walk(directory.path / name):
                    _add(archive, path, str(path.relative_to(directory.path)))
    finally:
        with contextlib.suppress(RuntimeError):  # the loop may have ended, and nobody listens
            send(None)


class _Pieces:
    """A file for tarfile that hands on what is written."""

    def __init__(self, send: Any) -> None:
        self._send = send

    def write(self, data: bytes) -> int:
        """Hand on a piece."""
        self._send(bytes(data))
        return len(data)


def _walk(root: Path) -> Iterator[Path]:
    """A directory and everything below it; links are not followed."""
    if not root.is_dir() or root.is_symlink():
        return
    yield root
    for folder, directories, files in os.walk(root, followlinks=False):
        for name in (*directories, *files):
            yield Path(folder) / name


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add a file, a directory or a link; what is none of these, or vanishes, is left out."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        if path.is_symlink():
            archive.addfile(archive.gettarinfo(path, name))
        return
    found = os.fstat(handle)
    info = tarfile.TarInfo(name)
    info.mode, info.uid, info.gid = stat.S_IMODE(found.st_mode) & PERMISSIONS, found.st_uid, found.st_gid
    info.mtime = int(found.st_mtime)
    if not stat.S_ISREG(found.st_mode):
        os.close(handle)
        if stat.S_ISDIR(found.st_mode):
            info.type = tarfile.DIRTYPE
            archive.addfile(info)
        return
    with os.fdopen(handle, "rb") as file:
        info.size = found.st_size
        archive.addfile(info, file)


# Receiving


async def fetch(
    http: aiohttp.ClientSession,
    source: MigrateSource,
    alloc_id: str,
    into: AllocDir,
    tasks: Sequence[str],
    size_mb: int,
    tls: ssl.SSLContext | None = None,
) -> int:
    """Fetch the data of an earlier allocation; the bytes that came. tls: how nodes are called, when not in plain text.

    Raises LepaError when all attempts failed."""
    reason = ""
    for attempt in range(TRIES_MAX):
        if attempt:
            await asyncio.sleep(PAUSE_S)
        try:
            return await _fetch_once(http, source, alloc_id, into, tasks, size_mb * MIB, tls)
        except LepaError as error:
            reason = error.message
            if error.code in ("invalid", "denied", "not_found"):
                break
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
        finally:
            await asyncio.to_thread(shutil.rmtree, into.path / INCOMING, ignore_errors=True)
    raise LepaError("internal", f"data of allocation {alloc_id} were not moved from {source.address}: {reason}")


async def _fetch_once(
    http: aiohttp.ClientSession,
    source: MigrateSource,
    alloc_id: str,
    into: AllocDir,
    tasks: Sequence[str],
    limit: int,
    tls: ssl.SSLContext | None,
) -> int:
    url = f"{'https' if tls else 'http'}://{source.address}/v1/client/allocation/{alloc_id}/snapshot"
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0, sock_read=SILENT_S)
    read, write = os.pipe()
    async with Tasks("client.migration") as running:
        unpacking = running.start("unpack", asyncio.to_thread(_unpack_from, read, into.path / INCOMING, limit))
        try:
            async with http.get(
                url, headers={"X-Nomad-Token": source.token}, timeout=timeout, ssl=tls or True
            ) as answer:
                if answer.status != 200:
                    raise _refused(answer.status, (await answer.text())[:300])
                with os.fdopen(write, "wb", buffering=0) as pipe:
                    write = -1
                    async for chunk in answer.content.iter_chunked(CHUNK):
                        with contextlib.suppress(BrokenPipeError):
                            await asyncio.to_thread(pipe.write, chunk)
                        if unpacking.done():
                            break
            size: int = await unpacking
        finally:
            if write >= 0:
                os.close(write)
            if not unpacking.done():  # it ends with the stream, and must not write any more then
                await asyncio.wait([unpacking])
    await asyncio.to_thread(_put_in_place, into, tasks)
    return size


def _refused(status: int, text: str) -> LepaError:
    codes: dict[int, Code] = {403: "denied", 404: "not_found"}
    return LepaError(codes.get(status, "internal"), f"the node answered {status}: {text}")


def _unpack_from(handle: int, into: Path, limit: int) -> int:
    with os.fdopen(handle, "rb") as file:
        size = unpack(file, into, limit)
        while file.read(CHUNK):  # so that the sender is not cut off in its last padding
            continue
        return size


def unpack(stream: BinaryIO, into: Path, limit: int) -> int:
    """Unpack a stranger's tar stream below `into`; the bytes of its files.

    Raises LepaError(invalid) for an entry that leads outside, for more than `limit` bytes or ENTRIES_MAX entries, and
    for a stream that breaks off.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(mode=0o700)
    size = 0
    try:
        with tarfile.open(fileobj=stream, mode="r|") as archive:
            guard = open_for_reading(archive)
            for number, entry in enumerate(archive):
                guard.check(entry)
                size += entry.size if entry.isreg() else 0
                if size > limit:
                    text = f"they are larger than the group's ephemeral_disk, {limit // MIB} MiB"
                    raise LepaError("invalid", text)
                if number >= ENTRIES_MAX:
                    raise LepaError("invalid", f"they are more than {ENTRIES_MAX} files")
                entry.mode &= PERMISSIONS
                archive.extract(entry, into, numeric_owner=True, set_attrs=not entry.issym())
    except UnsafeEntry as error:
        raise LepaError("invalid", f"they hold what must not be unpacked: {error}") from error
    except (tarfile.TarError, EOFError) as error:
        raise LepaError("internal", f"the stream broke off: {error}") from error
    return size


def _put_in_place(into: AllocDir, tasks: Sequence[str]) -> None:
    """Move what has come into the allocation's own directories, which are empty so far."""
    for name in moved_directories(into, tasks):
        source, target = into.path / INCOMING / name, into.path / name
        if source.is_dir() and not source.is_symlink() and target.is_dir() and not any(target.iterdir()):
            mode = target.stat().st_mode
            target.rmdir()
            shutil.move(source, target)
            target.chmod(stat.S_IMODE(mode))
