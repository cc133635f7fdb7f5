"""The management frontend: applications, models, versions and links over HTTP (port 1338), under Clipper's paths.

Each change is one pure function of `records`, saved before it is acknowledged. Query frontends follow by a long poll
of `GET /admin/registry?index=N&wait=S`, which answers when the revision is another one than N, and report the
containers that are connected to them. In the same way they tell what feedback has shown (`/admin/observe`) and follow
what all of it together has taught (`/admin/selection`). Errors are `{"error": code, "cause": sentence}` with Clipper's
sentences; where Clipper always answered 400, an unknown name is 404 and a name that is taken 409.
"""

import argparse
import asyncio
import logging
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
import uvloop
from aiohttp import web

from lepa.kit.sources import Clock, SystemClock
from lepa.model.errors import LepaError, invalid, not_found
from lepa.serving import records
from lepa.serving.management_bodies import (
    AddApp,
    AddModel,
    ContainerName,
    ContainerReport,
    LinkedModels,
    Links,
    ModelName,
    Named,
    ObservationReport,
    SetAutoscale,
    SetBatching,
    SetPolicy,
    StateOf,
    Verbose,
    VersionedModel,
)
from lepa.serving.management_http import decoding, errors, index_and_wait, json_error, plain_error, within
from lepa.serving.model_archive import ARCHIVE_BYTES_MAX
from lepa.serving.ready_file import write_ready_file
from lepa.serving.records import Application, Container, ModelVersion, Registry
from lepa.serving.redis_store import RedisRegistryStore
from lepa.serving.registry_follower import REPORT_EVERY_S
from lepa.serving.registry_store import MemoryRegistryStore, RegistryStore, SqliteRegistryStore
from lepa.serving.selection import SelectionState, selection_policy
from lepa.serving.selection_memory import SelectionMemory
from lepa.serving.variables_store import VariablesRegistryStore

log = logging.getLogger(__name__)

BODY_BYTES_MAX = 1 << 20
CHUNK_BYTES = 1 << 20
FRONTENDS_MAX = 1000
_FILE_NAME = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]{0,127}")


class ManagementFrontend:
    """One management frontend, as an async context manager."""

    def __init__(
        self,
        host: str,
        port: int,
        store: RegistryStore,
        archives: Path | None,
        clock: Clock,
        *,
        compat: bool = False,
    ) -> None:
        self._host = host
        self._compat = compat
        self._archives = archives
        self.port = port
        self._store = store
        self._clock = clock
        self._registry = Registry()
        self._changing = asyncio.Lock()
        self._changed = asyncio.Event()
        self._memory = SelectionMemory()
        self._learned = asyncio.Event()
        self._reports: dict[str, tuple[float, list[Container]]] = {}

    async def __aenter__(self) -> Self:
        self._registry = await asyncio.to_thread(self._store.load)
        self._memory = SelectionMemory(await asyncio.to_thread(self._store.load_states))
        self._runner = web.AppRunner(self._application(), access_log=None, shutdown_timeout=1.0)
        await self._runner.setup()
        site = web.TCPSite(self._runner, self._host, self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._changed.set()
        self._learned.set()
        await self._runner.cleanup()
        self._store.close()

    def _application(self) -> web.Application:
        app = web.Application(
            client_max_size=BODY_BYTES_MAX, middlewares=[errors(plain_error if self._compat else json_error)]
        )
        app.router.add_get("/admin/ping", self._ping)
        app.router.add_get("/admin/registry", self._follow)
        app.router.add_get("/admin/selection", self._follow_selection)
        app.router.add_get("/admin/model_archive/{name}/{version}", self._get_archive)
        app.router.add_put("/admin/model_archive/{name}/{version}", self._put_archive)
        for path, (shape, handler) in self._posts().items():
            app.router.add_post(f"/admin/{path}", decoding(shape, handler))
        return app

    def _posts(self) -> dict[str, tuple[type[Any], Callable[[Any], Awaitable[Any]]]]:
        """Every POST: its body, and what answers it. A text answer is a sentence, anything else JSON."""
        return {
            "add_app": (AddApp, self._add_app),
            "set_policy": (SetPolicy, self._set_policy),
            "set_autoscale": (SetAutoscale, self._set_autoscale),
            "set_batching": (SetBatching, self._set_batching),
            "delete_app": (Named, self._delete_app),
            "add_model": (AddModel, self._add_model),
            "delete_versioned_model": (VersionedModel, self._delete_model),
            "set_model_version": (VersionedModel, self._set_version),
            "roll_back_model": (ModelName, self._roll_back),
            "add_model_links": (Links, self._add_links),
            "delete_model_links": (Links, self._delete_links),
            "get_linked_models": (LinkedModels, self._get_linked_models),
            "get_all_applications": (Verbose, self._get_applications),
            "get_application": (Named, self._get_application),
            "get_all_models": (Verbose, self._get_models),
            "get_model": (VersionedModel, self._get_model),
            "get_all_containers": (Verbose, self._get_containers),
            "get_container": (ContainerName, self._get_container),
            "get_state": (StateOf, self._get_state),
            "report_containers": (ContainerReport, self._report_containers),
            "observe": (ObservationReport, self._observe),
        }

    async def _change(self, change: Callable[..., Registry], *arguments: Any) -> None:
        """Make one change durable, then visible. Changes follow one another."""
        async with self._changing:
            registry = change(self._registry, *arguments)
            await asyncio.to_thread(self._store.save, registry)
            self._registry = registry
            self._changed.set()
            self._changed = asyncio.Event()
        log.info("registry changed by=%s revision=%d", change.__name__, registry.revision)

    # Following

    async def _ping(self, request: web.Request) -> web.Response:
        return web.Response(text="PONG", content_type="application/json")

    async def _follow(self, request: web.Request) -> web.Response:
        index, wait_s = index_and_wait(request)
        if index == self._registry.revision:
            await within(wait_s, self._changed)
        return web.Response(body=msgspec.json.encode(self._registry), content_type="application/json")

    async def _follow_selection(self, request: web.Request) -> web.Response:
        index, wait_s = index_and_wait(request)
        if index == self._memory.revision:
            await within(wait_s, self._learned)
        return web.Response(body=msgspec.json.encode(self._memory.since(index)), content_type="application/json")

    async def _observe(self, body: ObservationReport) -> str:
        async with self._changing:
            await asyncio.to_thread(self._store.save_learned, self._memory.observe(body.observations, self._registry))
        self._tell_learned()
        return "Success!"

    def _tell_learned(self) -> None:
        self._learned.set()
        self._learned = asyncio.Event()

    async def _report_containers(self, body: ContainerReport) -> str:
        if body.frontend not in self._reports and len(self._reports) >= FRONTENDS_MAX:
            raise invalid(f"more than {FRONTENDS_MAX} query frontends report")
        self._reports[body.frontend] = (self._clock.now(), body.containers)
        return "Success!"

    def _containers(self) -> list[Container]:
        """The containers of the frontends that have reported lately, each once."""
        oldest = self._clock.now() - 3 * REPORT_EVERY_S
        self._reports = {name: report for name, report in self._reports.items() if report[0] >= oldest}
        return records.distinct_containers(self._reports[name][1] for name in sorted(self._reports))

    # Model archives

    async def _put_archive(self, request: web.Request) -> web.Response:
        """Keep the archive of a model version, in place of an older one; whole, or not at all."""
        path = self._archive_path(request)
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".draft")
        size = 0
        with draft.open("wb") as file:
            async for chunk in request.content.iter_chunked(CHUNK_BYTES):
                size += len(chunk)
                if size > ARCHIVE_BYTES_MAX:
                    raise invalid(f"a model archive holds at most {ARCHIVE_BYTES_MAX} bytes")
                await asyncio.to_thread(file.write, chunk)
        draft.rename(path)
        log.info("model archive kept path=%s bytes=%d", path, size)
        return web.Response(text="Success!", content_type="application/json")

    async def _get_archive(self, request: web.Request) -> web.StreamResponse:
        path = self._archive_path(request)
        if not path.is_file():
            raise not_found(f"no archive of model {request.match_info['name']}:{request.match_info['version']} is here")
        return web.FileResponse(path)

    def _archive_path(self, request: web.Request) -> Path:
        if self._archives is None:
            raise LepaError("unsupported", "this management frontend keeps no model archives: it has no data directory")
        name, version = request.match_info["name"], request.match_info["version"]
        if not (_FILE_NAME.fullmatch(name) and _FILE_NAME.fullmatch(version)):
            raise invalid(f"{name}:{version} cannot name a model archive")
        return self._archives / name / f"{version}.tar.gz"

    # Changes

    async def _add_app(self, body: AddApp) -> str:
        application = Application(
            body.name,
            body.input_type,
            body.default_output,
            body.latency_slo_micros,
            policy=body.policy,
            policy_options=body.policy_options,
        )
        await self._change(records.add_application, application)
        return f"Successfully added application with name '{body.name}'"

    async def _set_policy(self, body: SetPolicy) -> str:
        await self._change(records.set_policy, body.name, body.policy, body.policy_options)
        return f"Successfully set the policy of application '{body.name}' to {body.policy}"

    async def _set_autoscale(self, body: SetAutoscale) -> str:
        await self._change(records.set_autoscale, body.model_name, body.autoscale)
        return f"Successfully set the scaling of model '{body.model_name}'"

    async def _set_batching(self, body: SetBatching) -> str:
        await self._change(records.set_batching, body.model_name, body.model_version, body.batching)
        return f"Successfully set the batching of model '{body.model_name}' to {body.batching.policy}"

    async def _delete_app(self, body: Named) -> str:
        await self._change(records.delete_application, body.name)
        async with self._changing:
            if self._memory.forget(body.name):
                await asyncio.to_thread(self._store.forget_states, body.name)
                self._tell_learned()
        return f"Successfully deleted application with name '{body.name}'"

    async def _add_model(self, body: AddModel) -> str:
        model = ModelVersion(
            body.model_name,
            body.model_version,
            body.input_type,
            tuple(body.labels),
            body.container_name,
            body.model_data_path,
            body.batch_size,
            endpoint=body.endpoint,
        )
        await self._change(records.add_model, model)
        return f"Successfully added model with name '{body.model_name}' and input type '{body.input_type}'"

    async def _delete_model(self, body: VersionedModel) -> str:
        await self._change(records.delete_model, body.model_name, body.model_version)
        return f"Successfully deleted model with name '{body.model_name}' and version '{body.model_version}'"

    async def _set_version(self, body: VersionedModel) -> str:
        await self._change(records.set_model_version, body.model_name, body.model_version)
        return f"Successfully set model with name '{body.model_name}' to version '{body.model_version}'"

    async def _roll_back(self, body: ModelName) -> str:
        await self._change(records.roll_back, body.model_name)
        version = self._registry.current.get(body.model_name)
        return f"Successfully set model with name '{body.model_name}' to version '{version}'"

    async def _add_links(self, body: Links) -> str:
        await self._change(records.add_links, body.app_name, tuple(body.model_names))
        return f"Successfully linked model with name '{body.model_names[0]}' to application '{body.app_name}'"

    async def _delete_links(self, body: Links) -> str:
        await self._change(records.delete_links, body.app_name, tuple(body.model_names))
        return "Success!"

    # Views

    async def _get_linked_models(self, body: LinkedModels) -> Any:
        app = self._registry.applications.get(body.app_name)
        if app is None:
            raise LepaError("not_found", f"No application with name '{body.app_name}' exists.")
        return list(app.linked_models)

    async def _get_applications(self, body: Verbose) -> Any:
        applications = self._registry.applications
        return [records.application_view(app) for app in applications.values()] if body.verbose else list(applications)

    async def _get_application(self, body: Named) -> Any:
        app = self._registry.applications.get(body.name)
        return records.application_view(app) if app else {}

    async def _get_models(self, body: Verbose) -> Any:
        models = self._registry.models
        return [records.model_view(self._registry, m) for m in models.values()] if body.verbose else list(models)

    async def _get_model(self, body: VersionedModel) -> Any:
        model = self._registry.models.get(f"{body.model_name}:{body.model_version}")
        return records.model_view(self._registry, model) if model else {}

    async def _get_containers(self, body: Verbose) -> Any:
        containers = self._containers()
        return containers if body.verbose else [f"{c.model_id}:{c.model_replica_id}" for c in containers]

    async def _get_container(self, body: ContainerName) -> Any:
        wanted = (body.model_name, body.model_version, body.replica_id)
        found = (c for c in self._containers() if (c.model_name, c.model_version, c.model_replica_id) == wanted)
        return next(found, {})

    async def _get_state(self, body: StateOf) -> Any:
        app = self._registry.applications.get(body.app_name)
        if app is None:
            raise LepaError("not_found", f"No application with name '{body.app_name}' exists.")
        if not selection_policy(app.policy).learns:
            return app.default_output
        return self._memory.get(app.name, str(body.uid)) or SelectionState(app.name, "")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a management frontend until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="lepa.serving.management", description="Keep applications and models.")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=1338, help="HTTP port, 0 for a free one")
    parser.add_argument("--data", type=Path, help="where registry and model archives are kept; none: forgotten")
    where = "redis://HOST:PORT, under Clipper's keys, or vars://HOST:PORT/PATH, in variables of a cluster"
    parser.add_argument("--store", help=f"keep the registry elsewhere: {where}")
    parser.add_argument("--compat", choices=("clipper",), help="speak of errors as Clipper did")
    parser.add_argument("--ready-file", type=Path, help="where to write the port once it listens")
    options = parser.parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        store = _store(options.store, options.data)
        archives = options.data / "models" if options.data else None
        clock, clipper = SystemClock(), options.compat == "clipper"
        frontend = ManagementFrontend(options.host, options.port, store, archives, clock, compat=clipper)
        uvloop.run(_serve(frontend, options.ready_file))
    except (LepaError, OSError) as error:
        print(f"the management frontend could not start: {error}", file=sys.stderr)
        return 1
    return 0


def _store(url: str | None, data: Path | None) -> RegistryStore:
    if url and url.startswith("vars://"):
        return VariablesRegistryStore(url)
    if url:
        return RedisRegistryStore(url)
    return SqliteRegistryStore(data / "registry.sqlite") if data else MemoryRegistryStore()


async def _serve(frontend: ManagementFrontend, ready_file: Path | None) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with frontend:
        log.info("management frontend listens port=%d", frontend.port)
        if ready_file:
            write_ready_file(ready_file, {"port": frontend.port})
        await stop.wait()


if __name__ == "__main__":
    sys.exit(main())
