"""`lepa app …`: what answers predictions, within which objective, and by which models."""

from collections.abc import Callable, Sequence
from typing import Any

from lepa.cli.flags import argument, command, option, repeated
from lepa.cli.output import Json, table
from lepa.cli.serving import DEFAULT_SLO, Cluster, serving, slo_micros
from lepa.cli.session import Shape, shaped
from lepa.kit.durations import MICROSECOND, format_duration
from lepa.model.errors import invalid


@command()
@argument("name")
@option("input-type", "bytes, integers, floats, doubles or strings.", default="doubles", metavar="type")
@option("default-output", "The answer where no model answers in time.", default="-1", metavar="text")
@option("slo", "Within this time every request is answered.", default=DEFAULT_SLO, metavar="duration")
@serving
def app_register(cluster: Cluster, name: str, input_type: str, default_output: str, slo: str) -> None:
    """Make an application answer `POST /<name>/predict`. The cluster is started where it does not run."""
    objective = slo_micros(slo)
    connection = cluster.start()
    connection.register_application(name, input_type, default_output, objective)
    cluster.session.out.line(f"Application {name} registered: POST {connection.get_predict_url(name)}")


@command()
@shaped
@serving
def app_list(cluster: Cluster, shape: Shape) -> None:
    """List applications with their objective and the models that answer them."""
    found: list[Json] = cluster.running().get_all_apps(verbose=True)
    if shape:
        cluster.session.out.line(shape.render(found))
        return
    rows = [
        (
            app["name"],
            app["input_type"],
            format_duration(app["latency_slo_micros"] * MICROSECOND),
            app["default_output"],
            ",".join(app.get("linked_models") or ()),
        )
        for app in sorted(found, key=lambda app: str(app["name"]))
    ]
    header = ("Name", "Input Type", "SLO", "Default Output", "Models")
    cluster.session.out.line(table(header, rows) if rows else "No applications registered")


@command()
@argument("application", shown="<app>")
@argument("model")
@serving
def app_link(cluster: Cluster, application: str, model: str) -> None:
    """Let a model answer an application."""
    cluster.running().link_model_to_app(application, model)
    cluster.session.out.line(f"Model {model} answers application {application}")


@command()
@argument("application", shown="<app>")
@argument("model")
@serving
def app_unlink(cluster: Cluster, application: str, model: str) -> None:
    """Let a model no longer answer an application."""
    cluster.running().unlink_model_from_app(application, model)
    cluster.session.out.line(f"Model {model} no longer answers application {application}")


@command()
@argument("application", shown="<app>")
@argument("policy")
@repeated("option", "An option of the policy; may be given several times.", metavar="key=value")
@serving
def app_policy(cluster: Cluster, application: str, policy: str, option: Sequence[str]) -> None:
    """Say how the models of an application answer it: which of them are asked, and how their outputs become one.

    Policies: single, split, canary, majority, weighted, and those that learn from feedback: epsilon-greedy, thompson,
    exp3, exp4. Options that are not given have their defaults. An arm is written `model:version`, `model` or `version`:
    `-option canary=2 -option share=0.05`, `-option weights=2=9,1=1`, `-option shadow=2,other`.
    """
    cluster.running().set_policy(application, policy, _policy_options(option))
    cluster.session.out.line(f"Application {application} is answered by policy {policy}")


def _policy_options(pairs: Sequence[str]) -> Json:
    """What `-option` says, in the types of `selection.PolicyOptions`."""
    import msgspec

    from lepa.serving.selection import PolicyOptions

    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals:
            raise invalid(f'-option is written KEY=VALUE, not "{pair}"')
        values[key] = _OPTION_FORMS.get(key, str)(text)
    try:
        options: Json = msgspec.to_builtins(msgspec.convert(values, PolicyOptions, strict=False))
    except msgspec.ValidationError as error:
        known = ", ".join(PolicyOptions.__struct_fields__)
        raise invalid(f"-option: {error}; known are {known}") from error
    return options


def _shares(text: str) -> dict[str, str]:
    """`arm=weight,…`."""
    return {arm: weight for arm, _, weight in (part.partition("=") for part in text.split(","))}


_OPTION_FORMS: dict[str, Callable[[str], Any]] = {"weights": _shares, "shadow": lambda text: text.split(",")}


@command()
@argument("application", shown="<app>")
@serving
def app_delete(cluster: Cluster, application: str) -> None:
    """Take an application away; its models stay."""
    cluster.running().unregister_application(application)
    cluster.session.out.line(f"Application {application} deleted")
