"""A whole ingress, lepa.ingress.ingress with lepa.ingress.admin, in front of an HTTP API that a test writes."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.integration.ingress_world import HOST, answering, free_port, serving

from lepa.ingress.__main__ import parser, settings_of
from lepa.ingress.ingress import Ingress
from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.model.errors import LepaError
from lepa.sdk.address import Target

WITHIN_S = 10.0
CLOCK = SystemClock()


class Api:
    """What an ingress asks of an agent: services, nodes and their events."""

    def __init__(self) -> None:
        self.port = free_port()
        self.services: dict[str, list[dict[str, Any]]] = {}
        self.index = 1
        self._streams: list[web.StreamResponse] = []
        self._runner: web.AppRunner | None = None

    async def start(self) -> None:
        app = web.Application()
        app.router.add_get("/v1/event/stream", self._events)
        app.router.add_get("/v1/services", self._services)
        app.router.add_get("/v1/service/{name}", self._service)
        app.router.add_get("/v1/nodes", self._nodes)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, HOST, self.port).start()

    async def stop(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def change(self, name: str, port: int, *tags: str) -> None:
        """Register one instance, and tell."""
        self.index += 1
        row = {"ID": name, "ServiceName": name, "Namespace": "default", "Address": HOST, "Port": port, "Tags": tags}
        self.services[name] = [row]
        event = {"Topic": "Service", "Type": "ServiceRegistration", "Payload": {"Service": row}}
        for stream in self._streams:
            await stream.write(json.dumps({"Index": self.index, "Events": [event]}).encode() + b"\n")

    async def _events(self, request: web.Request) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"{}\n")
        self._streams.append(stream)
        await asyncio.Event().wait()
        return stream

    async def _services(self, _: web.Request) -> web.Response:
        stubs = [{"ServiceName": name, "Tags": []} for name in self.services]
        return self._answer([{"Namespace": "default", "Services": stubs}])

    async def _service(self, request: web.Request) -> web.Response:
        return self._answer(self.services.get(request.match_info["name"], []))

    async def _nodes(self, _: web.Request) -> web.Response:
        return self._answer([])

    def _answer(self, value: object) -> web.Response:
        return web.json_response(value, headers={"X-Nomad-Index": str(self.index)})


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    made = Api()
    await made.start()
    yield made
    await made.stop()


def made(api: Api, **settings: Any) -> Ingress:
    wanted = IngressSettings(address=HOST, http=free_port(), ui=free_port(), drain_s=0.05, **settings)
    return Ingress(wanted, Target("http", HOST, api.port), SystemClock(), SystemRandom())


async def ask(port: int, path: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"http://{HOST}:{port}{path}") as answer:
        return answer.status, await answer.text()


async def until(port: int, path: str, expected: tuple[int, str]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while await ask(port, path) != expected:
            await CLOCK.sleep(0.01)


async def test_services_are_routed_as_they_come_and_kept_while_the_agent_is_away(api: Api) -> None:
    with serving(answering(b"one")) as one, serving(answering(b"two")) as two:
        await api.change("web", one.port, "urlprefix-/")
        ingress = made(api)
        async with ingress:
            http = ingress.plane.settings.http
            await until(http, "/", (200, "one"))
            await api.change("web", two.port, "urlprefix-/")
            await until(http, "/", (200, "two"))
            await api.stop()
            await asyncio.sleep(0.1)
            assert await ask(http, "/") == (200, "two")


async def test_the_port_for_watchers(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    await api.change("web", 80, "urlprefix-/a strip=/a", "urlprefix-bad", "urlprefix-<b>/")
    ingress = made(api)
    async with ingress:
        ui = ingress.plane.settings.ui
        await until(ui, "/health", (200, "OK\n"))
        routes = json.loads((await ask(ui, "/api/routes"))[1])
        assert {"service": "web", "src": "/a", "dst": f"http://{HOST}:80/", "opts": "strip=/a"}.items() <= routes[
            0
        ].items()
        assert (await ask(ui, "/api/routes?raw"))[1].startswith("route add web /a ")
        assert json.loads((await ask(ui, "/api/notices"))[1])[0]["tag"] == "urlprefix-bad"
        assert json.loads((await ask(ui, "/api/config"))[1])["ui"] == ui
        assert "lepa_ingress_routes 2" in (await ask(ui, "/metrics"))[1]
        assert (await ask(ui, "/api/version"))[0] == 200
        page = (await ask(ui, "/"))[1]
        assert "urlprefix-bad" in page
        assert "<b>/" not in page
        ingress.plane.drain()
        await until(ui, "/health", (503, "ending\n"))
    assert [record.getMessage() for record in caplog.records if "not followed" in record.getMessage()] != []


async def test_health_waits_for_the_first_table() -> None:
    nobody = Api()
    ingress = made(nobody)
    async with ingress:
        assert await ask(ingress.plane.settings.ui, "/health") == (503, "no routes yet\n")


async def test_passwords_come_from_files(api: Api, tmp_path: Path) -> None:
    (tmp_path / "staff").write_text("ann:secret\n")
    with serving(answering(b"x")) as server:
        await api.change("web", server.port, "urlprefix-/ auth=staff")
        ingress = made(api, auth={"staff": str(tmp_path / "staff")})
        async with ingress:
            await until(ingress.plane.settings.http, "/", (401, "a name and a password are needed\n"))
            known = {"Authorization": f"Basic {b64encode(b'ann:secret').decode()}"}
            async with aiohttp.ClientSession(headers=known) as session:
                async with session.get(f"http://{HOST}:{ingress.plane.settings.http}/") as answer:
                    assert answer.status == 200
    with pytest.raises(LepaError, match="cannot read"):
        async with made(api, auth={"staff": str(tmp_path / "missing")}):
            pass


async def test_a_port_for_watchers_that_is_taken(api: Api) -> None:
    ingress = IngressSettings(address=HOST, http=free_port(), ui=api.port, drain_s=0.05)
    with pytest.raises(LepaError, match="cannot listen on"):
        async with Ingress(ingress, Target("http", HOST, api.port), SystemClock(), SystemRandom()):
            pass


def test_the_command_line_has_an_option_for_each_setting(tmp_path: Path) -> None:
    words = ["--http", "80", "--tcp", "1=a", "--tcp", "2=b", "--entrypoints", "mysql=3306", "--no-dynamic"]
    found = settings_of(parser().parse_args([*words, "--connect-s", "0.5", "--strategy", "lc"]))
    assert found == IngressSettings(
        http=80, tcp=("1=a", "2=b"), entrypoints={"mysql": "3306"}, dynamic=False, connect_s=0.5, strategy="lc"
    )
    (tmp_path / "settings.json").write_text('{"http": 81, "ui": 0}')
    found = settings_of(parser().parse_args(["--settings", str(tmp_path / "settings.json"), "--ui", "5"]))
    assert (found.http, found.ui) == (81, 5)


@pytest.mark.parametrize("words", [["--http", "x"], ["--strategy", "best"], ["--settings", "/nowhere"]])
def test_command_lines_that_cannot_be(words: list[str]) -> None:
    with pytest.raises(LepaError, match="ingress: settings"):
        settings_of(parser().parse_args(words))
