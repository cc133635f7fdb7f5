"""Pure: applications, models, versions and links: what the management frontend keeps and the query frontends follow.

A `Registry` is one immutable value with a revision. Every function here takes a registry and returns the next one, or
raises LepaError with the sentence that Clipper's management frontend would have answered. The names of JSON keys are
Clipper's. Deleting an application deletes its links (Clipper left them behind). How many models an application may be
linked with is its selection policy's to say.
"""

from collections.abc import Iterable, Sequence
from itertools import count
from typing import Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from lepa.model.errors import LepaError, conflict, invalid, not_found
from lepa.serving.addresses import parse_address
from lepa.serving.autoscale import Autoscale, check_autoscale
from lepa.serving.batch_sizes import FIXED, Batching, check_batching
from lepa.serving.inputs import input_type
from lepa.serving.selection import PolicyOptions, check_options, selection_policy

BATCH_SIZE_ADAPTIVE = -1
"""The `batch_size` that leaves the size of batches to the adaptive policy."""
RECORDS_MAX = 10_000
"""Applications, and model versions, that one registry holds."""
LATENCY_SLO_MICROS_MAX = 2**31 - 1


class Application(Struct, frozen=True):
    """A REST endpoint with a latency objective and the output it falls back to. policy: how its models answer."""

    name: str
    input_type: str
    default_output: str
    latency_slo_micros: int
    linked_models: tuple[str, ...] = ()
    policy: str = "DefaultOutputSelectionPolicy"
    policy_options: PolicyOptions = PolicyOptions()


class ModelVersion(Struct, frozen=True):
    """One version of a model. container_name: what its containers run (an image, a model directory).

    created: the registry revision at which it was registered; a new registration of the same version has another one.
    endpoint: where an HTTP server answers for it that speaks OpenAI's API: `host:port,...` or `service:NAME`.
    batching: how its batches are made; None: as `batch_size` says, which is all that Clipper knew.
    """

    model_name: str
    model_version: str
    input_type: str
    labels: tuple[str, ...] = ()
    container_name: str = ""
    model_data_path: str = ""
    batch_size: int = BATCH_SIZE_ADAPTIVE
    created: int = 0
    endpoint: str = ""
    batching: Batching | None = None

    @property
    def ways(self) -> Batching:
        """How its batches are made."""
        if self.batching is not None:
            return self.batching
        return Batching() if self.batch_size == BATCH_SIZE_ADAPTIVE else Batching(FIXED, self.batch_size)

    @property
    def key(self) -> str:
        """`name:version`."""
        return f"{self.model_name}:{self.model_version}"


class Container(Struct, frozen=True, omit_defaults=True):
    """A connected replica of a model version, as a query frontend reports it. instance: what it calls itself at every
    frontend, "" where it does not say."""

    model_id: str
    model_name: str
    model_version: str
    model_replica_id: int
    input_type: str
    instance: str = ""


class Registry(Struct, frozen=True):
    """Everything that is registered, at one revision. models by `name:version`.

    By model name: current: the version that answers; previous: the one that did before, while it is registered;
    scaling: how far the replicas of the current version follow the load.
    """

    revision: int = 0
    applications: dict[str, Application] = {}
    models: dict[str, ModelVersion] = {}
    current: dict[str, str] = {}
    previous: dict[str, str] = {}
    scaling: dict[str, Autoscale] = {}


def add_application(registry: Registry, application: Application) -> Registry:
    """Register an application without links."""
    if application.name in registry.applications:
        raise conflict(f"application '{application.name}' already exists")
    if not application.name or "/" in application.name:
        raise invalid(f"'{application.name}' cannot name an application: it must be one part of a URL path")
    if not 0 < application.latency_slo_micros <= LATENCY_SLO_MICROS_MAX:
        raise invalid(f"latency_slo_micros must be in 1..{LATENCY_SLO_MICROS_MAX}")
    _check_room(registry.applications, "applications")
    _check_policy(application)
    known = replace(application, input_type=input_type(application.input_type).name, linked_models=())
    return _with_application(registry, known)


def set_policy(registry: Registry, name: str, policy: str, options: PolicyOptions) -> Registry:
    """Let the models of an application answer in another way: move a share, name a canary, begin to learn."""
    app = registry.applications.get(name)
    if app is None:
        raise not_found(f"Application '{name}' does not exist")
    changed = replace(app, policy=policy, policy_options=options)
    _check_policy(changed)
    return _with_application(registry, changed)


def delete_application(registry: Registry, name: str) -> Registry:
    """Remove an application and its links."""
    if name not in registry.applications:
        raise not_found(f"Application '{name}' does not exist")
    rest = {key: value for key, value in registry.applications.items() if key != name}
    return replace(registry, revision=registry.revision + 1, applications=rest)


def add_model(registry: Registry, model: ModelVersion) -> Registry:
    """Register a version of a model and make it the current one."""
    if model.batch_size != BATCH_SIZE_ADAPTIVE and model.batch_size < 1:
        raise invalid("The batch size must be positive or DEFAULT_BATCH_SIZE, which is -1")
    for what, text in (
        ("model name", model.model_name),
        ("model version", model.model_version),
        *(("label", label) for label in model.labels),
    ):
        if "," in text or ":" in text:
            raise invalid(f"Invalid {what} supplied: {text}. Contains one of: ',', ':'")
    if not model.model_name or not model.model_version:
        raise invalid("a model needs a name and a version")
    if model.key in registry.models:
        raise conflict(f"model with name '{model.model_name}' and version '{model.model_version}' already exists")
    _check_room(registry.models, "models")
    if model.endpoint and not model.endpoint.startswith("service:"):
        for text in model.endpoint.split(","):
            parse_address(text)
    revision = registry.revision + 1
    known = replace(model, input_type=input_type(model.input_type).name, created=revision)
    _check_links_take(registry, known.model_name, known.input_type)
    return replace(
        registry,
        revision=revision,
        models={**registry.models, known.key: known},
        current={**registry.current, known.model_name: known.model_version},
        previous=_previous(registry, known.model_name),
    )


def delete_model(registry: Registry, name: str, version: str) -> Registry:
    """Remove one version. When it was the current one, the newest version that is left takes its place."""
    if f"{name}:{version}" not in registry.models:
        raise not_found(f"model with name '{name}' and version '{version}' does not exist")
    models = {key: value for key, value in registry.models.items() if key != f"{name}:{version}"}
    current = dict(registry.current)
    if current.get(name) == version:
        left = [model for model in models.values() if model.model_name == name]
        if left:
            current[name] = max(left, key=lambda model: model.created).model_version
        else:
            del current[name]
    scaling = {key: value for key, value in registry.scaling.items() if key in current}
    previous = {key: value for key, value in registry.previous.items() if (key, value) != (name, version)}
    return replace(
        registry,
        revision=registry.revision + 1,
        models=models,
        current=current,
        previous=previous,
        scaling=scaling,
    )


def set_model_version(registry: Registry, name: str, version: str) -> Registry:
    """Make a registered version the current one: the way forward and the way back."""
    if name not in registry.current:
        raise not_found(f"Cannot set version for nonexistent model '{name}'")
    model = registry.models.get(f"{name}:{version}")
    if model is None:
        raise not_found(f"Cannot set non-existent version '{version}' for model with name '{name}'")
    _check_links_take(registry, name, model.input_type)
    current = {**registry.current, name: version}
    previous = registry.previous if registry.current[name] == version else _previous(registry, name)
    return replace(registry, revision=registry.revision + 1, current=current, previous=previous)


def roll_back(registry: Registry, name: str) -> Registry:
    """Make the version current that was so before; done twice, it is undone."""
    if name not in registry.current:
        raise not_found(f"Cannot set version for nonexistent model '{name}'")
    if name not in registry.previous:
        raise conflict(f"Model '{name}' has no version to go back to: the one before {registry.current[name]} is gone")
    return set_model_version(registry, name, registry.previous[name])


def set_autoscale(registry: Registry, name: str, settings: Autoscale | None) -> Registry:
    """Let the replicas of a model follow its load, or, with None, stay as many as they are."""
    if name not in registry.current:
        raise not_found(f"No model with name '{name}' exists.")
    rest = {key: value for key, value in registry.scaling.items() if key != name}
    if settings is not None:
        check_autoscale(settings)
        rest[name] = settings
    return replace(registry, revision=registry.revision + 1, scaling=rest)


def set_batching(registry: Registry, name: str, version: str, batching: Batching) -> Registry:
    """Let the batches of a version (of the current one where it is "") be made in another way."""
    model = registry.models.get(f"{name}:{version or registry.current.get(name, '')}")
    if model is None:
        raise not_found(f"model with name '{name}' and version '{version}' does not exist")
    check_batching(batching)
    models = {**registry.models, model.key: replace(model, batching=batching)}
    return replace(registry, revision=registry.revision + 1, models=models)


def add_links(registry: Registry, application: str, models: tuple[str, ...]) -> Registry:
    """Let an application be answered by a model, or by several where its policy uses several."""
    app = registry.applications.get(application)
    if app is None:
        raise not_found(f"No app with name '{application}' exists.")
    for name in models:
        _check_linkable(registry, app, name)
    if not models:
        raise invalid(f"Please provide the name of the model that you want to link to the application '{application}'")
    links_max = selection_policy(app.policy).links_max
    if links_max == 1 and len(models) > 1:
        raise invalid(
            f"Applications must be linked with at most one model. Attempted to add links to {len(models)} models."
        )
    for name in models:
        if name in app.linked_models:
            raise conflict(f"The model with name '{name}' is already linked to '{application}'")
    links = (*app.linked_models, *dict.fromkeys(models))
    if links_max == 1 and app.linked_models:
        raise conflict(f"A model with name {app.linked_models[0]} is already linked to '{application}'.")
    if len(links) > links_max:
        raise invalid(f"policy {app.policy} takes at most {links_max} models; '{application}' would have {len(links)}")
    return _with_application(registry, replace(app, linked_models=links))


def delete_links(registry: Registry, application: str, models: tuple[str, ...]) -> Registry:
    """Take links away."""
    app = registry.applications.get(application)
    if app is None:
        raise not_found(f"No app with name {application} exists.")
    for name in models:
        if name not in app.linked_models:
            raise not_found(f"Cannot remove nonexistent link between app {application} and model {name}")
    left = tuple(name for name in app.linked_models if name not in models)
    return _with_application(registry, replace(app, linked_models=left))


def distinct_containers(reports: Iterable[Sequence[Container]]) -> list[Container]:
    """The replicas behind what several query frontends report: one that several name is one. Frontends count replicas
    each for itself, so one whose number is taken gets the next that is free. What it calls itself is nobody else's."""
    found: list[Container] = []
    instances: set[str] = set()
    numbers: dict[str, set[int]] = {}
    for container in (container for report in reports for container in report):
        if container.instance and container.instance in instances:
            continue
        instances.add(container.instance)
        taken = numbers.setdefault(container.model_id, set())
        number = container.model_replica_id
        if number in taken:
            number = next(free for free in count() if free not in taken)
        taken.add(number)
        found.append(replace(container, model_replica_id=number, instance=""))
    return found


def application_view(application: Application) -> dict[str, Any]:
    """An application as Clipper's REST shows it; one with a policy of its own shows that too."""
    plain = application.policy == "DefaultOutputSelectionPolicy" and application.policy_options == PolicyOptions()
    policy = {} if plain else {"policy": application.policy, "policy_options": to_builtins(application.policy_options)}
    return {
        "name": application.name,
        "input_type": application.input_type,
        "default_output": application.default_output,
        "latency_slo_micros": application.latency_slo_micros,
        "linked_models": list(application.linked_models),
        **policy,
    }


def model_view(registry: Registry, model: ModelVersion) -> dict[str, Any]:
    """A model version as Clipper's REST shows it; without labels it shows one empty label."""
    return {
        "model_name": model.model_name,
        "model_version": model.model_version,
        "input_type": model.input_type,
        "labels": list(model.labels) or [""],
        "container_name": model.container_name,
        "model_data_path": model.model_data_path,
        "is_current_version": registry.current.get(model.model_name) == model.model_version,
        **({"endpoint": model.endpoint} if model.endpoint else {}),
        **({"batching": to_builtins(model.batching)} if model.batching else {}),
    }


def _with_application(registry: Registry, application: Application) -> Registry:
    applications = {**registry.applications, application.name: application}
    return replace(registry, revision=registry.revision + 1, applications=applications)


def _previous(registry: Registry, name: str) -> dict[str, str]:
    """What comes before the version that is about to become current."""
    return {**registry.previous, name: registry.current[name]} if name in registry.current else registry.previous


def _check_policy(application: Application) -> None:
    links_max = selection_policy(application.policy).links_max
    check_options(application.policy_options)
    if len(application.linked_models) > links_max:
        raise conflict(
            f"'{application.name}' is linked to {len(application.linked_models)} models; "
            f"policy {application.policy} takes {links_max}"
        )


def _check_room(records: dict[str, Any], noun: str) -> None:
    if len(records) >= RECORDS_MAX:
        raise LepaError("conflict", f"the registry is full: it holds {RECORDS_MAX} {noun}; delete some first")


def _check_links_take(registry: Registry, name: str, kind: str) -> None:
    """A model that an application uses cannot change its input type."""
    for app in registry.applications.values():
        if name in app.linked_models and app.input_type != kind:
            raise conflict(
                f"Model with name '{name}' is already linked to app '{app.name}' using input type "
                f"'{app.input_type}'. The input type you provided for a new version of the model, "
                f"'{kind}', is not compatible."
            )


def _check_linkable(registry: Registry, app: Application, name: str) -> None:
    version = registry.current.get(name)
    if version is None:
        raise not_found(f"No model with name '{name}' exists.")
    kind = registry.models[f"{name}:{version}"].input_type
    if kind != app.input_type:
        raise conflict(
            f"Model with name '{name}' has incompatible input_type '{kind}'. "
            f"Requested app to link to has input_type '{app.input_type}'."
        )
