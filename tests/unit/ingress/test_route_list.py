import pytest

from lepa.catalog.table import Instance, ServiceTable
from lepa.ingress.fabio_tags import read_tags
from lepa.ingress.route_list import listed, raw, written_options
from lepa.ingress.routes import RouteTable


def table(*tags: str) -> RouteTable:
    rows = [
        Instance(id=f"i{n}", service="web", address=f"10.0.0.{n}", port=80, tags=tags, healthy=n != 3)
        for n in (1, 2, 3)
    ]
    return RouteTable.build(ServiceTable.build(rows, [], 1))


def test_entries_have_fabios_keys() -> None:
    first, _, third = listed(table("urlprefix-h/x strip=/x"))
    expected = {
        "service": "web",
        "host": "h",
        "path": "/x",
        "src": "h/x",
        "dst": "http://10.0.0.1:80/",
        "opts": "strip=/x",
        "weight": 0.5,
        "cmd": 'route add web h/x http://10.0.0.1:80/ opts "strip=/x"',
        "rate1": 0,
        "pct99": 0,
        "healthy": True,
        "instance": "i1",
    }
    assert expected.items() <= first.items()
    assert (third["healthy"], third["weight"]) == (False, 0)


def test_the_route_language() -> None:
    assert raw(table("urlprefix-:7000 proto=tcp", "urlprefix-/ weight=0.1")).splitlines() == [
        "route add web / http://10.0.0.1:80/ weight 0.1",
        "route add web / http://10.0.0.2:80/ weight 0.1",
        'route add web :7000 tcp://10.0.0.1:80 opts "proto=tcp"',
        'route add web :7000 tcp://10.0.0.2:80 opts "proto=tcp"',
    ]


@pytest.mark.parametrize(
    "words",
    [
        "proto=https tlsskipverify=true tlsservername=x",
        "strip=/a prepend=/b host=dst",
        "redirect=301,https://x$path register=fabio auth=staff",
        "allow=ip:10.0.0.0/8,ip:fd00::/8 deny=ip:10.0.0.1/32",
        "pxyproto=v2 onleave=keep pick=first",
        "proto=grpcs grpcservername=x",
    ],
)
def test_options_are_written_as_they_are_read(words: str) -> None:
    (spec,) = read_tags("web", (f"urlprefix-/ {words}",), "urlprefix-", "").specs
    assert written_options(spec.kind, spec.options) == words


def test_tls_names_and_grpc_are_written_too() -> None:
    assert "tcp://10.0.0.1:80" in raw(table("urlprefix-h/ proto=tcp+sni"))
    assert "grpc://10.0.0.1:80/" in raw(table("urlprefix-h/ proto=grpc"))
