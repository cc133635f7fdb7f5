"""A real Prometheus scrapes a real agent; names and labels are those that Nomad's dashboards ask for."""

import json
import re
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.agents import Agent, eventually, running
from tests.e2e.jobs import shell_job
from tests.integration.fake_nomad import free_port

from lepa.rpc.methods import METHODS

ASKED = (
    "nomad_nomad_broker_total_ready",
    "nomad_nomad_blocked_evals_total_blocked",
    "nomad_nomad_plan_queue_depth",
    'nomad_nomad_worker_invoke_scheduler_service{quantile="0.5"}',
    "nomad_nomad_heartbeat_active",
    "nomad_nomad_rpc_request",
    'nomad_nomad_job_summary_running{exported_job="scraped",task_group="main",namespace="default"}',
    "nomad_nomad_job_status_running",
    "nomad_raft_state_leader",
    "nomad_raft_apply",
    'nomad_client_allocated_cpu{datacenter="dc1"}',
    "nomad_client_unallocated_memory",
    "nomad_client_allocations_running",
    "nomad_client_host_cpu_idle",
    "nomad_client_host_memory_used",
    "nomad_client_host_disk_used_percent",
    "nomad_client_uptime",
    'nomad_client_allocs_memory_usage{exported_job="scraped",task="main"}',
    'nomad_client_allocs_cpu_total_ticks{exported_job="scraped"}',
    "nomad_client_allocs_running",
    "nomad_runtime_num_goroutines",
)
FIXED_BY_NOMAD = (
    'should not have "_total" suffix',
    "should not include type 'summary'",
    "'snake_case' not 'camelCase'",
)
"""What promtool says of names that Nomad has given."""


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    with running(tmp_path_factory.mktemp("scraped")) as started:
        started.run(shell_job("scraped"))
        started.running("scraped")
        yield started


@pytest.fixture(scope="module")
def prometheus(agent: Agent, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus that scrapes the agent every second."""
    folder, port = tmp_path_factory.mktemp("prometheus"), free_port()
    target = f"{agent.host}:{agent.ports['http']}"
    job = {
        "job_name": "nomad",
        "metrics_path": "/v1/metrics",
        "params": {"format": ["prometheus"]},
        "static_configs": [{"targets": [target]}],
    }
    config = folder / "prometheus.yml"
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    words = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}"]
    words.append(f"--web.listen-address=127.0.0.1:{port}")
    with (folder / "log").open("w") as log, subprocess.Popen(words, stdout=log, stderr=log) as process:
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(20)


def ask(address: str, query: str) -> list[Any]:
    try:
        with urllib.request.urlopen(f"{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}") as answer:
            found: list[Any] = json.load(answer)["data"]["result"]
            return found
    except OSError:
        return []


def test_prometheus_scrapes_every_second_and_finds_what_dashboards_ask(agent: Agent, prometheus: str) -> None:
    eventually(lambda: ask(prometheus, "up == 1"), 30.0)
    for query in ASKED:
        assert eventually(lambda q=query: ask(prometheus, q), 15.0), query  # type: ignore[misc]
    (up,) = ask(prometheus, "up")
    assert up["metric"]["job"] == "nomad"


def test_promtool_finds_fault_with_nothing_but_names_that_nomad_gave(agent: Agent, tmp_path: Path) -> None:
    text = agent.request("GET", "/v1/metrics?format=prometheus").body
    checked = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    assert b"error" not in checked.stderr, checked.stderr
    said = (checked.stderr + checked.stdout).decode().splitlines()
    assert [line for line in said if not any(words in line for words in FIXED_BY_NOMAD)] == []


def test_every_figure_is_documented(agent: Agent) -> None:
    text = (Path(__file__).parents[2] / "docs" / "reference" / "metrics.md").read_text()
    parts = set(re.findall(r"`([^`]+)`", text))
    summary = agent.get("/v1/metrics")
    names = {each["Name"] for kind in ("Gauges", "Counters", "Samples") for each in summary[kind]}
    calls = {f"nomad.nomad.{re.sub('(?<=[a-z])(?=[A-Z])', '_', name).lower()}" for name in METHODS}
    unknown = [
        name
        for name in sorted(names - calls)
        if name not in parts and not any(name.endswith(f".{part}") for part in parts)
    ]
    assert unknown == []
