"""Data of an ephemeral disk on their way between nodes (bug cases B207, B245)."""

import asyncio
import io
import os
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web

from lepa.client import migration
from lepa.client.alloc_dir import AllocDir
from lepa.model.errors import LepaError
from lepa.model.migration import MigrateSource

MIB = 1024 * 1024


def directory(root: Path, name: str) -> AllocDir:
    found = AllocDir(root, name)
    found.build(["web"])
    return found


def filled(root: Path) -> AllocDir:
    found = directory(root, "old")
    (found.shared / "data" / "sub").mkdir()
    (found.shared / "data" / "sub" / "file").write_bytes(b"x" * 300_000)
    (found.shared / "data" / "link").symlink_to("sub/file")
    (found.task("web").local / "kept").write_text("kept")
    (found.task("web").tmp / "left").write_text("left")
    (found.logs / "web.stdout.0").write_text("left")
    os.mkfifo(found.shared / "data" / "pipe")
    return found


async def packed(source: AllocDir) -> bytes:
    return b"".join([piece async for piece in migration.pack(source, ["web"])])


@asynccontextmanager
async def node(answers: list[tuple[int, bytes]]) -> AsyncIterator[tuple[str, list[str]]]:
    """A node that answers one after the other; what it was shown as tokens."""
    tokens: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        tokens.append(request.headers.get("X-Nomad-Token", ""))
        status, body = answers.pop(0) if len(answers) > 1 else answers[0]
        return web.Response(status=status, body=body)

    app = web.Application()
    app.router.add_get("/v1/client/allocation/{id}/snapshot", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"{host}:{port}", tokens
    await runner.cleanup()


async def fetch(address: str, into: AllocDir, size_mb: int = 10) -> int:
    async with aiohttp.ClientSession() as http:
        return await migration.fetch(http, MigrateSource(address, "tok"), "old", into, ["web"], size_mb)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migration, "PAUSE_S", 0.01)


async def test_data_move_with_their_links_and_nothing_else_does(tmp_path: Path) -> None:
    source, target = filled(tmp_path), directory(tmp_path, "new")
    async with node([(200, await packed(source))]) as (address, tokens):
        assert await fetch(address, target) == 300_004
    assert tokens == ["tok"]
    data = target.shared / "data"
    assert (data / "sub" / "file").stat().st_size == 300_000
    assert (data / "link").readlink() == Path("sub/file")
    assert (target.task("web").local / "kept").read_text() == "kept"
    assert not (data / "pipe").exists()
    assert list(target.task("web").tmp.iterdir()) == []
    assert list(target.logs.iterdir()) == []
    assert not (target.path / migration.INCOMING).exists()


async def test_a_broken_attempt_is_begun_again(tmp_path: Path) -> None:
    whole = await packed(filled(tmp_path))
    target = directory(tmp_path, "new")
    async with node([(500, b"later"), (200, whole[:100_000]), (200, whole)]) as (address, tokens):
        await fetch(address, target)
    assert len(tokens) == 3
    assert (target.shared / "data" / "sub" / "file").exists()


@pytest.mark.parametrize(("status", "tries"), [(403, 1), (404, 1), (500, 3)])
async def test_a_refusal_is_told_and_leaves_nothing(tmp_path: Path, status: int, tries: int) -> None:
    target = directory(tmp_path, "new")
    async with node([(status, b"no")]) as (address, tokens):
        with pytest.raises(LepaError, match=f"were not moved from {address}: the node answered {status}: no"):
            await fetch(address, target)
    assert len(tokens) == tries
    assert list((target.shared / "data").iterdir()) == []


async def test_more_than_the_disk_takes_is_refused(tmp_path: Path) -> None:
    source, target = filled(tmp_path), directory(tmp_path, "new")
    (source.shared / "data" / "large").write_bytes(b"x" * 2 * MIB)
    async with node([(200, await packed(source))]) as (address, _):
        with pytest.raises(LepaError, match="larger than the group's ephemeral_disk, 1 MiB"):
            await fetch(address, target, 1)
    assert list((target.shared / "data").iterdir()) == []


def entry(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        info = tarfile.TarInfo(name)
        info.type, info.linkname = kind, link
        archive.addfile(info)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "kind", "link"),
    [
        ("../up", tarfile.REGTYPE, ""),
        ("/etc/passwd", tarfile.REGTYPE, ""),
        ("alloc/data/out", tarfile.SYMTYPE, "/etc/passwd"),
        ("alloc/data/out", tarfile.SYMTYPE, "../../../../etc"),
        ("alloc/data/null", tarfile.CHRTYPE, ""),
        ("alloc/data/hard", tarfile.LNKTYPE, "../../x"),
    ],
)
def test_a_strangers_archive_never_leads_outside(tmp_path: Path, name: str, kind: bytes, link: str) -> None:
    with pytest.raises(LepaError, match="must not be unpacked"):
        migration.unpack(io.BytesIO(entry(name, kind, link)), tmp_path / "in", MIB)
    assert not (tmp_path / "up").exists()


async def test_a_slow_receiver_does_not_fill_the_memory(tmp_path: Path) -> None:
    source = filled(tmp_path)
    (source.shared / "data" / "large").write_bytes(b"x" * 20 * MIB)
    pieces = migration.pack(source, ["web"])
    await anext(pieces)
    await asyncio.sleep(0.1)
    rest = [len(piece) async for piece in pieces]
    assert sum(rest) > 20 * MIB
