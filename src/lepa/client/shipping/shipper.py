"""Follows the output of this node's tasks and sends it to the receivers, one loop for each task and receiver."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import QuietHook, Setup
from lepa.client.shipping.formats import Line, Origin
from lepa.client.shipping.receivers import Doors, Receiver, Unsent, receiver
from lepa.client.shipping.settings import ShipSettings, of_job, wants
from lepa.client.shipping.tail import Place, Tail
from lepa.client.task_env import Place as TaskPlace
from lepa.client.task_env import references
from lepa.drivers.protocol import TaskNetwork
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError
from lepa.model.task import LogShip

log = logging.getLogger(__name__)

BATCH_LINES_MAX = 1000
LOOK_MIN_S, LOOK_MAX_S = 0.1, 1.0
"""How soon files are looked at again when there was nothing new."""
RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
CLOSE_S = 2.0
DRAIN_S = 30.0
"""How long the end of an ended task's output is still tried to be sent."""


@dataclass
class _Followed:
    """A task and receiver: where each stream was left, and whether the task has ended."""

    directory: AllocDir
    task: str
    settings: ShipSettings
    origin: Origin
    places: dict[str, Place] = field(default_factory=dict)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def position_path(self) -> Path:
        kind = "job-shipped" if self.settings.of_job else "shipped"
        return self.directory.task(self.task).private / f"{kind}-{self.settings.name}"


class Shipping:
    """All receivers of this node's tasks. doors: to those of the node's configuration; job_doors: to those of jobs."""

    def __init__(
        self,
        receivers: Sequence[ShipSettings],
        doors: Doors,
        job_doors: Doors,
        clock: Clock,
        random: Random,
        metrics: Metrics,
    ) -> None:
        self._receivers = receivers
        self._doors = doors
        self._job_doors = job_doors
        self._clock = clock
        self._random = random
        self._metrics = metrics
        self._tasks = Tasks("client.shipping")
        self._loops: set[asyncio.Task[None]] = set()

    def hooks(self, directory: AllocDir, place: TaskPlace) -> list["ShipHook"]:
        """One hook for each receiver that wants this task's output, or that the task names."""
        task = place.task
        if task.log_config.disabled or task.log_config.enabled is False:
            return []
        meta = {**place.job.meta, **place.group.meta, **task.meta}
        known = [each for each in self._receivers if wants(each, place.job.id, place.alloc.namespace, meta)]
        return [
            *(ShipHook(self, directory, partial(_of_node, each)) for each in known),
            *(ShipHook(self, directory, partial(_of_setup, ship)) for ship in task.log_config.receivers),
        ]

    def follow(self, followed: _Followed) -> None:
        """Begin, or go on where an earlier agent was."""
        loop = self._tasks.start(f"{followed.settings.name}.{followed.task}", self._run(followed))
        self._loops.add(loop)
        loop.add_done_callback(self._loops.discard)

    async def close(self) -> None:
        """Send the end of ended tasks, if that is quick, and stop; the next agent goes on with the others."""
        if self._loops:
            await asyncio.wait(self._loops, timeout=CLOSE_S)
        await self._tasks.close()

    async def _run(self, followed: _Followed) -> None:
        streams = {
            stream: Tail(str(followed.directory.logs), f"{followed.task}.{stream}")
            for stream in followed.settings.streams
        }
        followed.places = read_places(followed.position_path)
        doors = self._job_doors if followed.settings.of_job else self._doors
        goes_to = receiver(followed.settings, doors, self._random)
        wait_s = LOOK_MIN_S
        try:
            while True:
                ended = followed.ended.is_set()
                if await self._round(followed, streams, goes_to, rest=ended):
                    wait_s = LOOK_MIN_S
                elif ended:
                    return
                else:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(wait_s):
                            await followed.ended.wait()
                    wait_s = min(wait_s * 2, LOOK_MAX_S)
        finally:
            await goes_to.close()

    async def _round(self, followed: _Followed, streams: Mapping[str, Tail], goes_to: Receiver, *, rest: bool) -> bool:
        """Send what is new on each stream, a batch at most; False when there was nothing."""
        sent = False
        for stream, tail in streams.items():
            place = followed.places.get(stream, Place())
            piece = await asyncio.to_thread(tail.read, place, rest=rest)
            if piece.files_lost:
                self._metrics.count("lepa.logs.files_dropped", piece.files_lost, receiver=followed.settings.label)
                log.warning(
                    "output rotated away before it was sent receiver=%s alloc_id=%s task=%s files=%s",
                    followed.settings.name,
                    followed.origin.alloc_id,
                    followed.task,
                    piece.files_lost,
                )
            if not piece.lines:
                followed.places[stream] = piece.place
                continue
            now_ns = self._clock.now_ns()
            for start in range(0, len(piece.lines), BATCH_LINES_MAX):
                batch = [Line(stream, text, now_ns) for text in piece.lines[start : start + BATCH_LINES_MAX]]
                if not await self._deliver(followed, goes_to, batch):
                    return False
            followed.places[stream] = piece.place
            await asyncio.to_thread(write_places, followed.position_path, followed.places)
            sent = True
        return sent

    async def _deliver(self, followed: _Followed, goes_to: Receiver, batch: Sequence[Line]) -> bool:
        """Send a batch, again and again while the receiver is away; False when it was given up with an ended task."""
        wait_s, until = RETRY_MIN_S, 0.0
        name = followed.settings.label
        while True:
            try:
                await goes_to.send(batch, followed.origin)
            except Unsent as error:
                if not error.again:
                    self._metrics.count("lepa.logs.lines_dropped", len(batch), receiver=name)
                    log.warning("output refused receiver=%s lines=%s reason=%s", name, len(batch), error)
                    return True
                if wait_s == RETRY_MIN_S:
                    log.warning("output not sent receiver=%s reason=%s", name, error)
            else:
                self._metrics.count("lepa.logs.lines_shipped", len(batch), receiver=name)
                return True
            if followed.ended.is_set():
                until = until or self._clock.now() + DRAIN_S
                if self._clock.now() >= until:
                    self._metrics.count("lepa.logs.lines_dropped", len(batch), receiver=name)
                    return False
            await self._clock.sleep(wait_s)
            wait_s = min(wait_s * 2, RETRY_MAX_S)


class ShipHook(QuietHook):
    """Follows one task for one receiver from its first start to the end of its last one."""

    name = "ship_logs"

    def __init__(self, shipping: Shipping, directory: AllocDir, settings: Callable[[Setup], ShipSettings]) -> None:
        """settings: the receiver, as known when the task runs. It may raise LepaError."""
        self._shipping = shipping
        self._directory = directory
        self._settings = settings
        self._followed: _Followed | None = None

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """The task runs: follow it, through restarts too."""
        if self._followed is not None:
            return
        try:
            settings = self._settings(setup)
        except LepaError as error:
            setup.task.note("Log Shipping Failed", error.message)
            return
        origin = _origin(setup.place, settings.labels)
        self._followed = _Followed(self._directory, setup.place.task.name, settings, origin)
        self._shipping.follow(self._followed)

    async def close(self) -> None:
        """No more output will come: send the rest, beside whatever happens next."""
        if self._followed is not None:
            self._followed.ended.set()
            self._followed = None


def _of_node(settings: ShipSettings, _: Setup) -> ShipSettings:
    return settings


def _of_setup(ship: LogShip, setup: Setup) -> ShipSettings:
    return of_job(ship, references(setup.place, setup.env))


def _origin(place: TaskPlace, labels: Mapping[str, str]) -> Origin:
    return Origin(
        host=place.node.name,
        namespace=place.alloc.namespace,
        job=place.job.id,
        group=place.group.name,
        task=place.task.name,
        alloc_id=place.alloc.id,
        labels=labels,
    )


def read_places(path: Path) -> dict[str, Place]:
    """What an earlier agent sent last, by stream."""
    found: dict[str, Place] = {}
    with contextlib.suppress(OSError, ValueError):
        for line in path.read_text().splitlines():
            stream, number, offset = line.split()
            found[stream] = Place(int(number), int(offset))
    return found


def write_places(path: Path, places: Mapping[str, Place]) -> None:
    """Remember it; an allocation whose directory is gone needs it no more."""
    text = "".join(f"{stream} {place.number} {place.offset}\n" for stream, place in places.items())
    with contextlib.suppress(OSError):
        part = path.with_name(path.name + ".part")
        part.write_text(text)
        os.replace(part, path)
