"""Text for balancers that are not ours. That they take it is in tests/integration/test_balancers.py."""

from lepa.catalog.balancer_config import HaproxyOptions, haproxy, nginx
from lepa.catalog.table import Instance


def test_haproxy_gets_a_backend_for_each_service() -> None:
    text = haproxy(["web", "my db"], HaproxyOptions(dns="10.0.0.1:53", slots=3))
    assert "nameserver agent 10.0.0.1:53" in text
    assert "backend my-db\n" in text
    assert "server-template web- 3 _web._tcp.service.lepa resolvers lepa" in text


def test_haproxy_holds_an_instance_that_is_gone_for_longer_than_it_waits_between_two_questions() -> None:
    text = haproxy(["web"], HaproxyOptions())
    assert "timeout resolve 1s" in text
    assert "hold obsolete 3s" in text


def test_a_namespace_and_a_tag_are_in_the_name() -> None:
    text = haproxy(["web"], HaproxyOptions(namespace="team", tag="blue", domain="consul."))
    assert " _web._blue.service.team.ns.consul " in text


def test_nginx_lists_healthy_instances_with_their_weights() -> None:
    rows = [
        Instance(id="a", service="web", address="10.0.0.1", port=80, weight=5),
        Instance(id="b", service="web", address="::1", port=81),
        Instance(id="c", service="web", address="10.0.0.3", port=82, healthy=False),
        Instance(id="d", service="web", address="10.0.0.4"),
    ]
    assert nginx([("web", rows)]) == "upstream web {\n    server 10.0.0.1:80 weight=5;\n    server [::1]:81;\n}\n"


def test_an_upstream_without_instances_is_down() -> None:
    assert nginx([("a", []), ("b", [])]).count("server 127.0.0.1:9 down;") == 2
