"""Whole clusters on virtual time: nothing that must never happen happens, and a seed says everything.

These are the short form; `script/simulate --seeds 500` is the long one.
"""

import logging
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from tests.simulation.world import simulate

SEEDS = range(1, 7)
MINUTES = 1.5


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.ERROR)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_cluster_keeps_its_promises_whatever_fails(seed: int) -> None:
    outcome = simulate(seed, MINUTES)
    again = f".venv/bin/python -m tests.simulation {seed} --minutes {MINUTES} --events"
    assert outcome.violations == [], again
    assert outcome.figures.get("registered", 0) > 2, "nobody wanted anything"


def test_the_same_seed_gives_the_same_trace_whatever_the_order_of_sets() -> None:
    """State must not depend on how a process orders strings in sets and dicts."""
    traces = set()
    for order in ("1", "2"):
        command = [sys.executable, "-m", "tests.simulation", "3", "--minutes", "0.5"]
        env = os.environ | {"PYTHONHASHSEED": order, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
        assert "trace " in done.stdout, done.stdout + done.stderr
        traces.add(done.stdout.split("trace ")[1].split()[0])
    assert len(traces) == 1
