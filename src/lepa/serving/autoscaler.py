"""Looks at the load of models again and again, and lets the container manager follow what `autoscale` decides.

    python -m lepa.serving.autoscaler --data DIR --cluster NAME      plain processes of this machine
    python -m lepa.serving.autoscaler --api HOST:PORT --cluster NAME   jobs; NOMAD_TOKEN, NOMAD_NAMESPACE
    python -m lepa.serving.autoscaler --docker ENDPOINT --cluster NAME   containers, from inside their network

One of these runs for a cluster. It keeps nothing: which models are scaled, and how far, is in the registry; when it is
started anew it only has forgotten for how long nobody has asked.
"""

import argparse
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from lepa.model.errors import LepaError
from lepa.serving.admin_client import call
from lepa.serving.autoscale import Autoscale, Load, ReplicaScaler
from lepa.serving.connection import tops
from lepa.serving.container_managers.docker import DockerContainerManager
from lepa.serving.container_managers.jobs import JobsContainerManager
from lepa.serving.container_managers.local import LocalContainerManager
from lepa.serving.container_managers.protocol import DEFAULT_CLUSTER, ContainerManager
from lepa.serving.records import ModelVersion, Registry

log = logging.getLogger(__name__)

LOOK_EVERY_S = 0.5


class _Reading(NamedTuple):
    """Counters of one model at one query frontend at one time; the difference of two is the load between them."""

    at: float
    busy_s: float
    streams_s: float
    queries: int


class Autoscaler:
    """See the module. clock: monotonic seconds."""

    def __init__(self, manager: ContainerManager, clock: Callable[[], float] = time.monotonic) -> None:
        self._manager = manager
        self._clock = clock
        self._scalers: dict[str, ReplicaScaler] = {}
        self._readings: dict[tuple[str, str], _Reading] = {}

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set; who is away is asked again."""
        while not stop.wait(LOOK_EVERY_S):
            try:
                self.look()
            except LepaError as error:
                log.warning("load was not read error=%s", error)

    def look(self) -> None:
        """One look at every model that is scaled."""
        found = call(self._manager.get_admin_addr(), "GET", "/admin/registry")
        registry = msgspec.convert(found, Registry)
        if not registry.scaling:
            return
        looks = tops(self._manager)
        if not looks:
            raise LepaError("timeout", "no query frontend answers")
        self._readings = {key: reading for key, reading in self._readings.items() if key[0] in looks}
        for name, settings in registry.scaling.items():
            if name in registry.current:
                self._scale(registry.models[f"{name}:{registry.current[name]}"], settings, looks)

    def _scale(self, model: ModelVersion, settings: Autoscale, looks: Mapping[str, Any]) -> None:
        now = self._clock()
        scaler = self._scalers.get(model.key)
        if scaler is None or scaler.settings != settings:
            scaler = self._scalers[model.key] = ReplicaScaler(settings, now)
        have = self._manager.get_num_replicas(model.model_name, model.model_version)
        load = self._load(model.key, have, looks, settings.streams_target, now)
        wanted = scaler.decide(load, now)
        if wanted.replicas != have:
            log.info("model scaled model=%s from=%d to=%d reason=%s", model.key, have, *wanted)
            self._manager.set_num_replicas(
                model.model_name, model.model_version, model.input_type, model.container_name, wanted.replicas
            )

    def _load(self, key: str, have: int, looks: Mapping[str, Any], streams_target: float, now: float) -> Load:
        """The load of all query frontends together: each query is asked of one of them, each replica serves all."""
        loads = [self._load_of_one(name, key, have, look, streams_target, now) for name, look in looks.items()]
        busy, queries, queued = (sum(values) for values in zip(*(load[1:] for load in loads), strict=True))
        return Load(have, busy, queries, queued)

    def _load_of_one(self, frontend: str, key: str, have: int, look: Any, streams_target: float, now: float) -> Load:
        """A stream that is under way is a query that waits: a model is not idle while it streams."""
        rows = [row for row in look["models"] if f"{row['model']}:{row['version']}" == key]
        queries = sum(app["predictions"] for app in look["applications"] if key in app["arms"])
        queries += sum(row["streams_begun"] for row in rows)
        streams_s = sum(row["streams_s"] for row in rows)
        reading = _Reading(now, sum(row["busy_s"] for row in rows), streams_s, queries)
        before = self._readings.get((frontend, key), reading)
        self._readings[frontend, key] = reading
        elapsed = now - before.at
        worked_s = max(0.0, reading.busy_s - before.busy_s)
        worked_s += max(0.0, reading.streams_s - before.streams_s) / streams_target
        busy = worked_s / elapsed if elapsed > 0 else 0.0
        queued = sum(row["queued"] + row["streams"] for row in rows)
        return Load(have, busy, max(0, reading.queries - before.queries), queued)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an autoscaler until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="lepa.serving.autoscaler", description="Let replicas follow the load.")
    parser.add_argument("--cluster", default=DEFAULT_CLUSTER, help="name of the serving cluster")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--data", help="data directory of a cluster of plain processes")
    where.add_argument("--api", help="host:port of the orchestrator's HTTP API")
    where.add_argument("--docker", help="endpoint of the Docker daemon, such as unix:///run/docker.sock")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: stop.set())
    manager: ContainerManager
    if options.data:
        manager = LocalContainerManager(options.cluster, options.data)
    elif options.docker:
        manager = DockerContainerManager.joined(options.cluster, options.docker)
    else:
        namespace, token = os.environ.get("NOMAD_NAMESPACE", "default"), os.environ.get("NOMAD_TOKEN", "")
        manager = JobsContainerManager(options.api, options.cluster, namespace=namespace, token=token)
    Autoscaler(manager).run(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())
