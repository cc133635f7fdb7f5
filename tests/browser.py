"""A real browser for tests of pages: Debian's Chromium without a window, spoken to in its own protocol.

with chromium(folder) as port:
    async with Browser(port) as browser:
        tab = await browser.open(f"{agent.address}/ui/jobs")
        await tab.sees("web", "running")
        await tab.click("button", "Stop")
"""

import asyncio
import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

START_S, SEEN_S, LOOK_S = 60.0, 40.0, 0.05
STOP_S = 20.0
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,900",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
    "--remote-debugging-port=0",
)  # fmt: skip
TEXT = "(document.body?.innerText ?? '')"
FIND = """(selector, text) => [...document.querySelectorAll(selector)].filter(
  (found) => (found.innerText || found.value || found.ariaLabel || "").trim() === text
    || found.getAttribute("aria-label") === text)"""


class Tab:
    """One page. problems: what its console, its policy or its scripts complained of. dialogs: `alert` and its kin.
    refusals: requests that failed, which a page tells in words."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self.problems: list[str] = []
        self.refusals: list[str] = []
        self.dialogs: list[Any] = []

    def __repr__(self) -> str:
        return f"problems={self.problems} refusals={self.refusals}"

    async def ask(self, method: str, **params: Any) -> Any:
        """The answer to a command: its "result", or its "error"."""
        number = next(self._ids)
        await self._socket.send_json({"id": number, "method": method, "params": params})
        async with asyncio.timeout(SEEN_S):
            while True:
                message = await self._socket.receive_json()
                if message.get("id") == number:
                    return message
                self._note(message)

    def _note(self, event: Any) -> None:
        if event["method"] == "Log.entryAdded" and event["params"]["entry"]["level"] == "error":
            entry = event["params"]["entry"]
            told = self.refusals if entry["source"] == "network" else self.problems
            told.append(f"{entry['text']} {entry.get('url', '')}")
        if event["method"] == "Runtime.exceptionThrown":
            self.problems.append(str(event["params"]["exceptionDetails"]))
        if event["method"] == "Runtime.consoleAPICalled" and event["params"]["type"] == "error":
            self.problems.append(str(event["params"]["args"]))
        if event["method"] == "Page.javascriptDialogOpening":
            self.dialogs.append(event["params"])

    async def evaluate(self, expression: str) -> Any:
        """What an expression is in the page, as JSON; None while a page gives way to the next."""
        answer = await self.ask("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "context" in answer.get("error", {}).get("message", ""):
            return None
        found = answer["result"]
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    async def until(self, expression: str, within_s: float = SEEN_S) -> Any:
        """The first true value of an expression."""
        deadline = time.monotonic() + within_s
        while not (found := await self.evaluate(expression)):
            seen = await self.evaluate(TEXT)
            assert time.monotonic() < deadline, f"not within {within_s:g} s: {expression}\n{seen}\n{self}"
            await asyncio.sleep(LOOK_S)
        return found

    async def sees(self, *texts: str) -> str:
        """Wait until a person sees all these texts; all that is seen then."""
        await self.until(f"{json.dumps(texts)}.every((text) => {TEXT}.includes(text))")
        return str(await self.evaluate(TEXT))

    async def click(self, selector: str, text: str) -> None:
        """Wait for the element with this text, which is what a person would click, and click it."""
        found = f"({FIND})({json.dumps(selector)}, {json.dumps(text)}).find((each) => !each.disabled)"
        await self.until(f"Boolean({found})")
        await self.evaluate(f"{found}.click()")

    async def type(self, selector: str, text: str) -> None:
        """Put a text into a field, as typing does."""
        await self.until(f"Boolean(document.querySelector({json.dumps(selector)}))")
        await self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        await self.ask("Input.insertText", text=text)

    async def go(self, url: str) -> None:
        """Load another page."""
        await self.ask("Page.navigate", url=url)


class Browser:
    """What a running browser shows while this is entered. port: where it listens for commands."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Browser":
        self._session = await self._stack.enter_async_context(aiohttp.ClientSession())
        async with self._session.get(f"http://127.0.0.1:{self._port}/json/version") as answer:
            version = await answer.json(content_type=None)
        self._whole = await self._tab(version["webSocketDebuggerUrl"])
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def open(self, url: str) -> Tab:
        """A tab at a URL, with storage, cache and connections of its own. It is closed with this."""
        made = await self._whole.ask("Target.createBrowserContext", disposeOnDetach=True)
        place = made["result"]["browserContextId"]
        target = await self._whole.ask("Target.createTarget", url="about:blank", browserContextId=place)
        tab = await self._tab(f"ws://127.0.0.1:{self._port}/devtools/page/{target['result']['targetId']}")
        for domain in ("Page", "Runtime", "Log"):
            await tab.ask(f"{domain}.enable")
        await tab.go(url)
        return tab

    async def _tab(self, address: str) -> Tab:
        return Tab(await self._stack.enter_async_context(self._session.ws_connect(address, max_msg_size=0)))


@contextmanager
def chromium(folder: Path) -> Iterator[int]:
    """A browser that runs with a new profile in a folder, which has a short name as a socket's path is short; where it
    listens."""
    profile = folder / "profile"
    with (folder / "chromium.log").open("wb") as log:
        command = ["chromium", *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"TMPDIR": str(folder)})
    try:
        yield _port(process, profile / "DevToolsActivePort", folder / "chromium.log")
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], said: Path, log: Path) -> int:
    deadline = time.monotonic() + START_S
    while not said.exists() or "\n" not in said.read_text():
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(LOOK_S)
    return int(said.read_text().split("\n")[0])
