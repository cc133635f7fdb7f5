"""Bugs that are planted on purpose: a simulation that does not find them proves nothing."""

import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace
from tests.simulation.world import World, simulate

from lepa.scheduler import group_step, plan_check
from lepa.server.deciders import heartbeats
from lepa.server.eval_broker import EvalBroker
from lepa.server.eval_feed import EvalFeed
from lepa.server.leadership import Leadership
from lepa.state import replica
from lepa.state.commands import allocations, children, nodes
from lepa.store.election import Election

MINUTES = 1.5
SEEDS_MAX = 4
"""How many seeds may be needed to find one."""

Plant = Callable[[pytest.MonkeyPatch], Callable[[World], None] | None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
