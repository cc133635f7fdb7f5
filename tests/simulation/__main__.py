"""Simulates a cluster: `python -m tests.simulation SEED [--seeds N] [--minutes M] [--jobs N] [--events]`.

Several seeds are simulated at once, each in one of some processes. The exit code is 1 when a seed failed.
"""

import argparse
import gc
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial

from tests.simulation.world import Outcome, simulate

from lepa.agent.run import GC_THRESHOLDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a cluster from a seed.")
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual minutes of each, before it comes to rest")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many processes; one for each core")
    parser.add_argument("--events", action="store_true", help="print what happens")
    parser.add_argument("--log", action="store_true", help="print what the parts log")
    parsed = parser.parse_args()
    logging.basicConfig(level=logging.INFO if parsed.log else logging.CRITICAL)
    failed = 0
    seeds = range(parsed.seed, parsed.seed + parsed.seeds)
    for outcome, took in _outcomes(seeds, parsed.minutes, parsed.jobs, events=parsed.events):
        figures = " ".join(f"{name}={count}" for name, count in sorted(outcome.figures.items()))
        verdict = "FAILED" if outcome.violations else "ok"
        print(f"seed {outcome.seed} trace {outcome.trace} {took:.1f} s {verdict} {figures}", flush=True)
        for violation in outcome.violations:
            print(f"  {violation}")
        if outcome.violations:
            failed += 1
            print(f"  again: .venv/bin/python -m tests.simulation {outcome.seed} --minutes {parsed.minutes:g} --events")
    if len(seeds) > 1:
        print(f"{len(seeds)} seeds, {failed} failed", flush=True)
    return 1 if failed else 0


def _outcomes(seeds: Sequence[int], minutes: float, jobs: int, *, events: bool) -> Iterator[tuple[Outcome, float]]:
    """Of each seed, as they end: what was found, and the seconds that it took."""
    one = partial(_timed, minutes=minutes, events=events)
    if jobs < 2 or len(seeds) < 2:
        yield from map(one, seeds)
        return
    with multiprocessing.get_context("fork").Pool(min(jobs, len(seeds))) as pool:
        yield from pool.imap_unordered(one, seeds)


def _timed(seed: int, minutes: float, *, events: bool) -> tuple[Outcome, float]:
    gc.set_threshold(*GC_THRESHOLDS)
    began = time.monotonic()
    outcome = simulate(seed, minutes, on_event=print if events else lambda text: None)
    gc.collect()
    return outcome, time.monotonic() - began


if __name__ == "__main__":
    sys.exit(main())
