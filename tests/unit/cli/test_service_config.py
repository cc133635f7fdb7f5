"""Configuration for balancers, printed or kept in a file."""

from pathlib import Path

import pytest
from tests.unit.cli.conftest import Run
from tests.unit.cli.fake_agent import FakeAgent, Reply

from lepa.cli import service_config


def instances(*ports: int) -> list[dict[str, object]]:
    return [{"ID": f"i{port}", "Address": "10.0.0.1", "Port": port, "Tags": ["blue"]} for port in ports]


def test_haproxy_needs_no_agent_to_be_asked(agent: FakeAgent, lepa: Run) -> None:
    done = lepa("service", "config", "-slots", "4", "-namespace", "team", "haproxy", "web", "db")
    assert done.out.count("server-template") == 2
    assert "_db._tcp.service.team.ns.lepa" in done.out
    assert agent.requests == []


def test_nginx_lists_what_is_registered(agent: FakeAgent, lepa: Run) -> None:
    agent.on("GET /v1/service/web", instances(80, 81))
    assert lepa("service", "config", "nginx", "web").out.count("server 10.0.0.1:8") == 2
    assert "down" in lepa("service", "config", "-tag", "green", "nginx", "web").out


@pytest.mark.parametrize("words", [("traefik", "web"), ("nginx",), ("-follow", "nginx", "web")])
def test_what_is_refused(agent: FakeAgent, lepa: Run, words: tuple[str, ...]) -> None:
    done = lepa("service", "config", *words)
    assert (done.code, done.out) == (1, "")
    assert done.error


def test_a_file_is_written_in_one_step_and_a_command_is_run(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    agent.on("GET /v1/service/web", instances(80))
    done = lepa(
        "service", "config", "-out", str(tmp_path / "web.conf"), "-run", f"touch {tmp_path}/ran", "nginx", "web"
    )
    assert (done.code, done.out) == (0, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ran", "web.conf"]


def test_a_command_that_fails_is_named(agent: FakeAgent, lepa: Run, tmp_path: Path) -> None:
    agent.on("GET /v1/service/web", instances(80))
    done = lepa("service", "config", "-out", str(tmp_path / "web.conf"), "-run", "false", "nginx", "web")
    assert (done.code, '"false" failed' in done.error) == (1, True)
    assert lepa("service", "config", "-out", "/nowhere/x", "nginx", "web").code == 1


def test_following_writes_again_after_each_change(
    agent: FakeAgent, lepa: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that changes nothing for us, a stream that breaks, one that is refused, and an interruption."""
    reads = [instances(80), instances(80), instances(80, 81), instances(82)]
    streams = [Reply(chunks=(b"{}\n", b'{"Index":9,"Events":[]}\n')), Reply(500, "No cluster leader")]
    agent.on("GET /v1/service/web", lambda request: reads.pop(0))
    agent.on("GET /v1/event/stream", lambda request: streams.pop(0))
    written: list[int] = []

    def replace(path: Path, text: str) -> None:
        written.append(text.count("server"))
        if not reads:
            raise KeyboardInterrupt

    monkeypatch.setattr(service_config, "_replace", replace)
    done = lepa("service", "config", "-follow", "-out", str(tmp_path / "x"), "nginx", "web")
    assert written == [1, 2, 1]
    assert "No cluster leader" in done.error
