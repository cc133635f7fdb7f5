"""The pages for a browser, below `/ui/`: the files of `lepa/ui`, which talk to the HTTP API like anyone else.

The files are read once, when the application is built, and only those that were read are ever sent: no path of a
request becomes a path on the disk. `/ui/assets/NAME` is a file; every other path is a page, for which `index.html` is
sent: its script reads the address. Files need no token, they are the same for everybody; what they show is asked of
the API.
"""

import hashlib
import html
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from aiohttp import web

import lepa
from lepa.api.page_policy import PageSettings

PREFIX: Final = "/ui/"
ASSETS: Final = f"{PREFIX}assets/"
FOLDER: Final = Path(lepa.__file__).parent / "ui"
INDEX: Final = "index.html"
TYPES: Final[Mapping[str, str]] = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""What is sent of the folder, by suffix."""
_PLACE = re.compile(r"\{\{(\w+)\}\}")


class PageFile(NamedTuple):
    """A file as it is sent. etag: quoted."""

    body: bytes
    kind: str
    etag: str


def add_pages(app: web.Application, settings: PageSettings) -> None:
    """Add the routes of the pages, and lead `/` to them; nothing where they are not enabled."""
    if not settings.enabled:
        return
    files = page_files(settings)
    headers = page_headers(settings)

    async def asset(request: web.Request) -> web.StreamResponse:
        return _answer(request, files.get(request.match_info["name"]), headers)

    async def page(request: web.Request) -> web.StreamResponse:
        return _answer(request, files[INDEX], headers)

    async def to_pages(request: web.Request) -> web.StreamResponse:
        query = f"?{request.query_string}" if request.query_string else ""
        return web.Response(status=307, headers={"Location": f"{PREFIX}{query}"})

    app.router.add_get(ASSETS + "{name:.*}", asset)
    app.router.add_get(PREFIX + "{page:.*}", page)
    app.router.add_get("/ui", to_pages)
    app.router.add_get("/", to_pages)


def page_files(settings: PageSettings, folder: Path = FOLDER) -> dict[str, PageFile]:
    """Every file of the folder that may be sent, by name."""
    places = {
        "version": lepa.__version__,
        "label": settings.label,
        "background": settings.label_background,
        "color": settings.label_color,
    }
    found = {}
    for path in folder.iterdir():
        if kind := TYPES.get(path.suffix):
            body = path.read_bytes()
            found[path.name] = _file(_filled(body, places) if path.name == INDEX else body, kind)
    return found


def _filled(body: bytes, places: Mapping[str, str]) -> bytes:
    """The body with the settings in its `{{places}}`, as text that cannot be markup."""
    return _PLACE.sub(lambda match: html.escape(places[match[1]]), body.decode()).encode()


def _file(body: bytes, kind: str) -> PageFile:
    return PageFile(body, kind, f'"{hashlib.sha256(body).hexdigest()[:32]}"')


def page_headers(settings: PageSettings) -> dict[str, str]:
    """Headers of every file. A browser keeps files, and asks each time whether they are still the same."""
    policy = "; ".join(f"{name} {' '.join(sources)}" for name, sources in settings.policy.items() if sources)
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def _answer(request: web.Request, file: PageFile | None, headers: Mapping[str, str]) -> web.StreamResponse:
    if file is None:
        return web.Response(status=404, headers=headers)
    same = {**headers, "ETag": file.etag}
    if file.etag in [each.strip().removeprefix("W/") for each in request.headers.get("If-None-Match", "").split(",")]:
        return web.Response(status=304, headers=same)
    return web.Response(body=file.body, content_type=file.kind, charset="utf-8", headers=same)
