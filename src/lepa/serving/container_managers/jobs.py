"""A serving cluster as jobs of an orchestrator that speaks Nomad's HTTP API: lepa, or HashiCorp Nomad.

Connecting is a work flow: each part's service is looked up; where at least one address answers it is used; else the
part's job is submitted and looked up again until it is up, or the deadline passes and the error says what the
orchestrator says about it. So a second process connects to a running cluster, and a part that was lost comes back.
"""

import logging
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lepa.model.errors import LepaError, not_found
from lepa.serving import admin_client, model_archive
from lepa.serving.addresses import Address, parse_address
from lepa.serving.addressing import Direct, DnsProvider, LoadBalancer, Locator, NomadServiceProvider
from lepa.serving.container_managers.job_files import (
    CLUSTER_META,
    ClusterPlan,
    Json,
    PartResources,
    autoscaler_job,
    management_job,
    model_job,
    query_frontend_job,
)
from lepa.serving.container_managers.protocol import DEFAULT_CLUSTER, StartOptions
from lepa.serving.model_archive import ArchiveImage
from lepa.serving.model_directory import describe
from lepa.serving.nomad_api import NomadApi

log = logging.getLogger(__name__)

UPLOAD_TIMEOUT_S = 300.0
UP_TIMEOUT_S = 120.0
POLL_S = 0.2
CONNECT_TIMEOUT_S = 1.0
LAST_WORDS_MAX = 300

_MODEST = PartResources()


class JobsContainerManager:
    """See the module.

    api: the orchestrator's HTTP address. dns: who is asked for services (default: the same API); discovery: the URL by
    which the tasks themselves ask (default: the same API, as the nodes reach it). load_balancer: where models and
    callers go instead of the frontends' own addresses. grpc: query frontends speak gRPC too. store: where the registry
    is kept instead of the management frontend's disk, a URL of its `--store`. python: the interpreter on the nodes that
    has lepa installed. query_frontend, management, model: resources and static ports of each part;
    models: of single models, by name.
    """

    def __init__(
        self,
        api: str = "127.0.0.1:4646",
        cluster_name: str = DEFAULT_CLUSTER,
        *,
        dns: DnsProvider | None = None,
        discovery: str = "",
        load_balancer: LoadBalancer | None = None,
        datacenters: Sequence[str] = ("*",),
        namespace: str = "default",
        token: str = "",
        driver: str = "raw_exec",
        grpc: bool = False,
        store: str = "",
        python: str = sys.executable,
        management: PartResources = _MODEST,
        query_frontend: PartResources = _MODEST,
        model: PartResources = _MODEST,
        models: Mapping[str, PartResources] | None = None,
        up_timeout_s: float = UP_TIMEOUT_S,
    ) -> None:
        self.cluster_name = cluster_name
        address = parse_address(api)
        self._api = NomadApi(address, namespace, token)
        self._locator = Locator(dns or NomadServiceProvider(address, namespace, token))
        self._balancer = load_balancer or Direct()
        self._up_timeout_s = up_timeout_s
        self.plan = ClusterPlan(
            cluster_name=cluster_name,
            python=python,
            discovery=discovery or f"nomad://{address}",
            datacenters=tuple(datacenters),
            namespace=namespace,
            driver=driver,
            grpc=grpc,
            store=store,
            management=management,
            query_frontend=query_frontend,
            model=model,
            models=models or {},
        )

    # The cluster

    def start_clipper(self, options: StartOptions) -> None:
        plan, balancer, name = self.plan, self._balancer, self.cluster_name
        self._ensure(plan.management_service, management_job(plan))
        query = query_frontend_job(plan, options, balancer.tags("http", name), balancer.tags("rpc", name))
        self._ensure(plan.query_service, query)

    def connect(self) -> None:
        self.start_clipper(StartOptions())

    def _ensure(self, service: str, job: Json) -> None:
        """Use the service where it answers; else submit its job and wait."""
        if self._answering(service):
            log.info("service found name=%s", service)
            return
        self._api.submit(job)
        log.info("job submitted id=%s", job["ID"])
        give_up = time.monotonic() + self._up_timeout_s
        while not self._answering(service):
            if time.monotonic() > give_up:
                raise LepaError(
                    "timeout",
                    f"job {job['ID']} was submitted, but nobody answered as {service} within "
                    f"{self._up_timeout_s:.0f} s: {self._state(job['ID'])}",
                )
            time.sleep(POLL_S)

    def _answering(self, service: str) -> Address | None:
        """The first address of a service that takes connections."""
        self._locator.forget(service)
        for address in self._locator.locate(service):
            try:
                socket.create_connection(address, CONNECT_TIMEOUT_S).close()
            except OSError:
                continue
            return address
        return None

    def _state(self, job_id: str) -> str:
        """What the orchestrator says about a job's allocations."""
        allocations = self._api.allocations(job_id)
        if not allocations:
            return "it has no allocation; no node may have what it asks for"
        newest = max(allocations, key=lambda allocation: int(allocation.get("CreateIndex", 0)))
        events = [
            event.get("DisplayMessage", "")
            for state in (newest.get("TaskStates") or {}).values()
            for event in state.get("Events") or ()
        ]
        return f"allocation {newest['ID']} is {newest.get('ClientStatus')}: {'; '.join(events[-3:]) or 'no events'}"

    def get_admin_addr(self) -> Address:
        return self._locator.first(self.plan.management_service)

    def get_query_addr(self) -> Address:
        return self._balancer.http() or self._locator.first(self.plan.query_service)

    def get_query_path(self) -> str:
        return self._balancer.path(self.cluster_name)

    def get_query_addrs(self) -> Sequence[Address]:
        balancer = self._balancer.http()
        return [balancer] if balancer else self.get_frontend_addrs()

    def get_frontend_addrs(self) -> Sequence[Address]:
        found = self._locator.locate(self.plan.query_service)
        if not found:
            raise not_found(f"nobody offers the service {self.plan.query_service}")
        return found

    def query_addr_lost(self, address: Address) -> None:
        self._locator.lost(self.plan.query_service, address)

    def get_metric_addr(self) -> Address:
        return self._locator.first(self.plan.query_service)

    # Models

    def publish_model(self, name: str, version: str, directory: Path) -> str:
        describe(directory)
        archive = model_archive.pack(directory)
        image = ArchiveImage(name, version, model_archive.digest(archive))
        admin_client.send(self.get_admin_addr(), "PUT", image.path, archive, UPLOAD_TIMEOUT_S)
        return str(image)

    def deploy_model(self, name: str, version: str, input_type: str, image: str, num_replicas: int = 1) -> None:
        self._api.submit(model_job(self.plan, name, version, input_type, image, num_replicas, self._rpc()))

    def _rpc(self) -> dict[str, str]:
        """The variables that lead a model container to the query frontends: their service, and a balancer if any."""
        service = {"LEPA_RPC_SERVICE": self.plan.rpc_service}
        if address := self._balancer.rpc():
            return {**service, "CLIPPER_IP": address.host, "CLIPPER_PORT": str(address.port)}
        return service

    def get_num_replicas(self, name: str, version: str) -> int:
        job = self._api.job(self.plan.model_job(name, version))
        return sum(group["Count"] for group in job["TaskGroups"]) if job else 0

    def set_num_replicas(self, name: str, version: str, input_type: str, image: str, num_replicas: int) -> None:
        """Only the count changes: what else the job says is kept, whoever has submitted it."""
        job = self._api.job(self.plan.model_job(name, version))
        if job is None:
            self.deploy_model(name, version, input_type, image, num_replicas)
            return
        job["TaskGroups"][0]["Count"] = num_replicas
        self._api.submit(job)

    def ensure_autoscaler(self) -> None:
        if self._api.job(self.plan.autoscaler_job) is None:
            self._api.submit(autoscaler_job(self.plan, str(self._api.address), self._api.token))

    def trouble(self, name: str, version: str) -> str:
        """Said once every allocation has failed: the orchestrator itself tries a failed one again."""
        job_id = self.plan.model_job(name, version)
        allocations = self._api.allocations(job_id)
        failed = bool(allocations) and all(one.get("ClientStatus") == "failed" for one in allocations)
        return f"{self._state(job_id)}{self._last_words(allocations[-1])}" if failed else ""

    def _last_words(self, allocation: Json) -> str:
        """The last line that a failed allocation's task wrote to its standard error."""
        for task in allocation.get("TaskStates") or ():
            try:
                lines = self._api.log(allocation["ID"], task, "stderr").decode(errors="replace").split("\n")
            except LepaError:
                continue
            if said := [line for line in lines if line.strip()]:
                return f"; its last words: {said[-1].strip()[:LAST_WORDS_MAX]}"
        return ""

    def stop_models(self, models: Mapping[str, Sequence[str]]) -> None:
        for name, versions in models.items():
            for version in versions:
                self._api.stop(self.plan.model_job(name, version))

    def stop_all_model_containers(self) -> None:
        self._stop(self.plan.model_prefix)

    def stop_all(self, graceful: bool = True) -> None:
        """Models first, so that none asks for a frontend that is gone; not graceful: all at once."""
        if graceful:
            self._stop(self.plan.model_prefix)
        self._stop(self.plan.prefix)

    def _stop(self, prefix: str) -> None:
        for job_id in self._job_ids(prefix):
            self._api.stop(job_id)

    def _job_ids(self, prefix: str) -> list[str]:
        """The cluster's own jobs among those whose id has the prefix."""
        found = [(job_id, self._api.job(job_id)) for job_id in self._api.job_ids(prefix)]
        return [i for i, job in found if job and (job.get("Meta") or {}).get(CLUSTER_META) == self.cluster_name]

    def get_logs(self, logging_dir: Path) -> list[Path]:
        logging_dir.mkdir(parents=True, exist_ok=True)
        files = []
        for job_id in self._job_ids(self.plan.prefix):
            for allocation in self._api.allocations(job_id):
                files += self._save_logs(logging_dir, job_id, allocation)
        return files

    def _save_logs(self, directory: Path, job_id: str, allocation: Json) -> list[Path]:
        """The logs of one allocation; those that its node no longer has are left out."""
        files = []
        for task in allocation.get("TaskStates") or {}:
            for kind in ("stdout", "stderr"):
                try:
                    text = self._api.log(allocation["ID"], task, kind)
                except LepaError as error:
                    log.warning("log was not read allocation=%s error=%s", allocation["ID"], error)
                    continue
                path = directory / f"{job_id}-{allocation['ID'][:8]}-{task}.{kind}.log"
                path.write_bytes(text)
                files.append(path)
        return files
