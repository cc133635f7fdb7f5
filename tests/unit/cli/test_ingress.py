"""Where requests from outside go."""

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent

ROUTE = {
    "service": "web",
    "src": "a.example.com/",
    "dst": "http://10.0.0.1:80/",
    "opts": "strip=/x",
    "weight": 0.5,
    "healthy": True,
}


@pytest.fixture
def ingress(agent: FakeAgent, monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    """An ingress with two targets and one tag that it does not follow."""
    monkeypatch.setenv("LEPA_INGRESS_ADDR", agent.address)
    agent.on("GET /api/routes", [ROUTE, ROUTE | {"service": "api", "opts": "", "weight": 0.0, "healthy": False}])
    agent.on("GET /api/notices", [{"service": "web", "tag": "urlprefix-x", "problem": "it has no slash"}])
    return agent


def test_routes_and_what_is_not_followed(ingress: FakeAgent, lepa: Run) -> None:
    assert lepa("ingress", "routes").out == (
        "Service  Source          Destination          Share      Options\n"
        "web      a.example.com/  http://10.0.0.1:80/  50.0%      strip=/x\n"
        "api      a.example.com/  http://10.0.0.1:80/  unhealthy  <none>\n"
        "\n"
        "Not followed\n"
        "Service  Tag          Problem\n"
        "web      urlprefix-x  it has no slash\n"
    )


def test_routes_of_one_service(ingress: FakeAgent, lepa: Run) -> None:
    done = lepa("ingress", "routes", "-service=api")
    assert "web" not in done.out
    assert "Not followed" not in done.out


def test_the_routes_as_json(ingress: FakeAgent, lepa: Run) -> None:
    assert '"dst": "http://10.0.0.1:80/"' in lepa("ingress", "routes", "-json").out


def test_no_routes(ingress: FakeAgent, lepa: Run) -> None:
    ingress.on("GET /api/routes", [])
    ingress.on("GET /api/notices", [])
    assert lepa("ingress", "routes").out == "No routes\n"


def test_an_ingress_that_is_not_there(agent: FakeAgent, lepa: Run) -> None:
    done = lepa("ingress", "routes", "-ingress=http://127.0.0.1:1")
    assert done.code == 1
    assert "no ingress answers at http://127.0.0.1:1" in done.error
