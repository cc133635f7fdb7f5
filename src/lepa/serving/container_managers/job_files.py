"""Pure: the jobs of a serving cluster, as the JSON that `PUT /v1/jobs` takes.

There are no label selectors in Nomad, so names are the convention: every job of cluster c has an id that begins with
`clipper-{c}-`, and the cluster's parts are found and stopped by that prefix.

    clipper-{c}-mgmt                  service clipper-{c}-mgmt-http
    clipper-{c}-query-frontend        services clipper-{c}-query-frontend-service, clipper-{c}-query-frontend-rpc
                                      and, where it is wanted, clipper-{c}-query-frontend-grpc
    clipper-{c}-autoscaler            where a model is scaled by its load
    clipper-{c}-model-{name}-{version}   one group, its count is the number of replicas
"""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from lepa.serving.container_managers.protocol import StartOptions, thread_limits

Json = dict[str, Any]

SECOND_NS = 1_000_000_000
CHECK_INTERVAL_NS = 3 * SECOND_NS
CHECK_TIMEOUT_NS = 2 * SECOND_NS
DISK_MB = 300
CORE_MHZ = 2_500
"""What a processor is taken to have where nodes are not known yet."""
CLUSTER_META = "clipper_cluster"
"""The job meta that holds the cluster's name: cluster "a" must not stop the jobs of cluster "a-b"."""


class PartResources(Struct, frozen=True):
    """What one instance of a part may use. cpu: MHz. ports: label -> static port; the others are dynamic. threads: what
    the libraries of a model compute with; 0 for one for each `CORE_MHZ` of its cpu, at least one."""

    cpu: int = 500
    memory_mb: int = 256
    ports: Mapping[str, int] = {}
    threads: int = 0


class ClusterPlan(Struct, frozen=True):
    """Everything the jobs of one cluster have in common. python: the interpreter on the nodes that has lepa.
    discovery: the URL by which tasks find each other (see `addressing`). driver: raw_exec, or exec. grpc: query
    frontends speak the Open Inference Protocol over gRPC too. store: where the management frontend keeps its registry,
    "" for its own disk; it goes there with its task's identity."""

    cluster_name: str
    python: str
    discovery: str
    datacenters: tuple[str, ...] = ("*",)
    namespace: str = "default"
    driver: str = "raw_exec"
    grpc: bool = False
    store: str = ""
    management: PartResources = PartResources()
    query_frontend: PartResources = PartResources()
    model: PartResources = PartResources()
    models: Mapping[str, PartResources] = {}

    @property
    def prefix(self) -> str:
        """What the ids of all jobs of the cluster begin with."""
        return f"clipper-{self.cluster_name}-"

    @property
    def management_job(self) -> str:
        return f"{self.prefix}mgmt"

    @property
    def query_job(self) -> str:
        return f"{self.prefix}query-frontend"

    @property
    def autoscaler_job(self) -> str:
        return f"{self.prefix}autoscaler"

    @property
    def model_prefix(self) -> str:
        return f"{self.prefix}model-"

    def model_job(self, name: str, version: str) -> str:
        return f"{self.model_prefix}{name}-{version}"

    @property
    def management_service(self) -> str:
        return f"{self.prefix}mgmt-http"

    @property
    def query_service(self) -> str:
        return f"{self.prefix}query-frontend-service"

    @property
    def rpc_service(self) -> str:
        return f"{self.prefix}query-frontend-rpc"

    @property
    def grpc_service(self) -> str:
        return f"{self.prefix}query-frontend-grpc"


def management_job(plan: ClusterPlan) -> Json:
    """The management frontend: one instance, its registry on a disk that moves with it."""
    arguments = [*_listening("management"), "--data", "${NOMAD_ALLOC_DIR}/data/registry"]
    environment = {}
    if plan.store:
        arguments += ["--store", plan.store]
        environment = {"NOMAD_NAMESPACE": plan.namespace}
    services = [_service(plan.management_service, "http", {"Type": "http", "Path": "/admin/ping"}, ())]
    group = _group(plan, "management", arguments, environment, plan.management, ("http",), services)
    if plan.store:
        group["Tasks"][0]["Identity"] = {"Env": True}
    group["EphemeralDisk"] = {"SizeMB": DISK_MB, "Sticky": True, "Migrate": True}
    return _job(plan, plan.management_job, group)


def query_frontend_job(
    plan: ClusterPlan, options: StartOptions, http_tags: tuple[str, ...], rpc_tags: tuple[str, ...]
) -> Json:
    """The query frontends; each follows the management frontend by its service."""
    arguments = [
        *_listening("frontend"),
        *("--rpc-port", "${NOMAD_PORT_rpc}", "--cache-bytes", str(options.cache_size)),
        *("--management", f"service:{plan.management_service}", "--discovery", plan.discovery),
    ]
    services = [
        _service(plan.query_service, "http", {"Type": "http", "Path": "/health"}, http_tags),
        _service(plan.rpc_service, "rpc", {"Type": "tcp"}, rpc_tags),
    ]
    labels: tuple[str, ...] = ("http", "rpc")
    if plan.grpc:
        arguments += ["--grpc-port", "${NOMAD_PORT_grpc}"]
        services.append(_service(plan.grpc_service, "grpc", {"Type": "tcp"}, ()))
        labels = (*labels, "grpc")
    group = _group(plan, "query-frontend", arguments, {}, plan.query_frontend, labels, services)
    group["Count"] = options.num_frontend_replicas
    return _job(plan, plan.query_job, group)


def autoscaler_job(plan: ClusterPlan, api: str, token: str) -> Json:
    """The autoscaler: one instance; it asks the orchestrator's API for more or fewer replicas."""
    arguments = ["-m", "lepa.serving.autoscaler", "--api", api, "--cluster", plan.cluster_name]
    environment = {"NOMAD_NAMESPACE": plan.namespace, **({"NOMAD_TOKEN": token} if token else {})}
    group = _group(plan, "autoscaler", arguments, environment, plan.management, (), [])
    return _job(plan, plan.autoscaler_job, group)


def model_job(
    plan: ClusterPlan, name: str, version: str, input_type: str, image: str, count: int, rpc: Mapping[str, str]
) -> Json:
    """The containers of a model version. rpc: the variables that lead them to the query frontends."""
    resources = plan.models.get(name, plan.model)
    environment = {
        **thread_limits(resources.threads or resources.cpu // CORE_MHZ),
        "CLIPPER_MODEL_NAME": name,
        "CLIPPER_MODEL_VERSION": version,
        "CLIPPER_INPUT_TYPE": input_type,
        "CLIPPER_MODEL_PATH": "${NOMAD_TASK_DIR}/model",
        "LEPA_MODEL_IMAGE": image,
        "LEPA_DISCOVERY": plan.discovery,
        "LEPA_MANAGEMENT_SERVICE": plan.management_service,
        **rpc,
    }
    arguments = ["-m", "lepa.serving.model_container"]
    group = _group(plan, "model", arguments, environment, resources, (), [])
    group["Count"] = count
    job = _job(plan, plan.model_job(name, version), group)
    job["Meta"] |= {"model_name": name, "model_version": version, "input_type": input_type, "image": image}
    return job


def _listening(module: str) -> list[str]:
    return ["-m", f"lepa.serving.{module}", "--host", "${NOMAD_IP_http}", "--port", "${NOMAD_PORT_http}"]


def _job(plan: ClusterPlan, job_id: str, group: Json) -> Json:
    return {
        "ID": job_id,
        "Name": job_id,
        "Type": "service",
        "Namespace": plan.namespace,
        "Datacenters": list(plan.datacenters),
        "Meta": {CLUSTER_META: plan.cluster_name},
        "TaskGroups": [group],
    }


def _group(
    plan: ClusterPlan,
    task: str,
    arguments: list[str],
    environment: dict[str, str],
    resources: PartResources,
    labels: tuple[str, ...],
    services: list[Json],
) -> Json:
    """A group with one task; a failed task is started again at once, three times a minute, then elsewhere."""
    static = [{"Label": label, "Value": resources.ports[label]} for label in labels if label in resources.ports]
    dynamic = [{"Label": label} for label in labels if label not in resources.ports]
    group: Json = {
        "Name": f"clipper-{plan.cluster_name}",
        "Count": 1,
        "RestartPolicy": {"Attempts": 3, "Interval": 60 * SECOND_NS, "Delay": SECOND_NS, "Mode": "fail"},
        "Services": services,
        "Tasks": [
            {
                "Name": task,
                "Driver": plan.driver,
                "Config": {"command": plan.python, "args": arguments},
                "Env": environment,
                "Resources": {"CPU": resources.cpu, "MemoryMB": resources.memory_mb},
                "KillTimeout": 10 * SECOND_NS,
            }
        ],
    }
    if labels:
        group["Networks"] = [{"Mode": "host", "DynamicPorts": dynamic, "ReservedPorts": static}]
    return group


def _service(name: str, label: str, check: Json, tags: tuple[str, ...]) -> Json:
    times = {"Interval": CHECK_INTERVAL_NS, "Timeout": CHECK_TIMEOUT_NS}
    checks = [{"Name": f"{name}-{check['Type']}", "PortLabel": label, **check, **times}]
    return {"Name": name, "PortLabel": label, "Provider": "nomad", "Tags": list(tags), "Checks": checks}
