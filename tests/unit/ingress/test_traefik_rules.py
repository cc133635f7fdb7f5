import pytest

from lepa.ingress.traefik_rules import Place, old_places_of, places_of, server_names_of
from lepa.model.errors import LepaError


@pytest.mark.parametrize(
    ("rule", "places"),
    [
        ("Host(`a.B`)", [Place("a.b")]),
        ('Host("a.b")', [Place("a.b")]),
        ("Host(`a.b`, `c.d`)", [Place("a.b"), Place("c.d")]),
        ("Host(`a.b`) || Host(`c.d`)", [Place("a.b"), Place("c.d")]),
        ("Host(`a.b`) && PathPrefix(`/x`)", [Place("a.b", "/x")]),
        ("PathPrefix(`/x`) && Host(`a.b`)", [Place("a.b", "/x")]),
        ("Path(`/x`)", [Place(path="/x", exact=True)]),
        (
            "Host(`a`) && (PathPrefix(`/x`) || Path(`/y`)) || Host(`b`)",
            [Place("a", "/x"), Place("a", "/y", True), Place("b")],
        ),
        ("(Host(`a`)||Host(`b`))&&PathPrefix(`/x`,`/y`)", [Place(h, p) for h in "ab" for p in ("/x", "/y")]),
        ("PathPrefix(`/x`) && PathPrefix(`/x/y`)", [Place(path="/x/y")]),
        ("Host(`a`) && Host(`b`)", []),
        ("Path(`/x`) && PathPrefix(`/x/y`)", []),
    ],
)
def test_places_of_a_rule(rule: str, places: list[Place]) -> None:
    assert list(places_of(rule)) == places


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("", "ends too early"),
        ("Host(`a`) &&", "ends too early"),
        ("Host(a)", "back quotes"),
        ("Host(`a`", "missing"),
        ("Host(`a`))", "malformed"),
        ("Host(`a`) Host(`b`)", "malformed"),
        ("&& Host(`a`)", "malformed"),
        ("!Host(`a`)", "negation"),
        ("Method(`GET`)", "Method(…) cannot be said"),
        ("HostRegexp(`.*`)", "cannot be said"),
        ("Host(`{x:[a-z]+}.b`)", "not a host"),
        ("PathPrefix(`x`)", "cannot be said"),
        ("Host(`a`) % 2", "malformed"),
        ("(" * 30 + "Host(`a`)" + ")" * 30, "nested too deeply"),
        ("||".join(f"Host(`h{n}`)" for n in range(200)), "more than 100"),
    ],
)
def test_a_rule_that_routes_cannot_say_is_refused(rule: str, said: str) -> None:
    with pytest.raises(LepaError, match=said.replace("(", r"\(").replace(")", r"\)")):
        places_of(rule)


def test_names_of_tcp_rules() -> None:
    assert server_names_of("HostSNI(`*`)") == ("*",)
    assert server_names_of("HostSNI(`a.b`) || HostSNI(`c.d`)") == ("a.b", "c.d")


def test_rules_of_traefik_1() -> None:
    assert old_places_of("Host:a.b,c.d;PathPrefixStrip:/x") == ((Place("a.b", "/x"), Place("c.d", "/x")), ("/x",))
    with pytest.raises(LepaError, match="malformed"):
        old_places_of("Host")
