"""A serving cluster as containers of one Docker daemon, as Clipper's own DockerContainerManager made them.

The cluster is what carries its labels: nothing else is remembered, so another process connects by looking. Frontends
and the replicas of published models run lepa from one image; a model may also be any image that speaks the RPC.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from lepa.model.errors import LepaError, conflict, invalid, not_found
from lepa.serving import admin_client, model_archive
from lepa.serving.addresses import Address
from lepa.serving.container_managers import docker_files as files
from lepa.serving.container_managers.docker_api import DEFAULT_ENDPOINT, DockerApi, Json
from lepa.serving.container_managers.docker_files import ContainerResources, DockerPlan
from lepa.serving.container_managers.protocol import DEFAULT_CLUSTER, StartOptions
from lepa.serving.model_archive import SCHEME, ArchiveImage
from lepa.serving.model_directory import describe

UPLOAD_TIMEOUT_S = 300.0
STOP_GRACE_S = 10
FRONTENDS_MAX = 100
LAST_WORDS_BYTES = 2000
PORT_TIMEOUT_S = 10.0
POLL_S = 0.05
_OPEN = ContainerResources()


class DockerContainerManager:
    """See the module.

    image: with lepa and its dependencies installed, and those of the models. Ports are the host's: 0 is any free one,
    further query frontends have the ones after `query_port`. Who connects to a cluster takes its image, volumes and
    resources as they were when it was started. inside: this process runs in the cluster's network itself.
    """

    def __init__(
        self,
        cluster_name: str = DEFAULT_CLUSTER,
        image: str = "lepa",
        *,
        endpoint: str = DEFAULT_ENDPOINT,
        host: str = "127.0.0.1",
        query_port: int = 1337,
        management_port: int = 1338,
        python: str = "python3",
        volumes: Sequence[str] = (),
        frontend: ContainerResources = _OPEN,
        model: ContainerResources = _OPEN,
        models: Mapping[str, ContainerResources] | None = None,
        inside: bool = False,
    ) -> None:
        self.cluster_name = cluster_name
        self.api = DockerApi(endpoint)
        self.plan = DockerPlan(cluster_name, image, python, host, tuple(volumes), frontend, model, models or {})
        self._ports = (query_port, management_port)
        self._inside = inside

    @classmethod
    def joined(cls, cluster_name: str, endpoint: str) -> Self:
        """The manager of a cluster that runs, for a process inside its network."""
        made = cls(cluster_name, endpoint=endpoint, inside=True)
        made.connect()
        return made

    # The cluster

    def start_clipper(self, options: StartOptions) -> None:
        if not 1 <= options.num_frontend_replicas <= FRONTENDS_MAX:
            raise invalid(f"a cluster has 1 to {FRONTENDS_MAX} query frontends, not {options.num_frontend_replicas}")
        if self._parts(files.QUERY) and self._parts(files.MANAGEMENT):
            raise conflict(f"Cluster {self.cluster_name} cannot be started because it already exists; connect to it")
        plan, (query_port, management_port) = self.plan, self._ports
        self._remove(self._parts(files.QUERY, running=False) + self._parts(files.MANAGEMENT, running=False))
        try:
            self._ensure_network()
            self.api.run(plan.name(files.MANAGEMENT), files.management_container(plan, management_port))
            for number in range(options.num_frontend_replicas):
                port = query_port + number if query_port else 0
                body = files.query_container(plan, options, number, port)
                self.api.run(plan.name(files.QUERY, number), body)
        except LepaError:
            self.stop_all(graceful=False)
            raise

    def _ensure_network(self) -> None:
        try:
            self.api.call("GET", f"/networks/{self.plan.network}")
        except LepaError as error:
            if error.code != "not_found":
                raise
            body = {"Name": self.plan.network, "CheckDuplicate": True, "Labels": self.plan.labels}
            self.api.call("POST", "/networks/create", body)

    def connect(self) -> None:
        for part in (files.MANAGEMENT, files.QUERY):
            if not self._parts(part):
                raise not_found(f"cluster {self.cluster_name} does not run here: no {part} frontend; start it first")
        self.plan = _plan(self._parts(files.MANAGEMENT)[0])

    def _parts(self, part: str, running: bool = True, **labels: str) -> list[Json]:
        """The cluster's containers of a part, in the order of their numbers."""
        found = self.api.containers({**self.plan.labels, files.PART_LABEL: part, **labels})
        alive = [each for each in found if not running or each["State"] in ("created", "running", "restarting")]
        return sorted(alive, key=lambda each: int(each["Labels"].get(files.NUMBER_LABEL, "0")))

    def get_admin_addr(self) -> Address:
        return self._address(files.MANAGEMENT, files.MANAGEMENT_PORT)[0]

    def get_query_addr(self) -> Address:
        return self.get_frontend_addrs()[0]

    def get_query_path(self) -> str:
        return ""

    def get_query_addrs(self) -> Sequence[Address]:
        return self._address(files.QUERY, files.QUERY_PORT)

    get_frontend_addrs = get_query_addrs
    get_metric_addr = get_query_addr

    def query_addr_lost(self, address: Address) -> None:
        """The daemon starts it again, and it is looked for each time."""

    def _address(self, part: str, port: int) -> list[Address]:
        """Where the containers of a part answer. A container that was just started has its port a moment later."""
        give_up = time.monotonic() + PORT_TIMEOUT_S
        while True:
            found = self._parts(part)
            if self._inside:
                addresses = [Address(each["Names"][0].lstrip("/"), port) for each in found]
            else:
                addresses = [Address(self.plan.host, outer) for each in found for outer in _published(each, port)]
            if addresses:
                return addresses
            if not found or time.monotonic() > give_up:
                raise not_found(f"cluster {self.cluster_name} has no {part} frontend that runs")
            time.sleep(POLL_S)

    # Models

    def publish_model(self, name: str, version: str, directory: Path) -> str:
        describe(directory)
        archive = model_archive.pack(directory)
        image = ArchiveImage(name, version, model_archive.digest(archive))
        admin_client.send(self.get_admin_addr(), "PUT", image.path, archive, UPLOAD_TIMEOUT_S)
        return str(image)

    def deploy_model(self, name: str, version: str, input_type: str, image: str, num_replicas: int = 1) -> None:
        self.set_num_replicas(name, version, input_type, image, num_replicas)

    def _replicas(self, name: str, version: str, running: bool = True) -> list[Json]:
        return self._parts(files.MODEL, running, **{files.MODEL_LABEL: f"{name}_{version}"})

    def get_num_replicas(self, name: str, version: str) -> int:
        return len(self._replicas(name, version))

    def set_num_replicas(self, name: str, version: str, input_type: str, image: str, num_replicas: int) -> None:
        running = self._replicas(name, version)
        alive = {each["Id"] for each in running}
        self._remove([each for each in self._replicas(name, version, running=False) if each["Id"] not in alive])
        for container in running[num_replicas:]:
            self.api.stop(container["Id"], STOP_GRACE_S)
        taken = {int(each["Labels"][files.NUMBER_LABEL]) for each in running}
        free = (number for number in range(num_replicas + len(taken)) if number not in taken)
        make = files.archive_model if image.startswith(SCHEME) else files.image_model
        frontends = [each["Names"][0].lstrip("/") for each in self._parts(files.QUERY)]
        for _ in range(len(running), num_replicas):
            number = next(free)
            body = make(self.plan, name, version, input_type, image, number, frontends)
            self.api.run(self.plan.name(f"{files.MODEL}-{name}-{version}", number), body)

    def ensure_autoscaler(self) -> None:
        """In a container that gets the daemon's socket, which only a daemon of this machine has."""
        scheme, _, socket = self.api.endpoint.partition("://")
        if scheme != "unix":
            raise LepaError("unsupported", f"scaling by load needs the daemon's own socket, not {self.api.endpoint}")
        if not self._parts(files.AUTOSCALER):
            self._remove(self._parts(files.AUTOSCALER, running=False))
            body = files.autoscaler_container(self.plan, socket)
            self.api.run(self.plan.name(files.AUTOSCALER), body)

    def trouble(self, name: str, version: str) -> str:
        """Said of a container that has ended, or is started over and over."""
        for container in self._replicas(name, version, running=False):
            state = self.api.inspect(container["Id"])
            if state["State"]["Status"] == "exited" or state["RestartCount"]:
                words = self.api.log(container["Id"])[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
                return f"container {container['Names'][0].lstrip('/')} ended; it said: {words or 'nothing'}"
        return ""

    def stop_models(self, models: Mapping[str, Sequence[str]]) -> None:
        for name, versions in models.items():
            for version in versions:
                self._stop(self._replicas(name, version, running=False), graceful=True)

    def stop_all_model_containers(self) -> None:
        self._stop(self._parts(files.MODEL, running=False), graceful=True)

    def stop_all(self, graceful: bool = True) -> None:
        """Models first, so that none asks for a frontend that is gone. The registry's volume stays."""
        for part in (files.AUTOSCALER, files.MODEL, files.QUERY, files.MANAGEMENT):
            self._stop(self._parts(part, running=False), graceful)
        try:
            self.api.read("DELETE", f"/networks/{self.plan.network}")
        except LepaError as error:
            if error.code != "not_found":
                raise

    def forget(self) -> None:
        """Remove what outlives a stopped cluster: its registry and its model archives."""
        self.api.read("DELETE", f"/volumes/{self.plan.registry_volume}", force="true")

    def _stop(self, containers: Iterable[Json], graceful: bool) -> None:
        for container in containers:
            if graceful:
                self.api.stop(container["Id"], STOP_GRACE_S)
            else:
                self.api.remove(container["Id"])

    def _remove(self, containers: Iterable[Json]) -> None:
        self._stop(containers, graceful=False)

    def get_logs(self, logging_dir: Path) -> list[Path]:
        logging_dir.mkdir(parents=True, exist_ok=True)
        written = []
        for container in self.api.containers(self.plan.labels):
            path = logging_dir / f"{container['Names'][0].lstrip('/')}.log"
            path.write_bytes(self.api.log(container["Id"]))
            written.append(path)
        return written


def _plan(management: Json) -> DockerPlan:
    try:
        return msgspec.json.decode(management["Labels"].get(files.PLAN_LABEL, ""), type=DockerPlan)
    except msgspec.MsgspecError as error:
        raise invalid(f"the cluster's management frontend was started by something else: {error}") from error


def _published(container: Json, port: int) -> set[int]:
    """The ports of the host that lead to a container's port."""
    return {each["PublicPort"] for each in container["Ports"] if each["PrivatePort"] == port and "PublicPort" in each}
