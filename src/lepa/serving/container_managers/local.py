"""A serving cluster as plain processes of this machine: no orchestrator, no daemon.

    {data}/{cluster}/cluster.json         the processes: pid, start time, what each is
    {data}/{cluster}/management/          the registry
    {data}/{cluster}/models/{name}/{version}/   published models
    {data}/{cluster}/logs/                one file a process
    {data}/{cluster}/warm.sock            the warm server, which forks model processes

Nobody watches the processes: one that dies stays dead until `set_num_replicas` is asked again, or `start_clipper` where
it was a frontend. A process is known by pid and start time, so that a pid that was given away is never signalled.
"""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Container, Mapping, Sequence
from pathlib import Path

import msgspec
import psutil
from msgspec import Struct
from msgspec.structs import replace

from lepa.model.errors import LepaError, conflict, not_found
from lepa.serving.addresses import Address
from lepa.serving.container_managers.protocol import DEFAULT_CLUSTER, StartOptions
from lepa.serving.model_directory import describe
from lepa.serving.ready_file import read_ready_file
from lepa.serving.warm_server import fork_model

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
POLL_S = 0.02
LOG_TAIL_BYTES = 2000
MANAGEMENT = "management"
QUERY = "query"
MODEL = "model"
WARM = "warm"
AUTOSCALER = "autoscaler"
SOCKET_PATH_MAX = 107
"""Bytes of the path of a Unix socket, as the kernel takes them."""


class LocalProcess(Struct, frozen=True):
    """A process of the cluster. started: seconds since the epoch, as the kernel tells. model: `name:version`."""

    part: str
    pid: int
    started: float
    log: str
    model: str = ""


class LocalCluster(Struct, frozen=True):
    """What `cluster.json` holds."""

    processes: tuple[LocalProcess, ...] = ()
    admin_port: int = 0
    query_port: int = 0
    rpc_port: int = 0
    grpc_port: int | None = None
    cache_size: int = 0
    next_log: int = 0


class LocalContainerManager:
    """See the module. A port of 0 is any free one; `host` is where everything listens. grpc_port: of the Open Inference
    Protocol over gRPC, None for none."""

    def __init__(
        self,
        cluster_name: str = DEFAULT_CLUSTER,
        data_dir: Path | str | None = None,
        host: str = "127.0.0.1",
        query_port: int = 1337,
        management_port: int = 1338,
        rpc_port: int = 7000,
        grpc_port: int | None = None,
    ) -> None:
        self.cluster_name = cluster_name
        self._host = host
        self._ports = (query_port, management_port, rpc_port, grpc_port)
        base = Path(data_dir) if data_dir else Path(tempfile.gettempdir()) / f"lepa-serving-{os.getuid()}"
        self._directory = base.absolute() / cluster_name
        self._children: dict[int, subprocess.Popen[bytes]] = {}

    # The cluster

    def start_clipper(self, options: StartOptions) -> None:
        alive = {process.part for process in self._read().processes if self._alive(process)}
        if alive >= {MANAGEMENT, QUERY}:
            raise conflict(f"Cluster {self.cluster_name} cannot be started because it already exists; connect to it")
        if options.num_frontend_replicas != 1:
            raise LepaError("unsupported", "the local container manager runs one query frontend")
        for name in ("models", "logs", "ready"):
            (self._directory / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        if not alive:
            query_port, admin_port, rpc_port, grpc_port = self._ports
            self._write(LocalCluster((), admin_port, query_port, rpc_port, grpc_port, options.cache_size))
        try:
            self._start_missing(alive)
        except BaseException:
            self.stop_all(graceful=False)
            raise

    def _start_missing(self, alive: Container[str]) -> None:
        """Start the frontends that are not alive, where they were: the models of a cluster that lost one find it."""
        cluster = self._read()
        if MANAGEMENT not in alive:
            self._start_management(cluster.admin_port)
        if QUERY not in alive:
            self._start_query()

    def _start_management(self, port: int) -> None:
        data = ("--data", str(self._directory / MANAGEMENT))
        self._change(admin_port=self._start_frontend(MANAGEMENT, "management", port, *data)["port"])

    def _start_query(self) -> None:
        """Start the query frontend on the ports of the file, and write down which ones those are."""
        cluster = self._read()
        extra = ["--rpc-port", str(cluster.rpc_port), "--cache-bytes", str(cluster.cache_size)]
        if cluster.grpc_port is not None:
            extra += ["--grpc-port", str(cluster.grpc_port)]
        management = ("--management", str(self.get_admin_addr()))
        ports = self._start_frontend(QUERY, "frontend", cluster.query_port, *extra, *management)
        self._change(query_port=ports["port"], rpc_port=ports["rpc_port"], grpc_port=ports.get("grpc_port"))

    def restart_management_frontend(self) -> None:
        """Kill the management frontend and start it again where it was."""
        self._stop([process for process in self._read().processes if process.part == MANAGEMENT], graceful=False)
        self._start_management(self._read().admin_port)

    def restart_query_frontend(self) -> None:
        """Kill the query frontend and start it again where it was."""
        self._stop([process for process in self._read().processes if process.part == QUERY], graceful=False)
        self._start_query()

    def _start_frontend(self, part: str, module: str, port: int, *extra: str) -> dict[str, int]:
        ready = self._directory / "ready" / f"{part}.json"
        ready.unlink(missing_ok=True)
        arguments = ["--host", self._host, "--port", str(port), "--ready-file", str(ready), *extra]
        process = self._start(part, [f"lepa.serving.{module}", *arguments], {})
        self._wait(process, lambda: read_ready_file(ready) is not None)
        return read_ready_file(ready) or {}

    def connect(self) -> None:
        cluster = self._read()
        for part in (MANAGEMENT, QUERY):
            if not any(process.part == part and self._alive(process) for process in cluster.processes):
                raise not_found(f"cluster {self.cluster_name} does not run here: no {part} frontend; start it first")

    def get_admin_addr(self) -> Address:
        return Address(self._host, self._read().admin_port)

    def get_query_addr(self) -> Address:
        return Address(self._host, self._read().query_port)

    def get_grpc_addr(self) -> Address | None:
        """Where the Open Inference Protocol is spoken over gRPC; None for nowhere."""
        port = self._read().grpc_port
        return None if port is None else Address(self._host, port)

    def get_query_path(self) -> str:
        return ""

    def get_query_addrs(self) -> Sequence[Address]:
        return [self.get_query_addr()]

    get_frontend_addrs = get_query_addrs

    def query_addr_lost(self, address: Address) -> None:
        """There is no other."""

    def get_metric_addr(self) -> Address:
        return self.get_query_addr()

    # Models

    def publish_model(self, name: str, version: str, directory: Path) -> str:
        describe(directory)
        target = self._directory / "models" / name / version
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(directory, target)
        return str(target)

    def deploy_model(self, name: str, version: str, input_type: str, image: str, num_replicas: int = 1) -> None:
        self.set_num_replicas(name, version, input_type, image, num_replicas)

    def get_num_replicas(self, name: str, version: str) -> int:
        return len(self.processes(f"{name}:{version}"))

    def set_num_replicas(self, name: str, version: str, input_type: str, image: str, num_replicas: int) -> None:
        key = f"{name}:{version}"
        running = self.processes(key)
        ended = [process for process in self._read().processes if process.model == key and process not in running]
        self._stop([*ended, *running[num_replicas:]], graceful=True)
        environment = {
            "CLIPPER_MODEL_NAME": name,
            "CLIPPER_MODEL_VERSION": version,
            "CLIPPER_MODEL_PATH": image,
            "CLIPPER_INPUT_TYPE": input_type,
            "CLIPPER_IP": self._host,
            "CLIPPER_PORT": str(self._read().rpc_port),
        }
        for _ in range(len(running), num_replicas):
            self._start_model(key, environment, describe(Path(image)).framework)

    def _start_model(self, key: str, environment: dict[str, str], framework: str) -> None:
        """Fork a model process from the warm server, which is started where it does not run."""
        path = self._directory / "warm.sock"
        if len(os.fsencode(path)) > SOCKET_PATH_MAX:
            self._start(MODEL, ["lepa.serving.model_container"], environment, model=key)
            return
        if not any(process.part == WARM and self._alive(process) for process in self._read().processes):
            path.unlink(missing_ok=True)
            server = self._start(WARM, ["lepa.serving.warm_server", "--socket", str(path)], {})
            self._wait(server, path.exists)
        log = self._new_log(MODEL)
        pid = fork_model(path, {**os.environ, **environment}, log, framework)
        self._remember(LocalProcess(MODEL, pid, _started(pid), str(log), key))

    def processes(self, key: str) -> list[LocalProcess]:
        """The running containers of a model version, `name:version`."""
        return [process for process in self._read().processes if process.model == key and self._alive(process)]

    def trouble(self, name: str, version: str) -> str:
        mine = [process for process in self._read().processes if process.model == f"{name}:{version}"]
        ended = [process for process in mine if not self._alive(process)]
        return f"a process of it ended; it said: {_last_words(ended[0])}" if ended else ""

    def stop_models(self, models: Mapping[str, Sequence[str]]) -> None:
        keys = {f"{name}:{version}" for name, versions in models.items() for version in versions}
        self._stop([process for process in self._read().processes if process.model in keys], graceful=True)

    def stop_all_model_containers(self) -> None:
        self._stop([process for process in self._read().processes if process.part == MODEL], graceful=True)

    def stop_all(self, graceful: bool = True) -> None:
        self._stop(list(self._read().processes), graceful)

    def get_logs(self, logging_dir: Path) -> list[Path]:
        logging_dir.mkdir(parents=True, exist_ok=True)
        logs = sorted((self._directory / "logs").glob("*.log"))
        return [Path(shutil.copy(log, logging_dir / log.name)) for log in logs]

    def ensure_autoscaler(self) -> None:
        if not any(process.part == AUTOSCALER and self._alive(process) for process in self._read().processes):
            options = ["--data", str(self._directory.parent), "--cluster", self.cluster_name]
            self._start(AUTOSCALER, ["lepa.serving.autoscaler", *options], {})

    # Processes

    def _start(self, part: str, module: list[str], environment: dict[str, str], model: str = "") -> LocalProcess:
        log = self._new_log(part)
        with log.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-m", *module],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._children[child.pid] = child
        process = LocalProcess(part, child.pid, _started(child.pid), str(log), model)
        self._remember(process)
        return process

    def _new_log(self, part: str) -> Path:
        number = self._update(lambda cluster: replace(cluster, next_log=cluster.next_log + 1)).next_log - 1
        log = self._directory / "logs" / f"{part}-{number}.log"
        log.touch()
        return log

    def _remember(self, process: LocalProcess) -> None:
        self._update(lambda cluster: replace(cluster, processes=(*cluster.processes, process)))

    def _wait(self, process: LocalProcess, ready: Callable[[], bool]) -> None:
        """Return when `ready`; raise with the end of the log when the process ended or it took too long."""
        give_up = time.monotonic() + START_TIMEOUT_S
        while not ready():
            ended = not self._alive(process)
            if ended or time.monotonic() > give_up:
                what = "ended" if ended else f"was not ready after {START_TIMEOUT_S:.0f} s"
                raise LepaError("internal", f"the {process.part} process {what}; it said: {_last_words(process)}")
            time.sleep(POLL_S)

    def _alive(self, process: LocalProcess) -> bool:
        if (child := self._children.get(process.pid)) is not None and child.poll() is not None:
            return False
        try:
            found = psutil.Process(process.pid)
            return found.status() != psutil.STATUS_ZOMBIE and bool(abs(found.create_time() - process.started) < 0.1)
        except psutil.Error:
            return False

    def _stop(self, processes: list[LocalProcess], graceful: bool) -> None:
        running = [process for process in processes if self._alive(process)]
        self._signal(running, signal.SIGTERM if graceful else signal.SIGKILL)
        give_up = time.monotonic() + STOP_TIMEOUT_S
        while (running := [p for p in running if self._alive(p)]) and time.monotonic() < give_up:
            time.sleep(POLL_S)
        self._signal(running, signal.SIGKILL)
        stopped = {process.pid for process in processes}
        self._update(lambda c: replace(c, processes=tuple(p for p in c.processes if p.pid not in stopped)))

    def _signal(self, processes: list[LocalProcess], number: int) -> None:
        for process in processes:
            if self._alive(process):
                os.kill(process.pid, number)

    # The file

    def _read(self) -> LocalCluster:
        try:
            return msgspec.json.decode((self._directory / "cluster.json").read_bytes(), type=LocalCluster)
        except FileNotFoundError:
            return LocalCluster()
        except msgspec.MsgspecError as error:
            raise LepaError(
                "invalid", f"{self._directory}/cluster.json does not describe a cluster: {error}"
            ) from error

    def _write(self, cluster: LocalCluster) -> None:
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft = self._directory / "cluster.draft"
        draft.write_bytes(msgspec.json.encode(cluster))
        draft.rename(self._directory / "cluster.json")

    def _change(self, **changes: object) -> None:
        self._update(lambda cluster: replace(cluster, **changes))

    def _update(self, change: Callable[[LocalCluster], LocalCluster]) -> LocalCluster:
        """Read, change and write the file while no other process does; returns what was written."""
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (self._directory / "cluster.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            cluster = change(self._read())
            self._write(cluster)
        return cluster


def _started(pid: int) -> float:
    """When a process began; 0 for one that has ended already."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return 0.0


def _last_words(process: LocalProcess) -> str:
    return Path(process.log).read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace").strip() or "nothing"
