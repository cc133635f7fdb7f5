"""`lepa ui`, and -ui of other commands: the address of a page, and when a browser is opened."""

import webbrowser
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent

ALLOCATION = "aaaa1111-0000-0000-0000-000000000000"


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Addresses that were opened, on a machine with a display."""
    found: list[str] = []
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(webbrowser, "open", lambda url: found.append(url) or True)
    return found


def test_the_pages_are_opened(agent: FakeAgent, lepa: Run, opened: list[str]) -> None:
    done = lepa("ui")
    assert (done.code, done.error) == (0, f'Opening URL "{agent.address}/ui/"\n')
    lepa("ui", "-region=eu", "-namespace=apps")
    assert opened == [f"{agent.address}/ui/", f"{agent.address}/ui/?namespace=apps&region=eu"]
    assert lepa("ui", "-show-url").out == f"{agent.address}/ui/\n"
    assert len(opened) == 2


def test_without_a_display_the_address_is_told(agent: FakeAgent, lepa: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(webbrowser, "open", lambda url: pytest.fail("opened"))
    assert lepa("ui").error == f"No browser can be opened here. The page is {agent.address}/ui/\n"


def test_an_id_leads_to_its_page(agent: FakeAgent, lepa: Run) -> None:
    agent.on("PUT /v1/search", {"Matches": {"jobs": ["a b/c"]}})
    agent.on("GET /v1/jobs", [{"ID": "a b/c", "Namespace": "apps"}])
    assert lepa("ui", "-show-url", "a b").out == f"{agent.address}/ui/jobs/a%20b%2Fc@apps\n"
    agent.on("PUT /v1/search", {"Matches": {"allocs": [ALLOCATION]}})
    assert lepa("ui", "-show-url", "aaaa").out == f"{agent.address}/ui/allocations/{ALLOCATION}\n"
    agent.on("PUT /v1/search", {"Matches": {"jobs": ["web", "web-2"]}})
    assert "Several things" in lepa("ui", "-show-url", "we").error
    agent.on("PUT /v1/search", {"Matches": {}})
    assert "Nothing has an id" in lepa("ui", "zz").error


def test_a_browser_is_signed_in_by_a_token_for_one_exchange(agent: FakeAgent, lepa: Run) -> None:
    agent.on("PUT /v1/acl/token/onetime", {"OneTimeToken": {"OneTimeSecretID": "once"}})
    assert lepa("ui", "-authenticate", "-show-url").out == f"{agent.address}/ui/?ott=once\n"


def test_other_commands_open_what_they_are_about(
    agent: FakeAgent, lepa: Run, opened: list[str], tmp_path: Path
) -> None:
    agent.on("GET /v1/evaluations", [])
    lepa("eval", "list", "-ui")
    agent.on("GET /v1/vars", [])
    lepa("var", "list", "-ui", "-namespace=apps")
    agent.on("PUT /v1/jobs", {"EvalID": "e"})
    file = tmp_path / "web.json"
    file.write_text(
        '{"Job": {"ID": "web", "Namespace": "apps", "TaskGroups": [{"Name": "g", "Tasks": [{"Name": "t"}]}]}}'
    )
    lepa("job", "run", "-ui", "-detach", "-json", str(file))
    pages = ["evaluations", "variables?namespace=apps", "jobs/web@apps"]
    assert opened == [f"{agent.address}/ui/{page}" for page in pages]
