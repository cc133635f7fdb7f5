"""What those who look for a fault ask an agent: its schedulers, its log file, and what its processor time goes to.

A profile is what a sampler saw: PROFILE_HZ times a second it notes which functions the agent's threads are in, and
answers with one line for each stack, its functions parted by `;`, and how often it was seen ("folded stacks", which
flame graph programs read). Profiles need `enable_debug`. Where Go's runtime would answer with a format of its own
(heap, allocs, block, mutex, trace), Python has nothing alike: 404 says so.
"""

import asyncio
import base64
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import msgspec
from aiohttp import web

from lepa.api.edge import Edge, Route
from lepa.api.forward import node_by_id, pass_on
from lepa.api.request import JSON, TEXT, flag, json_response, number
from lepa.model.errors import LepaError, invalid, not_found

PROFILE_HZ = 97
PROFILE_S_MAX = 60
STACK_MAX = 64
CHUNK = 64 * 1024
EXPORT_MAX = 256 * 1024 * 1024


async def schedulers(edge: Edge, request: web.Request) -> web.StreamResponse:
    """Workers of this server: what they schedule and whether they run."""
    return json_response(request, edge.agent.schedulers())


async def schedulers_config(edge: Edge, request: web.Request) -> web.StreamResponse:
    """How many workers there are. Their number is a setting that is read when the agent starts."""
    found = edge.agent.schedulers()
    if request.method != "GET":
        raise LepaError("unsupported", "the number of schedulers is set by `server { num_schedulers }` and a restart")
    workers = found["schedulers"]
    types = workers[0]["enabled_schedulers"] if workers else []
    answer = {"server_id": found["server_id"], "num_schedulers": len(workers), "enabled_schedulers": types}
    return json_response(request, answer)


async def export_log(edge: Edge, request: web.Request) -> web.StreamResponse:
    """The log file of this agent, as frames or plain."""
    if request.query.get("service_name"):
        raise invalid("service_name needs a systemd journal, which is not read here; use on_disk=true")
    path = edge.agent.log_file()
    if path is None or not path.is_file():
        raise invalid("this agent writes no log file: set log_file, or follow /v1/agent/monitor")
    plain = flag(request.query, "plain")
    response = web.StreamResponse(headers={"Content-Type": TEXT if plain else JSON})
    await response.prepare(request)
    for piece in _pieces(path):
        await response.write(piece if plain else msgspec.json.encode({"Data": base64.b64encode(piece).decode()}))
    return response


def _pieces(path: Path) -> Iterator[bytes]:
    left = EXPORT_MAX
    with path.open("rb") as file:
        while left > 0 and (piece := file.read(min(CHUNK, left))):
            left -= len(piece)
            yield piece


async def profile(edge: Edge, request: web.Request) -> web.StreamResponse:
    """What the agent's threads do: `profile` samples stacks, `goroutine` shows all once, `cmdline` its arguments."""
    if request.query.get("node_id"):
        place = await node_by_id(edge, request)
        if isinstance(place, str):
            return await pass_on(request, place)
    if not edge.settings.debug:
        raise LepaError("denied", "Permission denied")
    kind = request.match_info["kind"]
    if kind == "cmdline":
        return web.Response(body=b"\0".join(map(os.fsencode, sys.argv)), content_type=TEXT)
    if kind == "profile":
        seconds = number(request.query, "seconds", 1)
        if not 1 <= seconds <= PROFILE_S_MAX:
            raise invalid(f"seconds must be between 1 and {PROFILE_S_MAX}, not {seconds}")
        return web.Response(text=await _sampled(seconds), content_type=TEXT)
    if kind == "goroutine":
        return web.Response(text=_stacks(), content_type=TEXT)
    raise not_found(f'no profile "{kind}" here: there are cmdline, profile and goroutine')


async def _sampled(seconds: int) -> str:
    """Folded stacks of all threads but the sampler, most often seen first."""
    seen: Counter[str] = Counter()
    done = threading.Event()
    sampler = threading.Thread(target=_sample, args=(seen, done), daemon=True, name="profile")
    sampler.start()
    try:
        await asyncio.sleep(seconds)
    finally:
        done.set()
        await asyncio.to_thread(sampler.join)
    return "".join(f"{stack} {count}\n" for stack, count in seen.most_common())


def _sample(seen: "Counter[str]", done: threading.Event) -> None:
    own = threading.get_ident()
    while not done.wait(1 / PROFILE_HZ):
        names = {thread.ident: thread.name for thread in threading.enumerate()}
        for ident, frame in sys._current_frames().items():
            if ident != own:
                seen[";".join([names.get(ident, "thread"), *_functions(frame)])] += 1


def _functions(frame: FrameType | None) -> list[str]:
    """Functions of a stack, the outermost first."""
    found: list[str] = []
    while frame is not None and len(found) < STACK_MAX:
        code = frame.f_code
        found.append(f"{Path(code.co_filename).stem}.{code.co_qualname}")
        frame = frame.f_back
    return found[::-1]


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = [
        f"thread {names.get(ident, ident)}\n" + "".join(traceback.format_stack(frame))
        for ident, frame in sys._current_frames().items()
    ]
    tasks = sorted(f"task {task.get_name()} {task.get_coro()!r}" for task in asyncio.all_tasks())
    return "\n".join([*parts, *tasks]) + "\n"


ROUTES = (
    Route("GET", "agent/schedulers", schedulers),
    Route("GET PUT POST", "agent/schedulers/config", schedulers_config),
    Route("GET", "agent/monitor/export", export_log),
    Route("GET", "agent/pprof/{kind}", profile),
)
