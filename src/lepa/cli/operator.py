"""Small commands of operators: metrics, plugins, a client's servers, checking a configuration, `setup`."""

from pathlib import Path

import click

from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json, pairs, pretty_json, table
from lepa.cli.session import Session, Shape, api, segment, shaped
from lepa.model.errors import invalid, not_found

NO_SECRETS_STORE = (
    "templates read secrets from lepa's own variables (`lepa var`), and services are found by name without {name}; "
    "there is nothing to set up"
)


@command()
@flag("pretty", "Indented.")
@option("format", "prometheus, or json.", default="json", metavar="format")
@shaped
@api
def metrics(session: Session, shape: Shape, pretty: bool, format: str) -> None:
    """Print the figures of the asked agent."""
    if format not in ("json", "prometheus", "pretty"):
        raise invalid(f'-format is json or prometheus, not "{format}"')
    if format == "prometheus":
        session.out.write(session.nomad.raw("GET", "/v1/metrics", {"format": "prometheus"}))
        return
    if shape:
        session.out.line(shape.render(session.nomad.get("/v1/metrics").value))
        return
    if pretty or format == "pretty":
        session.out.line(pretty_json(session.nomad.get("/v1/metrics").value))
        return
    session.out.line(session.nomad.raw("GET", "/v1/metrics").decode())


@command()
@argument("plugin", required=False, shown="[plugin]")
@option("type", "Kind of plugins: csi.", default="csi", metavar="type")
@flag("short", "Accepted.", hidden=True)
@flag("verbose", "Accepted.", hidden=True)
@shaped
@api
def plugin_status(session: Session, plugin: str | None, shape: Shape, type: str, **others: bool) -> None:
    """List storage plugins, or show one."""
    if plugin is not None:
        answer = session.nomad.find(f"/v1/plugin/{segment(type)}/{segment(plugin)}")
        if answer is None:
            raise not_found(f'there is no {type} plugin "{plugin}"; `lepa plugin status` lists them')
        session.out.line(shape.render(answer.value) if shape else pairs(_plugin(answer.value)))
        return
    listed = session.nomad.get("/v1/plugins", {"type": type}).value or []
    if shape:
        session.out.line(shape.render(listed))
        return
    if not listed:
        session.out.line("No CSI plugins")
        return
    rows = [tuple(value for _, value in _plugin(each)) for each in listed]
    session.out.line(table(("ID", "Provider", "Controllers Healthy/Expected", "Nodes Healthy/Expected"), rows))


def _plugin(each: Json) -> list[tuple[str, object]]:
    return [
        ("ID", each["ID"]),
        ("Provider", each.get("Provider", "")),
        ("Controllers Healthy/Expected", f"{each.get('ControllersHealthy', 0)}/{each.get('ControllersExpected', 0)}"),
        ("Nodes Healthy/Expected", f"{each.get('NodesHealthy', 0)}/{each.get('NodesExpected', 0)}"),
    ]


@command()
@argument("addresses", many=True, required=False, shown="[address] ...")
@flag("servers", "Print the servers that the asked agent's client knows.")
@flag("update-servers", "Tell it others.")
@api
def node_config(session: Session, addresses: tuple[str, ...], servers: bool, update_servers: bool) -> None:
    """Look at, or change, the servers of the asked agent's client."""
    if servers == update_servers:
        raise invalid("give either -servers or -update-servers")
    if servers:
        session.out.line("\n".join(session.nomad.get("/v1/agent/servers").value or []))
        return
    if not addresses:
        raise invalid("-update-servers needs addresses")
    session.nomad.put("/v1/agent/servers", None, {"address": addresses[0]})


@command()
@argument("paths", many=True, shown="<path> ...")
def config_validate(paths: tuple[str, ...]) -> int:
    """Check configuration files of an agent, or directories of them; later ones win."""
    from lepa.agent.config_loader import load

    loaded = load([Path(path) for path in paths], {})
    for warning in loaded.warnings:
        click.echo(f"Warning: {warning}", err=True)
    click.echo("Configuration is valid!")
    return 0


@command()
@flag("destroy", "Accepted.", hidden=True)
@flag("y", "Accepted.", hidden=True)
@option("jwks-url", "Accepted.", metavar="url", hidden=True)
@option("jwks-ca-file", "Accepted.", metavar="path", hidden=True)
def setup_consul(**others: object) -> int:
    """Say that no Consul has to be set up: names are served by the agent itself."""
    click.echo(NO_SECRETS_STORE.format(name="Consul"))
    return 0


@command()
@flag("destroy", "Accepted.", hidden=True)
@flag("y", "Accepted.", hidden=True)
@flag("check", "Accepted.", hidden=True)
@flag("json", "Accepted.", hidden=True)
@flag("verbose", "Accepted.", hidden=True)
@option("jwks-url", "Accepted.", metavar="url", hidden=True)
@option("jwks-ca-file", "Accepted.", metavar="path", hidden=True)
@option("kv-path", "Accepted.", metavar="path", hidden=True)
@option("t", "Accepted.", metavar="template", hidden=True)
def setup_vault(**others: object) -> int:
    """Say that no Vault has to be set up: variables hold secrets, encrypted at rest."""
    click.echo(NO_SECRETS_STORE.format(name="Vault"))
    return 0
