"""`ClipperConnection`: a serving cluster as Clipper's users know it, over any container manager.

    connection = ClipperConnection(LocalContainerManager())
    connection.start_clipper()
    connection.register_application("digits", "doubles", "-1", slo_micros=100_000)
    deployers.deploy_sklearn_model(connection, "digits-model", 1, "doubles", fitted, num_replicas=2)
    connection.link_model_to_app("digits", "digits-model")
    connection.predict("digits", [0.0] * 64)

Where Clipper started containers and registered the model without looking, `deploy_model` waits until the replicas are
connected, and says what their processes said when they do not come.
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lepa.model.errors import LepaError, invalid, not_found
from lepa.serving.addresses import Address
from lepa.serving.admin_client import call
from lepa.serving.container_managers.protocol import ContainerManager, StartOptions
from lepa.serving.records import BATCH_SIZE_ADAPTIVE

LOOK_UPS = 2
"""Times that query frontends are looked for, for one question."""
READY_TIMEOUT_S = 60.0
POLL_S = 0.05
NO_CONTAINER = "NO_CONTAINER"

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class ClipperConnection:
    """Everything that can be asked of one serving cluster."""

    def __init__(self, container_manager: ContainerManager) -> None:
        self.cm = container_manager
        self._connected = False

    # The cluster

    def start_clipper(self, cache_size: int = 32 << 20, num_frontend_replicas: int = 1) -> None:
        """Start the frontends, and return when they answer."""
        self.cm.start_clipper(StartOptions(cache_size=cache_size, num_frontend_replicas=num_frontend_replicas))
        self._connected = True
        self._wait_until("the frontends answer", self._frontends_answer)

    def connect(self) -> None:
        """Use a cluster that runs already."""
        self.cm.connect()
        self._connected = True

    def _frontends_answer(self) -> bool:
        try:
            call(self.cm.get_query_addr(), "GET", f"{self.cm.get_query_path()}/health")
            call(self.cm.get_admin_addr(), "GET", "/admin/ping")
        except LepaError:
            return False
        return True

    def stop_all(self, graceful: bool = True) -> None:
        """Stop everything that belongs to the cluster; works unconnected."""
        self.cm.stop_all(graceful)
        self._connected = False

    # Applications

    def register_application(
        self,
        name: str,
        input_type: str,
        default_output: str,
        slo_micros: int,
        policy: str = "DefaultOutputSelectionPolicy",
        policy_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Make `POST /{name}/predict` answer within `slo_micros`, with `default_output` where no model does.

        policy: how its models answer, with the options of `selection.PolicyOptions`.
        """
        self._admin(
            "add_app",
            name=name,
            input_type=input_type,
            default_output=default_output,
            latency_slo_micros=slo_micros,
            policy=policy,
            policy_options=dict(policy_options or {}),
        )

    def set_policy(self, name: str, policy: str, policy_options: Mapping[str, Any] | None = None) -> None:
        """Let the models of an application answer in another way, such as a larger share for its canary."""
        self._admin("set_policy", name=name, policy=policy, policy_options=dict(policy_options or {}))

    def unregister_application(self, name: str) -> None:
        """Take an application away, its links with it."""
        self._admin("delete_app", name=name)

    def link_model_to_app(self, app_name: str, model_name: str) -> None:
        """Let a model answer an application."""
        self._admin("add_model_links", app_name=app_name, model_names=[model_name])

    def unlink_model_from_app(self, app_name: str, model_name: str) -> None:
        """Let it answer no longer."""
        self._admin("delete_model_links", app_name=app_name, model_names=[model_name])

    def get_all_apps(self, verbose: bool = False) -> Any:
        """Names of the applications, or all about them."""
        return self._admin("get_all_applications", verbose=verbose)

    def get_app_info(self, name: str) -> Any:
        """All about one application, None when there is none of that name."""
        return self._admin("get_application", name=name) or None

    def get_linked_models(self, app_name: str) -> Any:
        """Names of the models that answer an application."""
        return self._admin("get_linked_models", app_name=app_name)

    # Models

    def build_and_deploy_model(
        self,
        name: str,
        version: str | int,
        input_type: str,
        model_data_path: Path | str,
        labels: Sequence[str] = (),
        num_replicas: int = 1,
        batch_size: int = BATCH_SIZE_ADAPTIVE,
    ) -> None:
        """Publish a deployable model and deploy it."""
        image = self.build_model(name, version, model_data_path)
        self.deploy_model(name, version, input_type, image, labels, num_replicas, batch_size)

    def build_model(self, name: str, version: str | int, model_data_path: Path | str) -> str:
        """Put a deployable model where the cluster's containers can read it; returns its `image`."""
        self._check_connected()
        _check_name(name, str(version))
        return self.cm.publish_model(name, str(version), Path(model_data_path))

    def deploy_model(
        self,
        name: str,
        version: str | int,
        input_type: str,
        image: str,
        labels: Sequence[str] = (),
        num_replicas: int = 1,
        batch_size: int = BATCH_SIZE_ADAPTIVE,
        ready_timeout_s: float = READY_TIMEOUT_S,
    ) -> None:
        """Start `num_replicas` containers, wait until they are connected, and make this version the current one."""
        self._check_connected()
        _check_name(name, str(version))
        if self.get_model_info(name, version) is not None:
            raise LepaError("conflict", f"model with name '{name}' and version '{version}' already exists")
        self.cm.deploy_model(name, str(version), input_type, image, num_replicas)
        try:
            self.wait_for_replicas(name, version, num_replicas, ready_timeout_s)
        except LepaError:
            self.cm.stop_models({name: [str(version)]})
            raise
        self.register_model(name, version, input_type, image, labels, batch_size)

    def register_model(
        self,
        name: str,
        version: str | int,
        input_type: str,
        image: str = NO_CONTAINER,
        labels: Sequence[str] = (),
        batch_size: int = BATCH_SIZE_ADAPTIVE,
        endpoint: str = "",
    ) -> None:
        """Make a version known, and current, whose containers are started by somebody else. endpoint: of an HTTP server
        that answers for it in OpenAI's API, `host:port,...` or `service:NAME`."""
        self._admin(
            "add_model",
            model_name=name,
            model_version=str(version),
            input_type=input_type,
            labels=list(labels),
            container_name=image,
            model_data_path="DEPRECATED",
            batch_size=batch_size,
            endpoint=endpoint,
        )

    def wait_for_replicas(self, name: str, version: str | int, count: int, timeout_s: float = READY_TIMEOUT_S) -> None:
        """Return when that many replicas of a version are connected to every query frontend that answers. Raises
        LepaError: with the containers' last words when they end instead, `timeout` when they do not come."""
        key = f"{name}:{version}"

        def connected() -> bool:
            if trouble := self.cm.trouble(name, str(version)):
                raise LepaError("internal", f"model {key} did not come up: {trouble}")
            return self._connected_replicas(key) >= count

        self._wait_until(f"{count} replicas of {key} are connected", connected, timeout_s)

    def _connected_replicas(self, key: str) -> int:
        """Those of the query frontend that has the fewest, of all that answer."""
        found = [
            sum(row["replicas"] for row in top["models"] if f"{row['model']}:{row['version']}" == key)
            for top in self.tops().values()
        ]
        return min(found, default=0)

    def set_model_version(self, name: str, version: str | int, num_replicas: int | None = None) -> None:
        """Make a registered version the current one."""
        self._admin("set_model_version", model_name=name, model_version=str(version))
        if num_replicas is not None:
            self.set_num_replicas(name, num_replicas, version)

    def roll_back_model(self, name: str) -> None:
        """Make the version current that was so before."""
        self._admin("roll_back_model", model_name=name)

    def get_current_model_version(self, name: str) -> str:
        """The version that answers now."""
        for model in self.get_all_models(verbose=True):
            if model["model_name"] == name and model["is_current_version"]:
                return str(model["model_version"])
        raise not_found(f'there is no model "{name}"; `lepa model list` lists them')

    def get_num_replicas(self, name: str, version: str | int | None = None) -> int:
        """Containers of a version (of the current one) that are meant to run."""
        self._check_connected()
        return self.cm.get_num_replicas(name, str(version or self.get_current_model_version(name)))

    def set_num_replicas(self, name: str, num_replicas: int, version: str | int | None = None) -> None:
        """Start or stop containers of a version (of the current one)."""
        wanted = str(version or self.get_current_model_version(name))
        model = self.get_model_info(name, wanted)
        if model is None:
            raise not_found(f"Cannot add container for non-registered model {name}:{wanted}")
        if model["container_name"] == NO_CONTAINER:
            raise invalid(f"Cannot resize the replica set for containerless model {name}:{wanted}")
        self.cm.set_num_replicas(name, wanted, model["input_type"], model["container_name"], num_replicas)

    def set_autoscale(self, name: str, **settings: Any) -> None:
        """Let the replicas of a model follow its load; settings are those of `autoscale.Autoscale`, such as
        `replicas_min=0`. Queries for a model that has gone to zero wait for it, as long as their objective allows."""
        self._admin("set_autoscale", model_name=name, autoscale=settings)
        self.cm.ensure_autoscaler()

    def stop_autoscale(self, name: str) -> None:
        """Let the replicas of a model stay as many as they are."""
        self._admin("set_autoscale", model_name=name, autoscale=None)

    def set_batching(
        self, name: str, version: str | int = "", policy: str = "aimd", size: int = 0, wait_us: int = 0
    ) -> None:
        """Let the batches of a version (of the current one) be made in another way, see `batch_sizes`, from now on.
        size: of policy `fixed`. wait_us: how long a batch that is not full waits for more."""
        batching = {"policy": policy, "size": size, "wait_us": wait_us}
        self._admin("set_batching", model_name=name, model_version=str(version), batching=batching)

    def get_all_models(self, verbose: bool = False) -> Any:
        """`name:version` of the models, or all about them."""
        return self._admin("get_all_models", verbose=verbose)

    def get_model_info(self, name: str, version: str | int) -> Any:
        """All about one version, None when there is none."""
        return self._admin("get_model", model_name=name, model_version=str(version)) or None

    def get_all_model_replicas(self, verbose: bool = False) -> Any:
        """`name:version:replica` of the connected replicas, or all about them."""
        return self._admin("get_all_containers", verbose=verbose)

    def get_model_replica_info(self, name: str, version: str | int, replica_id: int) -> Any:
        """All about one connected replica, None when there is none."""
        fields = {"model_name": name, "model_version": str(version), "replica_id": replica_id}
        return self._admin("get_container", **fields) or None

    def stop_models(self, model_names: Sequence[str]) -> None:
        """Stop and unregister every version of some models."""
        self._stop_versions(lambda model: model["model_name"] in model_names)

    def stop_versioned_models(self, versions: dict[str, Sequence[str]]) -> None:
        """Stop and unregister some versions, by model name."""
        self._stop_versions(lambda model: model["model_version"] in map(str, versions.get(model["model_name"], ())))

    def stop_inactive_model_versions(self, model_names: Sequence[str]) -> None:
        """Stop and unregister the versions of some models that are not current."""
        self._stop_versions(lambda model: model["model_name"] in model_names and not model["is_current_version"])

    def stop_all_model_containers(self) -> None:
        """Stop and unregister every model."""
        self._stop_versions(lambda model: True)
        self.cm.stop_all_model_containers()

    def _stop_versions(self, chosen: Callable[[Any], bool]) -> None:
        models = [model for model in self.get_all_models(verbose=True) if chosen(model)]
        versions: dict[str, list[str]] = {}
        for model in models:
            versions.setdefault(model["model_name"], []).append(model["model_version"])
        self.cm.stop_models(versions)
        for model in models:
            fields = {"model_name": model["model_name"], "model_version": model["model_version"]}
            self._admin("delete_versioned_model", **fields)

    # Asking

    def predict(self, app_name: str, value: Any, version: str | int = "", uid: int | None = None) -> Any:
        """Ask an application about one input; the decoded answer. uid: the user who asks. Where no frontend answers
        the next one is asked."""
        body = {"input": value, **({"version": str(version)} if version != "" else {})}
        body |= {} if uid is None else {"uid": uid}
        return self._ask(f"/{app_name}/predict", body, again=True)

    def update(self, app_name: str, value: Any, label: float | str, uid: int = 0) -> bool:
        """Tell an application what the right answer to an input was; True when its policy could learn from it."""
        body = {"uid": uid, "input": value, "label": label}
        return str(self._ask(f"/{app_name}/update", body, again=False)).endswith("1")

    def _ask(self, path: str, body: Any, *, again: bool) -> Any:
        """The answer of a query frontend: of the first that gives one, looked for once more where none does.

        again: another may be asked although this one may have been reached.
        """
        self._check_connected()
        tried: set[Address] = set()
        failure = not_found("no query frontend is known")
        for _ in range(LOOK_UPS):
            for address in self.cm.get_query_addrs():
                if address in tried:
                    continue
                tried.add(address)
                try:
                    return call(address, "POST", f"{self.cm.get_query_path()}{path}", body)
                except LepaError as error:
                    if error.code != "timeout" or not (again or error.facts.get("unreached")):
                        raise
                    self.cm.query_addr_lost(address)
                    failure = error
        raise failure

    def get_query_addr(self) -> str:
        """host:port of the query frontend."""
        self._check_connected()
        return str(self.cm.get_query_addr())

    def get_predict_url(self, app_name: str) -> str:
        """Where an application is asked."""
        return f"http://{self.get_query_addr()}{self.cm.get_query_path()}/{app_name}/predict"

    def get_metric_addr(self) -> str:
        """host:port where metrics are read."""
        self._check_connected()
        return str(self.cm.get_metric_addr())

    def inspect_instance(self) -> Any:
        """All metrics of the query frontend."""
        self._check_connected()
        return call(self.cm.get_metric_addr(), "GET", "/metrics")

    def tops(self) -> dict[str, Any]:
        """What applications and models do now, by the address of each query frontend that answers: the rows behind
        `lepa model top`."""
        self._check_connected()
        return tops(self.cm)

    def get_clipper_logs(self, logging_dir: Path | str = "clipper_logs/") -> list[Path]:
        """Write the logs of every part into a directory; returns the files."""
        self._check_connected()
        return self.cm.get_logs(Path(logging_dir))

    def _admin(self, verb: str, **fields: Any) -> Any:
        self._check_connected()
        return call(self.cm.get_admin_addr(), "POST", f"/admin/{verb}", fields)

    def _check_connected(self) -> None:
        if not self._connected:
            raise invalid("not connected to a cluster: call connect() or start_clipper() first")

    def _wait_until(self, what: str, done: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
        give_up = time.monotonic() + timeout_s
        while not done():
            if time.monotonic() > give_up:
                raise LepaError("timeout", f"waited {timeout_s:.0f} s until {what}; look at get_clipper_logs()")
            time.sleep(POLL_S)


def tops(manager: ContainerManager) -> dict[str, Any]:
    """`GET /top` of every query frontend that answers, by address: one may be on its way to another place. Raises
    LepaError where none is known."""
    found = {}
    for address in manager.get_frontend_addrs():
        try:
            found[str(address)] = call(address, "GET", "/top")
        except LepaError:
            manager.query_addr_lost(address)
    return found


def _check_name(name: str, version: str) -> None:
    for what, text in (("name", name), ("version", version)):
        if not _NAME.fullmatch(text):
            raise invalid(
                f"Invalid value: {text}: a model {what} must be lower case letters, digits, '-' and '.', "
                "and start and end with a letter or digit"
            )
