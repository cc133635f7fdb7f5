"""Artifacts are fetched from where they may come, and by nobody but the job's own word (S7).

Modules: lepa.client.hooks.artifact_http, lepa.client.hooks.artifact_tools, lepa.client.hooks.artifact_settings.
"""

import base64
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests import components

from lepa.client.hooks.artifact_http import download, guarded_session, redirected
from lepa.client.hooks.artifact_settings import ArtifactSettings, denied
from lepa.client.hooks.artifact_source import Source
from lepa.client.hooks.artifact_tools import _environment, clone
from lepa.model.errors import LepaError

ELSEWHERE = "127.0.0.2"


class Web:
    """A server on two addresses of loopback, which keeps what it was asked with."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.asked: list[Any] = []

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request)
        if target := request.query.get("to"):
            return web.Response(status=302, headers={"Location": target})
        if request.path == "/round":
            return web.Response(status=307, headers={"Location": "/round"})
        return web.Response(body=b"x" * int(request.query.get("size", "2")))


@pytest.fixture
async def server() -> AsyncIterator[Web]:
    (port,) = components.free_ports(1)
    found = Web(port)
    app = web.Application()
    app.router.add_get("/{path:.*}", found.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    for address in ("127.0.0.1", ELSEWHERE):
        await web.TCPSite(runner, address, port).start()
    yield found
    await runner.cleanup()


async def fetched(tmp_path: Path, url: str, settings: ArtifactSettings, **fields: Any) -> bytes:
    target = tmp_path / "fetched"
    async with guarded_session(settings) as http:
        await download(http, Source("http", url, **fields), target, settings, insecure=False)
    return target.read_bytes()


@pytest.mark.parametrize(
    ("path", "network", "allowed"),
    [
        ("http://127.0.0.1:{port}/x", "127.0.0.1/32", False),
        ("http://localhost:{port}/x", "127.0.0.0/8", False),
        ("http://[::ffff:127.0.0.1]:{port}/x", "127.0.0.0/8", False),
        ("http://127.0.0.1:{port}/x?to=http://127.0.0.2:{port}/y", "127.0.0.2/32", False),
        ("http://127.0.0.1:{port}/x?to=//127.0.0.2:{port}/y", "127.0.0.2/32", False),
        ("http://127.0.0.1:{port}/x?to=http://127.0.0.2:{port}/y", "10.0.0.0/8", True),
    ],
)
async def test_no_name_number_or_redirect_leads_to_a_denied_network(
    tmp_path: Path, server: Web, path: str, network: str, allowed: bool
) -> None:
    settings = ArtifactSettings(denied_networks=(network,))
    url = path.format(port=server.port)
    if allowed:
        assert await fetched(tmp_path, url, settings) == b"xx"
        return
    with pytest.raises(LepaError, match="not fetched from") as raised:
        await fetched(tmp_path, url, settings)
    assert raised.value.code == "denied"


async def test_the_metadata_service_of_clouds_is_denied_unless_the_operator_says_otherwise(tmp_path: Path) -> None:
    for url in ("http://169.254.169.254/latest/meta-data/", "http://[fe80::1%25lo]/", "http://[::ffff:a9fe:a9fe]/"):
        with pytest.raises(LepaError, match="not fetched from"):
            await fetched(tmp_path, url, ArtifactSettings())
    with pytest.raises(LepaError, match="canonical"):
        await fetched(tmp_path, "http://2852039166/", ArtifactSettings())
    assert denied("10.1.2.3", ArtifactSettings().denied_networks) == ""


async def test_headers_and_credentials_stay_with_the_host_they_are_for(tmp_path: Path, server: Web) -> None:
    headers = {"X-Token": "secret", "Authorization": "Bearer secret", "Cookie": "a=b"}
    await fetched(tmp_path, server.url(f"/a?to={server.url('/b')}"), ArtifactSettings(), headers=headers)
    assert [request.headers.get("X-Token") for request in server.asked] == ["secret", "secret"]
    server.asked.clear()
    away = server.url("/b", ELSEWHERE)
    await fetched(tmp_path, server.url(f"/a?to={away}"), ArtifactSettings(), headers=headers)
    assert not {"X-Token", "Authorization", "Cookie"} & set(server.asked[1].headers)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x/", "javascript:x"])
async def test_redirects_lead_to_http_only(tmp_path: Path, server: Web, target: str) -> None:
    with pytest.raises(LepaError, match="no HTTP URL"):
        await fetched(tmp_path, server.url(f"/a?to={target}"), ArtifactSettings())


async def test_circles_downgrades_and_too_much_are_refused(tmp_path: Path, server: Web) -> None:
    with pytest.raises(LepaError, match="more than 10 redirects"):
        await fetched(tmp_path, server.url("/round"), ArtifactSettings())
    with pytest.raises(LepaError, match="larger than 1000 bytes"):
        await fetched(tmp_path, server.url("/big?size=5000"), ArtifactSettings(http_bytes_max=1000))
    with pytest.raises(LepaError, match="from https to http"):
        redirected("https://a/x", "http://a/y", {})
    assert redirected("https://a/x", "y", {"k": "v"}) == ("https://a/y", {"k": "v"})


def git(folder: Path, *words: str) -> None:
    identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, the first with a tag."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    for text, then in (("one", ["tag", "v1"]), ("two", ["tag", "v2"])):
        (folder / "file").write_text(text)
        git(folder, "add", ".")
        git(folder, "commit", "-m", text)
        git(folder, *then)
    return folder


def listening(command: list[Any], port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(400):
        if components.listens(port):
            return process
        assert process.poll() is None, command
        subprocess.run(["sleep", "0.05"], check=True)
    process.kill()
    raise AssertionError(f"{command} does not listen")


@pytest.fixture
def git_daemon(repository: Path) -> Iterator[str]:
    (port,) = components.free_ports(1)
    words = ["daemon", "--reuseaddr", "--export-all", "--listen=127.0.0.1", f"--port={port}"]
    program = Path(subprocess.check_output(["git", "--exec-path"], text=True).strip()) / "git-daemon"
    process = listening([program, *words[1:], f"--base-path={repository.parent}", repository], port)
    yield f"git://127.0.0.1:{port}/repository"
    process.terminate()
    process.wait()


@pytest.fixture
def content(tmp_path: Path) -> Path:
    folder = tmp_path / "staging" / "content"
    folder.mkdir(parents=True)
    return folder


async def test_a_repository_of_another_machine_is_cloned_at_a_revision(git_daemon: str, content: Path) -> None:
    await clone(Source("git", git_daemon, ref="v1"), content, ArtifactSettings())
    assert [(path.name, path.read_text()) for path in content.iterdir()] == [("file", "one")]


async def test_a_shallow_clone_and_a_denied_host(git_daemon: str, content: Path) -> None:
    with pytest.raises(LepaError, match="not fetched from"):
        await clone(Source("git", git_daemon), content, ArtifactSettings(denied_networks=("127.0.0.0/8",)))
    await clone(Source("git", git_daemon, depth="1"), content, ArtifactSettings())
    assert (content / "file").read_text() == "two"


async def test_repositories_of_the_node_need_the_operators_consent(repository: Path, content: Path) -> None:
    with pytest.raises(LepaError, match="allow_local_git") as raised:
        await clone(Source("git", f"file://{repository}"), content, ArtifactSettings())
    assert raised.value.code == "denied"
    await clone(Source("git", f"file://{repository}"), content, ArtifactSettings(local_git=True))
    assert (content / "file").read_text() == "two"


async def test_a_mercurial_repository_is_cloned_at_a_revision(tmp_path: Path, content: Path) -> None:
    components.require("hg", "mercurial")
    folder = tmp_path / "hg"
    folder.mkdir()

    def hg(*words: str) -> None:
        subprocess.run(["hg", "--config", "ui.username=t", *words], cwd=folder, check=True, capture_output=True)

    hg("init")
    for text in ("one", "two"):
        (folder / "file").write_text(text)
        hg("commit", "--addremove", "-m", text)
    (port,) = components.free_ports(1)
    process = listening(["hg", "-R", folder, "serve", "-a", "127.0.0.1", "-p", str(port)], port)
    try:
        await clone(Source("hg", f"http://127.0.0.1:{port}/", ref="0"), content, ArtifactSettings())
    finally:
        process.terminate()
        process.wait()
    assert [(path.name, path.read_text()) for path in content.iterdir()] == [("file", "one")]


def test_tools_see_nothing_of_the_agents_environment(content: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """S8: neither secrets nor what would change a program."""
    for name in ("LEPA_TOKEN", "LD_PRELOAD", "PYTHONPATH", "GIT_SSH_COMMAND", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "x")
    assert set(_environment(content, ArtifactSettings())) == {"PATH", "HOME", "LC_ALL"}
    assert _environment(content, ArtifactSettings(environment=("HTTPS_PROXY", "NONE")))["HTTPS_PROXY"] == "x"


async def test_a_key_that_is_none_is_refused_and_one_that_is_stays_private(content: Path) -> None:
    with pytest.raises(LepaError, match="not a key in base64"):
        await clone(Source("git", "ssh://127.0.0.1:1/r", ssh_key="?"), content, ArtifactSettings())
    key = base64.b64encode(b"-----BEGIN").decode()
    with pytest.raises(LepaError, match="git:"):
        await clone(Source("git", "ssh://127.0.0.1:1/r", ssh_key=key), content, ArtifactSettings(git_s=20))
    assert (content.parent / "ssh-key").stat().st_mode & 0o777 == 0o600
