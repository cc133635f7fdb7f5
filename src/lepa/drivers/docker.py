"""Containers of a Docker daemon: `docker`.

The daemon keeps containers alive without the agent; labels and names lead back to them. Output is copied from Docker
into the task's log files (see docker_logs).
"""

import asyncio
import contextlib
import json
import logging
import os
import ssl
from collections.abc import AsyncIterator, Sequence
from typing import Any

import msgspec

from lepa.drivers import options, usage
from lepa.drivers.docker_api import DockerApi, DockerError, split_frames, split_image
from lepa.drivers.docker_config import (
    DEFAULT_CAPABILITIES,
    TASK_ID_LABEL,
    LoggingSettings,
    Rules,
    VolumesSettings,
    config_problems,
    container_body,
    container_name,
    network_mode,
    published_ports,
)
from lepa.drivers.docker_logs import DockerLogs
from lepa.drivers.protocol import (
    Capabilities,
    DriverError,
    ExecSession,
    ExitResult,
    Started,
    TaskConfig,
    TaskHandle,
    TaskNetwork,
)
from lepa.drivers.signals import signal_number
from lepa.drivers.supervised import log_files
from lepa.kit.durations import parse_duration, parse_rfc3339
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.model.node import DriverInfo
from lepa.model.stats import MemoryStats, TaskResourceUsage

log = logging.getLogger(__name__)

RETRY_S = 1.0
KILL_WAIT_S = 10.0
"""How long a killed container may take to be gone before the daemon is asked again."""
LOG_DRAIN_S = 5.0
"""How long the end of a container's output may come after its end."""
NAME_TAKEN = 409


class AuthSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """config: path of a Docker config.json with credentials of registries."""

    config: str = ""


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Certificate files for a daemon behind TLS."""

    cert: str = ""
    key: str = ""
    ca: str = ""


class DockerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The agent's `plugin "docker"` block. Durations are text such as "5m"."""

    endpoint: str = "unix:///var/run/docker.sock"
    auth: AuthSettings = AuthSettings()
    tls: TlsSettings = TlsSettings()
    extra_labels: tuple[str, ...] = ()
    logging: LoggingSettings = LoggingSettings()
    volumes: VolumesSettings = VolumesSettings()
    allow_privileged: bool = False
    allow_caps: tuple[str, ...] = DEFAULT_CAPABILITIES
    allow_runtimes: tuple[str, ...] = ("runc", "nvidia")
    image_pull_timeout: str = "5m"
    container_exists_attempts: int = 5
    pids_limit: int = 0
    disable_log_collection: bool = False


class _Container:
    """A container of ours, and what goes on beside it."""

    def __init__(self, task: TaskConfig, number: str) -> None:
        self.task = task
        self.number = number
        self.ended: asyncio.Future[ExitResult] = asyncio.get_running_loop().create_future()
        self.logs: asyncio.Task[None] | None = None
        self.watch: asyncio.Task[None] | None = None
        self.cpu: usage.CpuTime | None = None
        self.stopped = False


class DockerDriver:
    """Driver "docker". Raises ValueError or OSError for an endpoint, duration or certificate that is none."""

    name = "docker"
    capabilities = Capabilities(isolation="image", network_modes=("host", "bridge"))

    def __init__(self, clock: Clock, settings: DockerSettings, state_dir: str) -> None:
        self._clock = clock
        self._settings = settings
        self._state_dir = os.path.join(os.path.abspath(state_dir), self.name)
        self._api = DockerApi(settings.endpoint, _tls(settings.tls))
        self._pull_timeout_s = parse_duration(settings.image_pull_timeout) / 1e9
        self._containers: dict[str, _Container] = {}
        self._pulls: dict[str, asyncio.Lock] = {}
        self._tasks = Tasks(self.name)
        self._rules = Rules(
            allow_privileged=settings.allow_privileged,
            allow_caps=settings.allow_caps,
            allow_runtimes=settings.allow_runtimes,
            extra_labels=settings.extra_labels,
            logging=settings.logging,
            volumes=settings.volumes,
            pids_limit=settings.pids_limit,
            core_mhz=usage.core_mhz(),
        )

    async def fingerprint(self) -> DriverInfo:
        """What the daemon says of itself; undetected when it cannot be asked."""
        try:
            version = await self._api.version()
            info = await self._api.info()
        except DockerError as error:
            return DriverInfo(health_description=str(error))
        attributes = {
            "driver.docker": "1",
            "driver.docker.version": str(version.get("Version", "")),
            "driver.docker.os_type": str(info.get("OSType", "")),
            "driver.docker.runtimes": ",".join(sorted(info.get("Runtimes") or {})),
        }
        for name, wanted in (
            ("volumes.enabled", self._settings.volumes.enabled),
            ("privileged.enabled", self._settings.allow_privileged),
        ):
            if wanted:
                attributes[f"driver.docker.{name}"] = "true"
        if self._settings.pids_limit:
            attributes["driver.docker.pids.limit"] = str(self._settings.pids_limit)
        return DriverInfo(attributes=attributes, detected=True, healthy=True, health_description="Healthy")

    def problems(self, config: dict[str, Any]) -> Sequence[str]:
        """What is wrong with a `config` block."""
        return config_problems(config, self._rules)

    async def start(self, task: TaskConfig) -> Started:
        """Fetch the image where it is missing, make the container, start it."""
        if found := self.problems(task.config):
            raise DriverError("; ".join(found))
        if task.network_namespace:
            raise DriverError("docker cannot join the group's network namespace; use network mode host or Docker's own")
        body = container_body(task, self._rules, lambda path: _resolve(task, path))
        number = ""
        try:
            await self._api.version()
            await self._provide_image(task)
            number = await self._create(task, body)
            await self._api.start(number)
            state = await self._api.inspect(number)
        except DockerError as error:
            if number:
                with contextlib.suppress(DockerError):
                    await self._api.remove(number)
            recoverable = error.status in (0, 409) or error.status >= 500
            raise DriverError(f"{options.text(task.config, 'image')}: {error}", recoverable=recoverable) from error
        container = self._take(task, number)
        self._follow(container)
        handle = TaskHandle(
            driver=self.name,
            task_id=task.id,
            started_at=_moment(state["State"]["StartedAt"]),
            state={"container_id": number},
        )
        return Started(handle=handle, network=_network(task, state))

    async def recover(self, task: TaskConfig, handle: TaskHandle) -> None:
        """Find the container again and follow its output from where it was left; wait for a daemon that is away."""
        number = str(handle.state.get("container_id", ""))
        try:
            await self._api.version()
            await self._api.inspect(number)
        except DockerError as error:
            if error.status == 404:
                raise not_found(f"container {number[:12]} is gone") from error
            log.warning("container not seen yet container=%s reason=%s", number[:12], error)
        self._follow(self._take(task, number))

    async def wait(self, task_id: str) -> ExitResult:
        """Return when the container has ended and its output has been copied."""
        return await asyncio.shield(self._known(task_id).ended)

    async def stop(self, task_id: str, signal: str, timeout_s: float) -> None:
        """Signal the container, kill it after `timeout_s`; return when it has ended."""
        container = self._known(task_id)
        number = signal_number(signal or container.task.kill_signal)
        await self._kill(container, str(number))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(container.ended)
        except TimeoutError:
            while not container.ended.done():
                await self._kill(container, "9")
                await asyncio.wait({container.ended}, timeout=KILL_WAIT_S)

    async def signal(self, task_id: str, signal: str) -> None:
        """Send a signal to the container's first process."""
        await self._kill(self._known(task_id), str(signal_number(signal)))

    async def destroy(self, task_id: str) -> None:
        """Remove the container with all that is its own."""
        container = self._known(task_id)
        try:
            await self._api.remove(container.number)
        except DockerError as error:
            raise LepaError("internal", str(error)) from error
        for work in (container.watch, container.logs):
            if work is not None:
                work.cancel()
        if not container.ended.done():
            container.ended.set_result(_killed(self._clock.now_ns()))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._position_path(task_id))
        del self._containers[task_id]

    async def stats(self, task_id: str) -> TaskResourceUsage:
        """Present use of CPU and memory, as Docker measures it."""
        container = self._known(task_id)
        try:
            raw = await self._api.stats(container.number)
        except DockerError as error:
            raise LepaError("internal", str(error)) from error
        cpu, memory = _cpu(raw, self._clock.now_ns()), _memory(raw)
        before, container.cpu = container.cpu, cpu
        return usage.task_usage(cpu, before, memory, self._rules.core_mhz)

    async def exec(self, task_id: str, command: Sequence[str], *, tty: bool) -> ExecSession:
        """Run a command in the container, with its user, directory and environment."""
        container = self._known(task_id)
        if not command:
            raise invalid("a command to run must be given")
        body = {
            "Cmd": list(command),
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "Tty": tty,
            "Env": ["TERM=xterm"] if tty else [],
            "User": container.task.user,
            "WorkingDir": options.text(container.task.config, "work_dir"),
        }
        try:
            number = await self._api.create_exec(container.number, body)
            reader, writer = await self._api.start_exec(number, tty=tty)
        except DockerError as error:
            raise LepaError("conflict" if error.status == 409 else "internal", str(error)) from error
        return DockerSession(self._api, self._clock, number, reader, writer, tty=tty)

    async def close(self) -> None:
        """Let go of the daemon; containers go on."""
        await self._tasks.close()
        await self._api.close()

    # ---- images

    async def _provide_image(self, task: TaskConfig) -> None:
        """Have the image on this host: by `load`, else by a pull when it is missing or a pull is asked for."""
        image = options.text(task.config, "image")
        archive = options.text(task.config, "load")
        lock = self._pulls.setdefault(image, asyncio.Lock())
        async with lock:
            if archive:
                await self._api.load(_resolve(task, archive))
            elif options.flag(task.config, "force_pull") or not await self._api.has_image(image):
                await self._pull(task, image)
        if not lock.locked():
            self._pulls.pop(image, None)

    async def _pull(self, task: TaskConfig, image: str) -> None:
        limit = options.text(task.config, "image_pull_timeout")
        timeout_s = parse_duration(limit) / 1e9 if limit else self._pull_timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._api.pull(image, self._credentials(task, image))
        except TimeoutError as error:
            raise DriverError(f"image {image} was not pulled within {timeout_s:g} s", recoverable=True) from error
        except DockerError as error:
            raise DriverError(f"image {image} was not pulled: {error}", recoverable=True) from error

    def _credentials(self, task: TaskConfig, image: str) -> dict[str, str] | None:
        """What the job says, else what the operator's config.json holds for the image's registry."""
        auth = options.block(task.config, "auth")
        if auth:
            return {
                "username": options.text(auth, "username"),
                "password": options.text(auth, "password"),
                "email": options.text(auth, "email"),
                "serveraddress": options.text(auth, "server_address"),
            }
        if not self._settings.auth.config:
            return None
        try:
            with open(self._settings.auth.config) as file:
                known = json.load(file).get("auths", {})
        except (OSError, ValueError) as error:
            if options.flag(task.config, "auth_soft_fail"):
                return None
            raise DriverError(f"credentials in {self._settings.auth.config} cannot be read: {error}") from error
        entry = known.get(_registry(image)) or known.get(f"https://{_registry(image)}")
        return {"auth": entry["auth"], "serveraddress": _registry(image)} if entry and "auth" in entry else None

    # ---- containers

    async def _create(self, task: TaskConfig, body: dict[str, Any]) -> str:
        """Make the container; one of an earlier start of the same task makes room for it."""
        name = container_name(task)
        attempts = options.number(task.config, "container_exists_attempts", self._settings.container_exists_attempts)
        for _ in range(max(1, attempts)):
            try:
                return await self._api.create(name, body)
            except DockerError as error:
                if error.status != NAME_TAKEN:
                    raise
            await self._make_room(name, task.id)
        raise DriverError(f"a container named {name} exists already and could not be replaced", recoverable=True)

    async def _make_room(self, name: str, task_id: str) -> None:
        with contextlib.suppress(DockerError):
            old = await self._api.inspect(name)
            if (old["Config"].get("Labels") or {}).get(TASK_ID_LABEL) in self._containers:
                raise DriverError(f"a container named {name} belongs to a task that runs")
            log.info("leftover container removed name=%s task_id=%s", name, task_id)
            await self._api.remove(old["Id"])

    def _take(self, task: TaskConfig, number: str) -> _Container:
        container = self._containers[task.id] = _Container(task, number)
        return container

    def _follow(self, container: _Container) -> None:
        """Copy its output and wait for its end."""
        task = container.task
        files = {
            stream: where
            for stream, path in (("stdout", task.stdout_path), ("stderr", task.stderr_path))
            if (where := log_files(path, task.logs)) is not None
        }
        if files and not self._settings.disable_log_collection:
            logs = DockerLogs(self._api, self._clock, container.number, files, self._position_path(task.id))
            tty = options.flag(task.config, "tty")
            container.logs = self._tasks.start("logs", logs.run(lambda: tty, lambda: container.stopped))
        container.watch = self._tasks.start("wait", self._watch(container))

    async def _watch(self, container: _Container) -> None:
        """Wait for the end, however often the daemon goes away meanwhile."""
        while True:
            try:
                await self._api.wait(container.number)
                state = (await self._api.inspect(container.number))["State"]
                if not state.get("Running"):
                    break
            except DockerError as error:
                if error.status == 404:
                    container.stopped = True
                    self._end(container, ExitResult(exit_code=-1, error="the container was removed by somebody else"))
                    return
                await self._clock.sleep(RETRY_S)
        container.stopped = True
        if container.logs is not None:
            await asyncio.wait({container.logs}, timeout=LOG_DRAIN_S)
        self._end(container, _exit(state))

    def _end(self, container: _Container, result: ExitResult) -> None:
        if not container.ended.done():
            container.ended.set_result(result)

    async def _kill(self, container: _Container, signal: str) -> None:
        if container.ended.done():
            return
        try:
            await self._api.kill(container.number, signal)
        except DockerError as error:
            if error.status != 404:
                raise LepaError("internal", str(error)) from error

    def _position_path(self, task_id: str) -> str:
        return os.path.join(self._state_dir, "logs", task_id)

    def _known(self, task_id: str) -> _Container:
        container = self._containers.get(task_id)
        if container is None:
            raise not_found(f"driver {self.name} has no task {task_id!r}")
        return container


class DockerSession:
    """A command in a container: the connection that started it carries its streams."""

    def __init__(
        self,
        api: DockerApi,
        clock: Clock,
        number: str,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        tty: bool,
    ) -> None:
        self._api = api
        self._clock = clock
        self._number = number
        self._reader = reader
        self._writer = writer
        self._tty = tty
        self._ended = False

    async def write(self, data: bytes) -> None:
        """Send to its standard input; b"" closes it."""
        with contextlib.suppress(OSError):
            if data:
                self._writer.write(data)
                await self._writer.drain()
            elif self._tty:
                self._writer.write(b"\x04")
            elif self._writer.can_write_eof():
                self._writer.write_eof()

    async def resize(self, rows: int, columns: int) -> None:
        """Tell its terminal the new size."""
        if self._tty:
            with contextlib.suppress(DockerError):
                await self._api.resize_exec(self._number, rows, columns)

    async def output(self) -> AsyncIterator[tuple[str, bytes]]:
        """Pieces of output until the command ends."""
        with contextlib.suppress(OSError):
            if self._tty:
                while piece := await self._reader.read(64 * 1024):
                    yield "stdout", piece
            else:
                async for each in split_frames(self._reader):
                    yield each
        self._ended = True

    async def wait(self) -> int:
        """The command's exit code."""
        if not self._ended:
            async for _ in self.output():
                pass
        while True:
            try:
                state = await self._api.inspect_exec(self._number)
            except DockerError as error:
                raise LepaError("internal", str(error)) from error
            if not state["Running"]:
                return int(state["ExitCode"] or 0)
            await self._clock.sleep(0.02)

    async def close(self) -> None:
        """Hang up, and end the command if it still runs (Docker itself has no call for that)."""
        self._writer.close()
        if not self._ended:
            with contextlib.suppress(DockerError, OSError):
                state = await self._api.inspect_exec(self._number)
                if state["Running"] and state.get("Pid"):
                    os.kill(int(state["Pid"]), 15)


def _tls(settings: TlsSettings) -> ssl.SSLContext | None:
    if not settings.ca and not settings.cert:
        return None
    context = ssl.create_default_context(cafile=settings.ca or None)
    if settings.cert:
        context.load_cert_chain(settings.cert, settings.key or None)
    return context


def _resolve(task: TaskConfig, path: str) -> str:
    """A path a job names: absolute as it is; a relative one below the task's directory, links followed and checked."""
    if os.path.isabs(path):
        return path
    root = os.path.realpath(task.task_dir)
    found = os.path.realpath(os.path.join(root, path))
    if found != root and not found.startswith(root + "/"):
        raise DriverError(f"path {path!r} leads out of the task's directory")
    return found


def _registry(image: str) -> str:
    """The registry of an image: its first part when that looks like a host, else Docker's own."""
    host, slash, _ = split_image(image)[0].partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return host if is_host else "index.docker.io/v1/"


def _network(task: TaskConfig, state: dict[str, Any]) -> TaskNetwork | None:
    """The container's own address; a network of one's own is advertised, Docker's bridge is not."""
    mode = network_mode(task)
    networks = state["NetworkSettings"].get("Networks") or {}
    address = next((each["IPAddress"] for each in networks.values() if each.get("IPAddress")), "")
    if not address or mode == "host":
        return None
    own = mode not in ("bridge", "default", "nat")
    return TaskNetwork(ip=address, port_map=published_ports(task), auto_advertise=own)


def _exit(state: dict[str, Any]) -> ExitResult:
    code = int(state.get("ExitCode", 0))
    signal = code - 128 if 128 < code <= 128 + 64 else 0
    return ExitResult(
        exit_code=code,
        signal=signal,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        finished_at=_moment(state.get("FinishedAt", "")),
    )


def _killed(now_ns: int) -> ExitResult:
    return ExitResult(exit_code=137, signal=9, finished_at=now_ns)


def _moment(text: str) -> int:
    return parse_rfc3339(text) if text and not text.startswith("0001") else 0


def _cpu(raw: dict[str, Any], now_ns: int) -> usage.CpuTime:
    cpu = raw.get("cpu_stats", {})
    used = cpu.get("cpu_usage", {})
    kernel = int(used.get("usage_in_kernelmode", 0))
    throttling = cpu.get("throttling_data", {})
    return usage.CpuTime(
        max(0, int(used.get("total_usage", 0)) - kernel),
        kernel,
        now_ns,
        int(throttling.get("throttled_periods", 0)),
        int(throttling.get("throttled_time", 0)),
    )


def _memory(raw: dict[str, Any]) -> MemoryStats:
    memory = raw.get("memory_stats", {})
    stat = memory.get("stats", {})
    return MemoryStats(
        rss=int(stat.get("anon", stat.get("total_rss", 0))),
        cache=int(stat.get("file", stat.get("total_cache", 0))),
        mapped_file=int(stat.get("file_mapped", stat.get("total_mapped_file", 0))),
        usage=int(memory.get("usage", 0)),
        max_usage=int(memory.get("max_usage", 0)),
        measured=("RSS", "Cache", "Usage"),
    )
