"""The files of the pages: what is sent, with which headers, and that nothing else ever is."""

import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from lepa.api.page_policy import POLICY, PageSettings
from lepa.api.pages import FOLDER, add_pages, page_files, page_headers

Made = Callable[[PageSettings], Awaitable[TestClient[Any, Any]]]
SCRIPTS = sorted(FOLDER.glob("*.js"))


@pytest.fixture
async def made() -> Any:
    """Makes clients of an application that has only the pages."""
    clients = []

    async def make(settings: PageSettings) -> TestClient[Any, Any]:
        app = web.Application()
        add_pages(app, settings)
        client: TestClient[Any, Any] = TestClient(TestServer(app))
        await client.start_server()
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


async def test_every_page_is_the_same_file_and_the_root_leads_to_it(made: Made) -> None:
    client = await made(PageSettings())
    for path in ("/", "/ui"):
        response = await client.get(f"{path}?ott=abc", allow_redirects=False)
        assert (response.status, response.headers["Location"]) == (307, "/ui/?ott=abc")
    texts = set()
    for path in ("/ui/", "/ui/jobs", "/ui/jobs/a%2Fb.c@default", "/ui/allocations/4f", "/ui/no/such/page.js"):
        response = await client.get(URL(path, encoded=True))
        assert (response.status, response.content_type) == (200, "text/html")
        texts.add(await response.text())
    assert len(texts) == 1


async def test_files_have_their_types_and_headers_that_keep_a_browser_careful(made: Made) -> None:
    client = await made(PageSettings())
    for name, kind in (("app.js", "text/javascript"), ("style.css", "text/css"), ("icon.svg", "image/svg+xml")):
        response = await client.get(f"/ui/assets/{name}")
        assert (response.status, response.content_type) == (200, kind)
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-cache"
        policy = response.headers["Content-Security-Policy"]
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert "*" not in policy


async def test_a_browser_that_has_a_file_is_told_so(made: Made) -> None:
    client = await made(PageSettings())
    etag = (await client.get("/ui/assets/app.js")).headers["ETag"]
    for known in (etag, f"W/{etag}", f'"other", {etag}'):
        response = await client.get("/ui/assets/app.js", headers={"If-None-Match": known})
        assert (response.status, await response.read(), response.headers["ETag"]) == (304, b"", etag)
    assert (await client.get("/ui/assets/app.js", headers={"If-None-Match": '"old"'})).status == 200
    head = await client.head("/ui/assets/app.js")
    assert (head.status, await head.read(), head.headers["ETag"]) == (200, b"", etag)


@pytest.mark.parametrize(
    "path",
    [
        "/ui/assets/../pages.py",
        "/ui/assets/..%2f..%2fapi%2fpages.py",
        "/ui/assets/%2e%2e/api/pages.py",
        "/ui/assets/%2e%2e%2f__init__.py",
        "/ui/assets//etc/passwd",
        "/ui/assets/%2fetc%2fpasswd",
        "/ui/assets/..%5c..%5capi",
        "/ui/assets/.",
        "/ui/assets/",
        "/ui/assets/app.js%00.html",
        "/ui/assets/APP.JS",
    ],
)
async def test_no_other_file_is_handed_out(made: Made, path: str) -> None:
    client = await made(PageSettings())
    response = await client.get(URL(path, encoded=True))
    text = await response.text()
    assert response.status == 404 or text == await (await client.get("/ui/")).text()
    assert "root:" not in text
    assert "import" not in text


def test_only_known_kinds_of_files_are_read(tmp_path: Path) -> None:
    for name in ("index.html", "app.js", "notes.txt", "__init__.py", ".env"):
        (tmp_path / name).write_text("text")
    (tmp_path / "more").mkdir()
    assert set(page_files(PageSettings(), tmp_path)) == {"index.html", "app.js"}


async def test_pages_that_are_not_wanted_are_not_there(made: Made) -> None:
    client = await made(PageSettings(enabled=False))
    for path in ("/", "/ui/", "/ui/assets/app.js"):
        assert (await client.get(path, allow_redirects=False)).status == 404


def test_a_label_is_text_and_changes_the_tag_of_the_page() -> None:
    plain = page_files(PageSettings())["index.html"]
    labelled = page_files(PageSettings(label='<b onload="x">prod</b>', label_background="darkred"))["index.html"]
    assert b'content="&lt;b onload=&quot;x&quot;&gt;prod&lt;/b&gt;" data-background="darkred"' in labelled.body
    assert plain.etag != labelled.etag


def test_a_directive_without_sources_is_left_out() -> None:
    policy = {**POLICY, "img-src": (), "connect-src": ("'self'", "https://a.example")}
    found = page_headers(PageSettings(policy=policy))["Content-Security-Policy"]
    assert "img-src" not in found
    assert "connect-src 'self' https://a.example;" in found


def test_the_page_holds_nothing_inline_and_nothing_from_elsewhere() -> None:
    page = page_files(PageSettings())["index.html"].body.decode()
    assert re.findall(r"<script(?![^>]*\bsrc=)|<style|\son\w+=|\sstyle=|javascript:|https?://", page) == []
    for name in re.findall(r'(?:src|href)="/ui/assets/([^"]+)"', page):
        assert (FOLDER / name).is_file(), name


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_imports_what_is_there_and_never_makes_markup_of_text(path: Path) -> None:
    text = path.read_text()
    for name, module in re.findall(r'import \{([^}]*)\} from "\./([^"]+)"', text):
        exported = (FOLDER / module).read_text()
        for each in filter(None, (part.strip() for part in name.split(","))):
            assert re.search(rf"export (async )?(function|const|class) {each}\b", exported), f"{module}: {each}"
            assert len(re.findall(rf"\b{each}\b", text)) > 1, f"{each} of {module} is not used"
    banned = (
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|localStorage|\.cssText =(?! to)"
    )
    assert re.findall(banned, text) == []
