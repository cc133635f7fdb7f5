import pytest

from lepa.ingress.fabio_tags import networks, read_tags
from lepa.ingress.route_spec import Kind, Notice, Options, Redirect, RouteSpec


def read(*tags: str) -> list[RouteSpec]:
    found = read_tags("web", tags, "urlprefix-", "dc1")
    assert found.notices == ()
    return list(found.specs)


def problem(tag: str) -> str:
    found = read_tags("web", (tag,), "urlprefix-", "dc1")
    assert found.specs == ()
    return found.notices[0].problem


@pytest.mark.parametrize(
    ("tag", "host", "path"),
    [
        ("urlprefix-/", "", "/"),
        ("urlprefix-/Clipper", "", "/Clipper"),
        ("urlprefix-A.Example.com/", "a.example.com", "/"),
        ("urlprefix-*.example.com/x/y", "*.example.com", "/x/y"),
        ("urlprefix-a.example.com:8443/", "a.example.com:8443", "/"),
        ("urlprefix-$DC.example.com/", "dc1.example.com", "/"),
        ("urlprefix-${DC}.example.com/${OTHER}x", "dc1.example.com", "/x"),
    ],
)
def test_hosts_and_paths(tag: str, host: str, path: str) -> None:
    assert read(tag) == [RouteSpec(host=host, path=path)]


def test_tcp_ports_with_and_without_an_address() -> None:
    tags = ("urlprefix-:7000 proto=tcp", "urlprefix-10.0.0.1:7001 proto=tcp", "urlprefix-[::1]:7002 proto=tcp")
    assert [(spec.kind, spec.address, spec.port) for spec in read(*tags)] == [
        (Kind.TCP, "", 7000),
        (Kind.TCP, "10.0.0.1", 7001),
        (Kind.TCP, "::1", 7002),
    ]


def test_a_port_alone_means_tcp() -> None:
    assert read("urlprefix-:7000")[0].kind == Kind.TCP


def test_the_service_of_a_clipper_frontend() -> None:
    (http,) = read("urlprefix-/clipper strip=/clipper")
    assert http == RouteSpec(path="/clipper", options=Options(strip=("/clipper",)))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("proto=http", Options()),
        ("proto=https tlsskipverify=true tlsservername=x", Options(tls=True, tls_verify=False, tls_name="x")),
        ("weight=0.25", Options(weight=0.25)),
        ("prepend=/v1", Options(prepend="/v1")),
        ("host=dst", Options(host="dst")),
        ("redirect=301,https://x.example.com$path", Options(redirect=Redirect(301, "https://x.example.com$path"))),
        ("register=fabio", Options(register="fabio")),
        ("auth=staff", Options(auth="staff")),
        ("allow=ip:10.0.0.0/8,ip:fe80::/10", Options(allow=("10.0.0.0/8", "fe80::/10"))),
        ("deny=ip:10.1.2.3", Options(deny=("10.1.2.3/32",))),
        ("pxyproto=true", Options(proxy_protocol=1)),
        ("pxyproto=v2", Options(proxy_protocol=2)),
        ("pick=first onleave=keep", Options(first=True, keep=True)),
    ],
)
def test_options(words: str, expected: Options) -> None:
    assert read(f"urlprefix-/ {words}")[0].options == expected


@pytest.mark.parametrize(
    ("protocol", "kind", "tls"),
    [
        ("ws", Kind.HTTP, False),
        ("wss", Kind.HTTP, True),
        ("grpc", Kind.GRPC, False),
        ("grpcs", Kind.GRPC, True),
        ("tcp+sni", Kind.SNI, False),
    ],
)
def test_protocols(protocol: str, kind: Kind, tls: bool) -> None:
    (spec,) = read(f"urlprefix-a.example.com/ proto={protocol}")
    assert (spec.kind, spec.options.tls) == (kind, tls)


@pytest.mark.parametrize(
    ("tag", "said"),
    [
        ("urlprefix-", "nothing follows"),
        ("urlprefix-a.example.com", "no slash; a host is written a.example.com/"),
        ("urlprefix-:99999 proto=tcp", "out of range"),
        ("urlprefix-999.1.1.1:80 proto=tcp", "not an IP address"),
        ("urlprefix-a.example.com/ proto=tcp", "needs a target such as :7000"),
        ("urlprefix-/ proto=gopher", "not known"),
        ("urlprefix-a?b/", "not a host"),
        ("urlprefix-/ allow=ip:nowhere", "allow=ip:nowhere"),
        ("urlprefix-/ redirect=200,http://x/", "code from 300 to 399"),
    ],
)
def test_a_tag_that_is_no_route_says_why(tag: str, said: str) -> None:
    assert said in problem(tag)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("weight=many", "not a number"),
        ("weight=2", "between 0 and 1"),
        ("weight=nan", "between 0 and 1"),
        ("strip=x", "begins with a slash"),
        ("pxyproto=v9", "v1 or v2"),
        ("colour=red", "not known"),
    ],
)
def test_an_option_that_only_adds_comfort_is_left_out(option: str, said: str) -> None:
    found = read_tags("web", (f"urlprefix-/ {option}",), "urlprefix-", "dc1")
    assert found.specs == (RouteSpec(path="/"),)
    assert said in found.notices[0].problem
    assert "no effect" in found.notices[0].problem


def test_one_bad_tag_leaves_the_others() -> None:
    found = read_tags("web", ("urlprefix-bad", "other", "urlprefix-/good"), "urlprefix-", "dc1")
    assert [spec.path for spec in found.specs] == ["/good"]
    assert [notice.tag for notice in found.notices] == ["urlprefix-bad"]
    assert isinstance(found.notices[0], Notice)


def test_another_prefix() -> None:
    assert read_tags("web", ("route-/x", "urlprefix-/y"), "route-", "").specs == (RouteSpec(path="/x"),)


def test_networks_need_not_be_written_with_their_first_address() -> None:
    assert networks("ip:10.1.2.3/8, 192.168.0.1") == ("10.0.0.0/8", "192.168.0.1/32")
