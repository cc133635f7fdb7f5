"""A bare aiohttp server on uvloop: what the HTTP API's framework costs without the API.

    python -m benchmarks._bare_api BODY_FILE        prints its port

`/now` answers the body at once; `/parked` answers it when somebody asks for `/wake`.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop
from aiohttp import web


@contextmanager
def bare_server(body_file: Path) -> Iterator[tuple[int, int]]:
    """Port and process id of a running one."""
    command = [sys.executable, "-m", "benchmarks._bare_api", str(body_file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


async def _serve(body: bytes) -> None:
    woken = asyncio.Event()

    async def now(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    async def parked(request: web.Request) -> web.Response:
        await woken.wait()
        return await now(request)

    async def wake(request: web.Request) -> web.Response:
        woken.set()
        return web.Response()

    app = web.Application()
    app.router.add_get("/now", now)
    app.router.add_get("/parked", parked)
    app.router.add_get("/wake", wake)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve(Path(sys.argv[1]).read_bytes()))
