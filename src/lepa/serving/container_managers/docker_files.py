"""Pure: the containers of a serving cluster on one Docker daemon, as the JSON that the daemon takes.

Everything carries Clipper's labels, and is found by them. The parts are in a network of the cluster's own, where
Docker's names lead from one to the other; frontends also have ports of the host.

    lepa-{c}                network           lepa-{c}-registry        volume: the registry and the model archives
    lepa-{c}-management     container, port 1338
    lepa-{c}-query-{n}      containers, ports 1337 and 7000
    lepa-{c}-model-{name}-{version}-{n}       containers, a replica each
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Struct

from lepa.serving.container_managers.protocol import StartOptions, thread_limits

Json = dict[str, Any]

QUERY_PORT, MANAGEMENT_PORT, RPC_PORT = 1337, 1338, 7000
CLUSTER_LABEL = "ai.clipper.container.label"
MODEL_LABEL = "ai.clipper.model_container.label"
PART_LABEL = "lepa.serving.part"
NUMBER_LABEL = "lepa.serving.number"
PLAN_LABEL = "lepa.serving.plan"
"""On the management frontend: what other processes have to know to add to the cluster."""
MANAGEMENT, QUERY, MODEL, AUTOSCALER = "management", "query", "model", "autoscaler"
NOBODY = "65534:65534"
RESTARTS_MAX = 3
PIDS_MAX = 1000
DATA = "/data"
SOCKET = "/run/docker.sock"


class ContainerResources(Struct, frozen=True):
    """What one container may use. cpus: processors, may be a part of one; memory_mb; 0 leaves either open. threads:
    what the libraries of a model compute with; 0 for one for each processor, where those are given."""

    cpus: float = 0.0
    memory_mb: int = 0
    threads: int = 0


class DockerPlan(Struct, frozen=True):
    """Everything the containers of one cluster have in common. image: has `python` with lepa installed. volumes:
    `source:target[:ro]`, for every part. host: the host's address for published ports."""

    cluster_name: str
    image: str
    python: str = "python3"
    host: str = "127.0.0.1"
    volumes: tuple[str, ...] = ()
    frontend: ContainerResources = ContainerResources()
    model: ContainerResources = ContainerResources()
    models: Mapping[str, ContainerResources] = {}

    @property
    def network(self) -> str:
        return f"lepa-{self.cluster_name}"

    @property
    def registry_volume(self) -> str:
        return f"{self.network}-registry"

    @property
    def labels(self) -> dict[str, str]:
        return {CLUSTER_LABEL: self.cluster_name}

    def name(self, part: str, number: int = 0) -> str:
        return f"{self.network}-{part}" if part in (MANAGEMENT, AUTOSCALER) else f"{self.network}-{part}-{number}"


def management_container(plan: DockerPlan, port: int) -> Json:
    """The management frontend; its data outlives it. port: of the host, 0 for any free one."""
    command = _listening(plan, "management", MANAGEMENT_PORT, "--data", DATA)
    body = _container(plan, plan.image, command, {}, MANAGEMENT, 0, plan.frontend)
    body["HostConfig"]["Binds"].append(f"{plan.registry_volume}:{DATA}")
    body["Labels"][PLAN_LABEL] = msgspec.json.encode(plan).decode()
    return _published(body, plan.host, {MANAGEMENT_PORT: port})


def query_container(plan: DockerPlan, options: StartOptions, number: int, port: int) -> Json:
    """A query frontend; it follows the management frontend by its name. port: as above."""
    command = [
        *_listening(plan, "frontend", QUERY_PORT, "--rpc-port", str(RPC_PORT)),
        *("--cache-bytes", str(options.cache_size), "--management", f"{plan.name(MANAGEMENT)}:{MANAGEMENT_PORT}"),
    ]
    body = _container(plan, plan.image, command, {}, QUERY, number, plan.frontend)
    return _published(body, plan.host, {QUERY_PORT: port})


def autoscaler_container(plan: DockerPlan, socket: str) -> Json:
    """The autoscaler, which reaches the daemon through its socket. It alone can start and stop containers."""
    command = [
        plan.python,
        "-m",
        "lepa.serving.autoscaler",
        "--cluster",
        plan.cluster_name,
        "--docker",
        f"unix://{SOCKET}",
    ]
    body = _container(plan, plan.image, command, {}, AUTOSCALER, 0, plan.frontend)
    body["HostConfig"]["Binds"].append(f"{socket}:{SOCKET}")
    return body


def archive_model(
    plan: DockerPlan, name: str, version: str, input_type: str, image: str, number: int, frontends: list[str]
) -> Json:
    """A replica of a published model, as nobody, in lepa's own image: it fetches the archive itself."""
    places = [f"{QUERY}={frontend}:{RPC_PORT}" for frontend in frontends]
    places.append(f"{MANAGEMENT}={plan.name(MANAGEMENT)}:{MANAGEMENT_PORT}")
    environment = {
        **_who(name, version, input_type),
        "CLIPPER_MODEL_PATH": "/tmp/model",
        "LEPA_MODEL_IMAGE": image,
        "LEPA_MANAGEMENT_SERVICE": MANAGEMENT,
        "LEPA_RPC_SERVICE": QUERY,
        "LEPA_DISCOVERY": f"static://{','.join(places)}",
    }
    command = [plan.python, "-m", "lepa.serving.model_container"]
    body = _model(plan, plan.image, command, environment, name, version, number)
    body["User"] = NOBODY
    body["HostConfig"] |= {"CapDrop": ["ALL"], "SecurityOpt": ["no-new-privileges"]}
    return body


def image_model(
    plan: DockerPlan, name: str, version: str, input_type: str, image: str, number: int, frontends: list[str]
) -> Json:
    """A replica from an image that speaks the RPC, such as Clipper's: it connects to one frontend, each to another."""
    where = frontends[number % len(frontends)]
    environment = {**_who(name, version, input_type), "CLIPPER_IP": where, "CLIPPER_PORT": str(RPC_PORT)}
    return _model(plan, image, None, environment, name, version, number)


def _who(name: str, version: str, input_type: str) -> dict[str, str]:
    return {"CLIPPER_MODEL_NAME": name, "CLIPPER_MODEL_VERSION": version, "CLIPPER_INPUT_TYPE": input_type}


def _model(
    plan: DockerPlan,
    image: str,
    command: list[str] | None,
    environment: dict[str, str],
    name: str,
    version: str,
    number: int,
) -> Json:
    resources = plan.models.get(name, plan.model)
    limits = thread_limits(resources.threads or int(resources.cpus)) if resources.threads or resources.cpus else {}
    body = _container(plan, image, command, {**limits, **environment}, MODEL, number, resources)
    body["Labels"][MODEL_LABEL] = f"{name}_{version}"
    return body


def _listening(plan: DockerPlan, module: str, port: int, *more: str) -> list[str]:
    return [plan.python, "-m", f"lepa.serving.{module}", "--host", "0.0.0.0", "--port", str(port), *more]


def _container(
    plan: DockerPlan,
    image: str,
    command: list[str] | None,
    environment: dict[str, str],
    part: str,
    number: int,
    resources: ContainerResources,
) -> Json:
    """A container in the cluster's network; one that fails is started again, a few times."""
    body: Json = {
        "Image": image,
        "Env": [f"{key}={value}" for key, value in environment.items()],
        "Labels": {**plan.labels, PART_LABEL: part, NUMBER_LABEL: str(number)},
        "HostConfig": {
            "NetworkMode": plan.network,
            "Binds": list(plan.volumes),
            "Init": True,
            "PidsLimit": PIDS_MAX,
            "NanoCpus": int(resources.cpus * 1e9),
            "Memory": resources.memory_mb << 20,
            "RestartPolicy": {"Name": "on-failure", "MaximumRetryCount": RESTARTS_MAX},
        },
    }
    if command is not None:
        body["Entrypoint"] = []
        body["Cmd"] = command
    return body


def _published(body: Json, host: str, ports: Mapping[int, int]) -> Json:
    """Let the host's ports lead to the container's; 0 for any free one."""
    body["ExposedPorts"] = {f"{inner}/tcp": {} for inner in ports}
    body["HostConfig"]["PortBindings"] = {
        f"{inner}/tcp": [{"HostIp": host, "HostPort": str(outer) if outer else ""}] for inner, outer in ports.items()
    }
    return body
