"""The ingress block of the configuration -> the settings of its process, and the names by which DNS finds it."""

from lepa.agent.config import Config, seconds
from lepa.catalog.table import Instance, ServiceTable
from lepa.ingress.fabio_tags import read_tags
from lepa.ingress.settings import IngressSettings

REGISTERING = "register="


def ingress_settings(config: Config) -> IngressSettings:
    """Settings of this agent's ingress. Raises LepaError(invalid)."""
    block = config.ingress
    settings = IngressSettings(
        address=block.address or config.bind_addr,
        ui_address=block.ui_address or block.address or config.bind_addr,
        http=block.http,
        https=block.https,
        ui=block.ui,
        sni=block.sni,
        tcp=block.tcp,
        dynamic=block.dynamic,
        certificates=block.certificates,
        redirect_https=block.redirect_https,
        tag_prefix=block.tag_prefix,
        matcher=block.matcher,
        strategy=block.strategy,
        no_route_status=block.no_route_status,
        proxy_protocol=block.proxy_protocol,
        entrypoints=block.entrypoints,
        auth=block.auth,
        access_log=block.access_log,
        access_format=block.access_format,
        close_on_leave=block.close_on_leave,
        connect_s=seconds(block.connect_timeout, "ingress.connect_timeout"),
        head_s=seconds(block.head_timeout, "ingress.head_timeout"),
        idle_s=seconds(block.idle_timeout, "ingress.idle_timeout"),
        response_s=seconds(block.response_timeout, "ingress.response_timeout"),
        drain_s=seconds(block.drain_timeout, "ingress.drain_timeout"),
        connections_max=block.connections_max,
    )
    settings.rules()
    return settings


def announced(table: ServiceTable, config: Config, address: str) -> ServiceTable:
    """The catalog with this agent's ingress as an instance of its names, and of those that tags register with it.

    A name that the catalog has already is left to it. address: where others reach this machine.
    """
    wanted = {*config.ingress.names, *_registered(table, config.ingress.tag_prefix)}
    for name in sorted(wanted):
        if not table.service("default", name).all:
            own = Instance(
                id=f"_ingress-{config.name}-{name}",
                service=name,
                node_name=config.name,
                datacenter=config.datacenter,
                region=config.region,
                address=address,
                port=config.ingress.http,
            )
            table = table.with_service("default", name, [own], table.index)
    return table


def _registered(table: ServiceTable, prefix: str) -> set[str]:
    found = set()
    for instance in table.instances():
        tags = tuple(tag for tag in instance.tags if REGISTERING in tag)
        if tags:
            specs = read_tags(instance.service, tags, prefix, instance.datacenter).specs
            found |= {spec.options.register for spec in specs if spec.options.register}
    return found
