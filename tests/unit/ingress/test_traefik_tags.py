import pytest

from lepa.ingress.route_spec import Kind, Options, Reading, Redirect, RouteSpec
from lepa.ingress.traefik_tags import read_tags

ENTRYPOINTS = {"web": "http", "websecure": "https", "mysql": "3306"}
ROUTER = "traefik.http.routers.r."


def read(*tags: str) -> Reading:
    return read_tags("whoami", tags, ENTRYPOINTS)


def specs(*tags: str) -> list[RouteSpec]:
    found = read(*tags)
    assert found.notices == ()
    return list(found.specs)


def test_a_router_with_host_and_path() -> None:
    assert specs("traefik.enable=true", f"{ROUTER}rule=Host(`a.b`) && PathPrefix(`/x`)") == [
        RouteSpec(host="a.b", path="/x")
    ]


def test_keys_are_read_without_regard_to_case() -> None:
    assert specs("Traefik.HTTP.routers.R.RULE=x") == []
    assert specs("traefik.HTTP.Routers.R.Rule=Host(`a.b`)") == [RouteSpec(host="a.b", path="/")]


def test_an_enabled_service_without_router_answers_to_its_name() -> None:
    assert specs("traefik.enable=true") == [RouteSpec(host="whoami", path="/")]


def test_a_disabled_service_and_one_without_tags_have_no_routes() -> None:
    assert specs("traefik.enable=false", f"{ROUTER}rule=Host(`a.b`)") == []
    assert specs("prometheus", "traefik") == []


@pytest.mark.parametrize(
    ("tags", "side"),
    [
        ((), ""),
        (("entrypoints=web",), "http"),
        (("entrypoints=websecure",), "https"),
        (("entrypoints=web,websecure",), ""),
        (("tls=true",), "https"),
        (("tls.certresolver=le",), "https"),
        (("entrypoints=web,websecure", "tls=true"), "https"),
    ],
)
def test_which_clients_a_router_is_for(tags: tuple[str, ...], side: str) -> None:
    (spec,) = specs(f"{ROUTER}rule=Host(`a.b`)", *(f"{ROUTER}{tag}" for tag in tags))
    assert spec.side == side


def test_the_services_port_scheme_and_host() -> None:
    (spec,) = specs(
        f"{ROUTER}rule=Host(`a.b`)",
        "traefik.http.services.s.loadbalancer.server.port=8080",
        "traefik.http.services.s.loadbalancer.server.scheme=https",
        "traefik.http.services.s.loadbalancer.passhostheader=false",
    )
    assert spec.options == Options(port=8080, tls=True, host="dst")


@pytest.mark.parametrize(
    ("tag", "options"),
    [
        ("stripprefix.prefixes=/x, /y", Options(strip=("/x", "/y"))),
        ("addprefix.prefix=/v1", Options(prepend="/v1")),
        ("redirectscheme.scheme=https", Options(redirect=Redirect(302, "https://$host$path"))),
        ("ipallowlist.sourcerange=10.0.0.0/8", Options(allow=("10.0.0.0/8",))),
        ("ipwhitelist.sourcerange=127.0.0.1/32", Options(allow=("127.0.0.1/32",))),
    ],
)
def test_middlewares(tag: str, options: Options) -> None:
    (spec,) = specs(f"{ROUTER}rule=Host(`a.b`)", f"{ROUTER}middlewares=m@nomad", f"traefik.http.middlewares.m.{tag}")
    assert spec.options == options


def test_a_permanent_redirect_to_another_port() -> None:
    (spec,) = specs(
        f"{ROUTER}rule=Host(`a.b`)",
        f"{ROUTER}middlewares=m",
        "traefik.http.middlewares.m.redirectscheme.scheme=https",
        "traefik.http.middlewares.m.redirectscheme.port=8443",
        "traefik.http.middlewares.m.redirectscheme.permanent=true",
    )
    assert spec.options.redirect == Redirect(301, "https://$host:8443$path")


def test_a_middleware_of_comfort_is_passed_over() -> None:
    found = read(f"{ROUTER}rule=Host(`a.b`)", f"{ROUTER}middlewares=m", "traefik.http.middlewares.m.compress=true")
    assert len(found.specs) == 1
    assert "no effect" in found.notices[0].problem


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ((f"{ROUTER}middlewares=m", "traefik.http.middlewares.m.basicauth.users=a:b"), "kind basicauth"),
        ((f"{ROUTER}middlewares=m", "traefik.http.middlewares.m.ipallowlist.sourcerange=x"), "malformed"),
        ((f"{ROUTER}middlewares=auth@file",), "not defined"),
        ((f"{ROUTER}entrypoints=mysql",), "HTTP port"),
        ((f"{ROUTER}service=other", "traefik.http.services.s.loadbalancer.server.port=1"), "not defined"),
    ],
)
def test_what_would_open_a_guarded_place_leaves_the_router_out(tags: tuple[str, ...], said: str) -> None:
    found = read(f"{ROUTER}rule=Host(`a.b`)", *tags)
    assert found.specs == ()
    assert said in found.notices[-1].problem


def test_one_bad_router_leaves_the_others() -> None:
    found = read(f"{ROUTER}rule=Method(`GET`)", "traefik.http.routers.s.rule=Host(`a.b`)")
    assert [spec.host for spec in found.specs] == ["a.b"]
    assert found.notices[0].tag == "traefik.http.routers.r"


def test_settings_without_effect_are_named() -> None:
    found = read(
        f"{ROUTER}rule=Host(`a.b`)",
        f"{ROUTER}entrypoints=web,other",
        f"{ROUTER}observability=true",
        "traefik.http.services.s.loadbalancer.sticky.cookie=true",
        "traefik.udp.routers.u.entrypoints=dns",
    )
    assert len(found.specs) == 1
    assert len(found.notices) == 4


def test_tcp_routers() -> None:
    router = "traefik.tcp.routers.t."
    assert specs(f"{router}rule=HostSNI(`*`)", f"{router}entrypoints=mysql") == [RouteSpec(kind=Kind.TCP, port=3306)]
    assert specs(f"{router}rule=HostSNI(`a.b`)", f"{router}tls.passthrough=true") == [
        RouteSpec(kind=Kind.SNI, host="a.b")
    ]


@pytest.mark.parametrize(
    "tags", [("rule=HostSNI(`*`)",), ("rule=HostSNI(`a.b`)", "tls=true"), ("rule=HostSNI(`*`)", "entrypoints=web")]
)
def test_tcp_routers_that_cannot_be(tags: tuple[str, ...]) -> None:
    found = read(*(f"traefik.tcp.routers.t.{tag}" for tag in tags))
    assert found.specs == ()
    assert len(found.notices) == 1


def test_traefik_1() -> None:
    assert specs("traefik.frontend.rule=Host:a.b;PathPrefixStrip:/x") == [
        RouteSpec(host="a.b", path="/x", options=Options(strip=("/x",)))
    ]
