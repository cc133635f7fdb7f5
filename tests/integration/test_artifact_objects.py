"""Artifacts from object stores (lepa.client.hooks.artifact_objects), with a small store of the test's own.

It speaks the parts of S3's API that reading needs, and keeps what it was asked with.
"""

import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from xml.sax.saxutils import escape

import pytest
from aiohttp import web
from tests import components

from lepa.client.hooks.artifact_http import require_digest
from lepa.client.hooks.artifact_objects import fetch_objects
from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.client.hooks.artifact_source import ObjectPlace, Source, source_of
from lepa.model.errors import LepaError
from lepa.model.task import TaskArtifact

OBJECTS = {"tool.txt": b"one object", "dir/a": b"a", "dir/sub/b": b"b", "big": b"x" * 5000}


class Store:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.asked: list[web.Request] = []

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        _, bucket, *rest = request.path.split("/", 2)
        key = rest[0] if rest else ""
        if bucket != "shelf":
            return web.Response(status=403, text="<Error><Code>AccessDenied</Code></Error>")
        if request.query.get("list-type") == "2":
            names = [name for name in OBJECTS if name.startswith(request.query.get("prefix", ""))]
            entries = "".join(
                f"<Contents><Key>{escape(name)}</Key><LastModified>2024-01-01T00:00:00.000Z</LastModified>"
                f"<ETag>x</ETag><Size>{len(OBJECTS[name])}</Size></Contents>"
                for name in names
            )
            text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{entries}</ListBucketResult>"
            return web.Response(text=text, content_type="application/xml")
        if key not in OBJECTS:
            return web.Response(status=404)
        headers = {"ETag": '"x"', "Last-Modified": "Mon, 01 Jan 2024 00:00:00 GMT"}
        return web.Response(body=OBJECTS[key], headers=headers)


@pytest.fixture
async def store() -> AsyncIterator[Store]:
    (port,) = components.free_ports(1)
    found = Store(port)
    app = web.Application()
    app.router.add_get("/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield found
    await runner.cleanup()


def source(store: Store, key: str, **options: str) -> Source:
    artifact = TaskArtifact(getter_source=f"s3::{store.url}/shelf/{key}", getter_options=options)
    return source_of(artifact, {})


async def fetch(tmp_path: Path, wanted: Source, settings: ArtifactSettings | None = None) -> bool:
    (tmp_path / "content").mkdir(exist_ok=True)
    return await fetch_objects(wanted, tmp_path / "single", tmp_path / "content", settings or ArtifactSettings())


async def test_one_object_by_the_jobs_own_key(tmp_path: Path, store: Store) -> None:
    keys = {"aws_access_key_id": "ME", "aws_access_key_secret": "secret", "region": "eu-west-1"}
    assert await fetch(tmp_path, source(store, "tool.txt", **keys))
    assert (tmp_path / "single").read_bytes() == b"one object"
    signed = store.asked[-1].headers["Authorization"]
    assert signed.startswith("AWS4-HMAC-SHA256 Credential=ME/")
    assert "/eu-west-1/s3/" in signed
    assert "secret" not in signed
    right = hashlib.sha256(b"one object").hexdigest()
    require_digest(tmp_path / "single", source(store, "tool.txt", checksum=f"sha256:{right}"))
    with pytest.raises(LepaError, match="checksum did not match"):
        require_digest(tmp_path / "single", source(store, "tool.txt", checksum=f"sha256:{'0' * 64}"))


async def test_all_objects_below_a_key_without_credentials(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own are not used unless the operator says so."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AGENTS")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "own")
    assert not await fetch(tmp_path, source(store, "dir"))
    found = {
        str(path.relative_to(tmp_path / "content")) for path in (tmp_path / "content").rglob("*") if path.is_file()
    }
    assert found == {"a", "sub/b"}
    assert not any("Authorization" in request.headers for request in store.asked)
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    assert await fetch(tmp_path, source(store, "tool.txt"), ArtifactSettings(environment=names))
    assert "Credential=AGENTS/" in store.asked[-1].headers["Authorization"]


async def test_what_is_not_there_not_allowed_or_too_much_is_refused(tmp_path: Path, store: Store) -> None:
    with pytest.raises(LepaError, match="no object 'none'"):
        await fetch(tmp_path, source(store, "none"))
    with pytest.raises(LepaError, match="http_max_size"):
        await fetch(tmp_path, source(store, "big"), ArtifactSettings(http_bytes_max=1000))
    with pytest.raises(LepaError, match="more than 1 objects"):
        await fetch(tmp_path, source(store, "dir"), ArtifactSettings(files_max=1))
    with pytest.raises(LepaError, match="not fetched from"):
        await fetch(tmp_path, source(store, "big"), ArtifactSettings(denied_networks=("127.0.0.0/8",)))
    with pytest.raises(LepaError, match="s3:"):
        await fetch(tmp_path, source(store, "x")._replace(place=ObjectPlace("other", "x", store.url)))


async def test_without_the_extra_the_job_is_told_what_to_install(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    with pytest.raises(LepaError, match=r"pip install lepa\[obstore\]"):
        await fetch(tmp_path, source(store, "tool.txt"))


@pytest.mark.parametrize(
    ("text", "kind", "place"),
    [
        ("s3::https://s3.amazonaws.com/b/k/l", "s3", ("b", "k/l", "https://s3.us-east-1.amazonaws.com", "")),
        (
            "s3::https://s3-eu-west-1.amazonaws.com/b/k",
            "s3",
            ("b", "k", "https://s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ),
        ("https://b.s3.eu-west-1.amazonaws.com/k", "s3", ("b", "k", "https://s3.eu-west-1.amazonaws.com", "eu-west-1")),
        ("https://my.b.s3.amazonaws.com/k", "s3", ("my.b", "k", "https://s3.us-east-1.amazonaws.com", "")),
        ("s3::http://minio:9000/b/k", "s3", ("b", "k", "http://minio:9000", "")),
        ("gcs::https://www.googleapis.com/storage/v1/b/k/l", "gcs", ("b", "k/l", "", "")),
    ],
)
def test_buckets_and_keys_of_addresses(text: str, kind: str, place: tuple[str, ...]) -> None:
    found = source_of(TaskArtifact(getter_source=text), {})
    assert (found.kind, tuple(found.place)) == (kind, place)


def test_an_address_without_an_object_is_refused() -> None:
    with pytest.raises(LepaError, match="names no bucket and object"):
        source_of(TaskArtifact(getter_source="s3::https://s3.amazonaws.com/bucket"), {})
