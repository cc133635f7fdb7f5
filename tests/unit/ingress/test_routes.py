import pytest

from lepa.catalog.table import Instance, Node, ServiceTable
from lepa.ingress.route_spec import Kind, Redirect
from lepa.ingress.routes import (
    HOSTS_REMEMBERED_MAX,
    Matcher,
    Route,
    RouteTable,
    Rules,
    StaticListener,
    location,
    plain_path,
    split_host,
)


def instance(service: str, *tags: str, number: int = 1, healthy: bool = True, port: int = 80) -> Instance:
    return Instance(
        id=f"{service}-{number}", service=service, address=f"10.0.0.{number}", port=port, tags=tags, healthy=healthy
    )


def table(*instances: Instance, matcher: Matcher = "prefix", **rules: object) -> RouteTable:
    return RouteTable.build(ServiceTable.build(instances, [], 1), Rules(matcher=matcher, **rules))


def hit(routes: RouteTable, host: str, path: str = "/", *, tls: bool = False) -> str | None:
    found = routes.match(host, path, tls=tls)
    return found.source if found is not None else None


def simple(*places: str, matcher: Matcher = "prefix") -> RouteTable:
    return table(*(instance(f"s{n}", f"urlprefix-{place}") for n, place in enumerate(places)), matcher=matcher)


def test_the_longest_path_wins() -> None:
    routes = simple("/", "/a", "/a/b")
    assert [hit(routes, "any", path) for path in ("/", "/a", "/ab", "/a/b/c")] == ["/", "/a", "/a", "/a/b"]


def test_nothing_fits() -> None:
    assert hit(simple("/a", "h/"), "other", "/b") is None


def test_a_named_host_comes_before_any_host() -> None:
    routes = simple("/a/b", "h/")
    assert hit(routes, "h", "/a/b") == "h/"
    assert hit(routes, "other", "/a/b") == "/a/b"


def test_the_most_specific_host_wins() -> None:
    routes = simple("*/", "*.com/", "*.example.com/", "a.example.com/")
    hosts = ("a.example.com", "b.example.com", "b.com", "b.org")
    assert [hit(routes, host) for host in hosts] == ["a.example.com/", "*.example.com/", "*.com/", "*/"]


def test_a_host_whose_paths_do_not_fit_gives_way_to_the_next() -> None:
    assert hit(simple("a.example.com/x", "*.example.com/"), "a.example.com", "/y") == "*.example.com/"


@pytest.mark.parametrize("host", ["A.Example.COM", "a.example.com.", "a.example.com:80", "a.example.com:9999"])
def test_hosts_are_compared_by_name(host: str) -> None:
    assert hit(simple("a.example.com/"), host) == "a.example.com/"


def test_a_host_with_a_port_fits_that_port() -> None:
    routes = simple("h:8080/", "h/")
    assert [hit(routes, host) for host in ("h:8080", "h:9090", "h")] == ["h:8080/", "h/", "h/"]


def test_the_usual_port_is_that_of_the_scheme() -> None:
    routes = simple("h:80/", "h:443/")
    assert hit(routes, "h") == "h:80/"
    assert hit(routes, "h", tls=True) == "h:443/"


def test_ipv6_hosts() -> None:
    assert hit(simple("[::1]/"), "[::1]:9999") == "[::1]/"


def test_paths_without_regard_to_case() -> None:
    assert hit(simple("/Api", matcher="iprefix"), "h", "/aPI/x") == "/Api"


def test_paths_with_wildcards() -> None:
    routes = simple("/*/users", "/", matcher="glob")
    assert hit(routes, "h", "/v1/users") == "/*/users"
    assert hit(routes, "h", "/v1/other") is None


def test_an_exact_path() -> None:
    routes = table(instance("a", "traefik.http.routers.r.rule=Path(`/x`)"), instance("b", "urlprefix-/x"))
    exact, below = routes.match("h", "/x", tls=False), routes.match("h", "/x/y", tls=False)
    assert exact is not None
    assert below is not None
    assert [exact.targets[0].service, below.targets[0].service] == ["a", "b"]


def test_instances_of_several_services_share_a_route() -> None:
    route = table(instance("a", "urlprefix-/"), instance("b", "urlprefix-/", number=2)).match("h", "/", tls=False)
    assert route is not None
    assert sorted(target.service for target in route.targets) == ["a", "b"]


def test_an_unhealthy_path_gives_way_to_the_next_host_not_to_the_next_path() -> None:
    routes = table(
        instance("down", "urlprefix-h/api", healthy=False),
        instance("front", "urlprefix-h/"),
        instance("any", "urlprefix-/"),
    )
    assert hit(routes, "h", "/api") == "/"


def test_a_route_whose_only_instances_are_unhealthy_is_found_without_targets() -> None:
    route = table(instance("down", "urlprefix-/", healthy=False)).match("h", "/", tls=False)
    assert route is not None
    assert route.targets == ()
    assert [target.key for target in route.registered] == ["10.0.0.1:80"]


def test_a_redirect_to_the_same_place_is_passed_over() -> None:
    routes = table(instance("r", "urlprefix-h/ redirect=301,https://h$path"), instance("w", "urlprefix-/"))
    assert hit(routes, "h", "/x") == "h/"
    assert hit(routes, "h", "/x", tls=True) == "/"


def test_routes_for_one_side_only() -> None:
    tags = ("traefik.http.routers.r.rule=Host(`h`)", "traefik.http.routers.r.entrypoints=websecure")
    routes = table(instance("a", *tags))
    assert hit(routes, "h") is None
    assert hit(routes, "h", tls=True) == "h/"


def test_tcp_ports() -> None:
    routes = table(instance("a", "urlprefix-:7000 proto=tcp"), instance("b", "urlprefix-10.0.0.9:7000 proto=tcp"))
    assert {key: route.targets[0].service for key, route in routes.ports.items()} == {
        ("", 7000): "a",
        ("10.0.0.9", 7000): "b",
    }
    assert routes.listeners == {("", 7000), ("10.0.0.9", 7000)}


def test_a_static_port_stands_before_its_service_does() -> None:
    static = (StaticListener(7000, "db"), StaticListener(7001, "db", "team"))
    routes = table(static=static)
    assert routes.ports["", 7000].registered == ()
    routes = table(instance("DB"), static=static)
    assert [len(routes.ports["", port].targets) for port in (7000, 7001)] == [1, 0]


def test_tls_names() -> None:
    routes = table(instance("a", "urlprefix-*.example.com/ proto=tcp+sni"))
    assert routes.match_sni("x.example.com") is not None
    assert routes.match_sni("x.example.org") is None


def test_grpc_routes_are_apart() -> None:
    routes = table(instance("a", "urlprefix-g.example.com/ proto=grpc"), instance("b", "urlprefix-g.example.com/"))
    route = routes.match_grpc("g.example.com")
    assert route is not None
    assert route.targets[0].service == "a"
    assert hit(routes, "g.example.com") == "g.example.com/"


def test_an_instance_without_address_is_that_of_its_node() -> None:
    row = Instance(id="1", service="web", node_name="n1", port=80, tags=("urlprefix-/",))
    services = ServiceTable.build([row], [Node(name="n1", address="10.9.9.9")], 1)
    route = RouteTable.build(services).match("h", "/", tls=False)
    assert route is not None
    assert route.targets[0].key == "10.9.9.9:80"


def test_an_instance_without_port_is_named() -> None:
    routes = table(instance("web", "urlprefix-/", port=0))
    assert routes.routes == {}
    assert routes.notices[0].problem == "an instance has no port"


def test_an_ipv6_target_is_written_in_brackets() -> None:
    row = Instance(id="1", service="web", address="fd00::1", port=80, tags=("urlprefix-/",))
    route = RouteTable.build(ServiceTable.build([row], [], 1)).match("h", "/", tls=False)
    assert route is not None
    assert (route.targets[0].key, route.targets[0].host) == ("[fd00::1]:80", "fd00::1")


def test_what_did_not_change_is_the_same_object() -> None:
    services = ServiceTable.build([instance("a", "urlprefix-/a"), instance("b", "urlprefix-/b")], [], 1)
    first = RouteTable.build(services)
    changed = services.with_service("default", "b", [instance("b", "urlprefix-/b", number=2)], 2)
    second = RouteTable.build(changed, None, first)
    assert routes_by_source(second)["/a"] is routes_by_source(first)["/a"]
    assert routes_by_source(second)["/b"] is not routes_by_source(first)["/b"]
    assert second.index == 2


def routes_by_source(routes: RouteTable) -> dict[str, Route]:
    return {route.source: route for route in routes.routes.values()}


def test_a_changed_route_goes_on_with_the_round() -> None:
    services = ServiceTable.build([instance("a", "urlprefix-/", number=n) for n in (1, 2)], [], 1)
    first = RouteTable.build(services)
    routes_by_source(first)["/"].cursor = 1
    third = instance("a", "urlprefix-/", number=3)
    second = RouteTable.build(services.with_service("default", "a", [third], 2), None, first)
    assert routes_by_source(second)["/"].cursor == 1


def test_other_rules_build_everything_anew() -> None:
    services = ServiceTable.build([instance("a", "urlprefix-/", "route-/x")], [], 1)
    first = RouteTable.build(services)
    assert list(routes_by_source(RouteTable.build(services, Rules(prefix="route-"), first))) == ["/x"]


def test_notices_of_equal_instances_are_one() -> None:
    assert len(table(*(instance("web", "urlprefix-bad", number=n) for n in range(1, 4))).notices) == 1


def test_the_memory_of_host_headers_is_bounded() -> None:
    routes = simple("*.example.com/", "/")
    for number in range(2 * HOSTS_REMEMBERED_MAX + 5):
        assert hit(routes, f"{number}.example.com") == "*.example.com/"
    assert len(routes.indexes[0]._known) <= HOSTS_REMEMBERED_MAX


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("a", ("a", 0)),
        ("a:80", ("a", 80)),
        ("a:", ("a:", 0)),
        ("a:b", ("a:b", 0)),
        ("::1", ("::1", 0)),
        ("[::1]", ("[::1]", 0)),
        ("[::1]:80", ("[::1]", 80)),
        ("a:123456", ("a:123456", 0)),
    ],
)
def test_host_and_port(host: str, expected: tuple[str, int]) -> None:
    assert split_host(host) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/a/b", "/a/b"),
        ("/%61dmin", "/admin"),
        ("/a/../b", "/b"),
        ("/a/./b", "/a/b"),
        ("/../../b", "/b"),
        ("/a/..", "/"),
        ("/a/b/..", "/a/"),
        ("/a/.", "/a/"),
        ("/a%2f..%2fb", "/b"),
        ("/.well-known", "/.well-known"),
        ("*", "*"),
    ],
)
def test_nothing_leads_around_a_route(path: str, expected: str) -> None:
    assert plain_path(path) == expected


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://x.example.com/", "https://x.example.com/"),
        ("https://x.example.com$path", "https://x.example.com/a?b=c"),
        ("https://x.example.com/$path", "https://x.example.com/a?b=c"),
        ("https://$host$path", "https://h/a?b=c"),
    ],
)
def test_where_a_redirect_leads(url: str, expected: str) -> None:
    assert location(Redirect(301, url), "h:9999", "/a?b=c") == expected


def test_kinds_are_told_apart() -> None:
    assert {kind.value for kind in Kind} == {"http", "grpc", "tcp", "tcp+sni"}
