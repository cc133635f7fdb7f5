"""Simulates a cluster: `python -m tests.simulation SEED [--seeds N] [--minutes M] [--events]`.

The exit code is 1 when a seed failed.
"""

import argparse
import logging
import sys
import time

from tests.simulation.world import simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Simulate a cluster from a seed.")
    parser.add_argument("seed", type=int, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual minutes of each, before it comes to rest")
    parser.add_argument("--events", action="store_true", help="print what happens")
    parser.add_argument("--log", action="store_true", help="print what the parts log")
    parsed = parser.parse_args()
    logging.basicConfig(level=logging.INFO if parsed.log else logging.CRITICAL)
    failed = 0
    for seed in range(parsed.seed, parsed.seed + parsed.seeds):
        began = time.monotonic()
        outcome = simulate(seed, parsed.minutes, on_event=print if parsed.events else lambda text: None)
        took = time.monotonic() - began
        figures = " ".join(f"{name}={count}" for name, count in sorted(outcome.figures.items()))
        verdict = "FAILED" if outcome.violations else "ok"
        print(f"seed {seed} trace {outcome.trace} {took:.1f} s {verdict} {figures}", flush=True)
        for violation in outcome.violations:
            print(f"  {violation}")
        if outcome.violations:
            failed += 1
            print(f"  again: .venv/bin/python -m tests.simulation {seed} --minutes {parsed.minutes:g} --events")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
