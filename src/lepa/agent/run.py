"""Runs an agent as a process: logging, signals, limits, exit code."""

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from collections.abc import Callable

import uvloop

from lepa import __version__
from lepa.agent.agent import Agent
from lepa.agent.config import Config
from lepa.agent.log_tap import LogTap
from lepa.agent.self_view import COMPATIBLE_VERSION
from lepa.kit.telemetry import log_path, log_to_file, set_up_logging
from lepa.model.errors import LepaError

log = logging.getLogger(__name__)

SWITCH_S = 0.0005
"""How long a thread computes before others get the interpreter: DNS answers from a thread of its own."""
GC_THRESHOLDS = (10_000, 10, 1_000)
"""A collection stops everything: 1 ms for 10,000 young objects, 10 ms for ten times as many that outlived one. One of
all objects would take 500 ms with 100,000 allocations, so it is made rare."""


def run(
    config: Config, warnings: tuple[str, ...] = (), *, dev: bool = False, out: Callable[[str], None] = print
) -> int:
    """Run an agent until SIGINT or SIGTERM; the process's exit code. Never raises LepaError: says what is wrong."""
    handler = set_up_logging(config.log_level, as_json=config.log_json)
    path = log_path(config.log_file)
    try:
        file = log_to_file(path, config.log_level, as_json=config.log_json) if path is not None else None
    except OSError as error:
        print(f"Error starting agent: log_file {path} cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    tap = LogTap()
    logging.getLogger("lepa").addHandler(tap)
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)
    _raise_file_limit()
    for warning in warnings:
        log.warning("configuration: %s", warning)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(config, dev=dev, tap=tap, out=out))
    except LepaError as error:
        print(f"Error starting agent: {error.message}", file=sys.stderr)
        return 1
    finally:
        handler.flush()
        if file is not None:
            logging.getLogger("lepa").removeHandler(file)
            file.close()


async def _serve(config: Config, *, dev: bool, tap: LogTap, out: Callable[[str], None]) -> int:
    loop = asyncio.get_running_loop()
    told: asyncio.Queue[bool | LepaError] = asyncio.Queue()
    loop.add_signal_handler(signal.SIGINT, told.put_nowait, config.leave_on_interrupt)
    loop.add_signal_handler(signal.SIGTERM, told.put_nowait, config.leave_on_terminate)
    agent = Agent(config, told.put_nowait, dev=dev, tap=tap)
    loop.add_signal_handler(signal.SIGHUP, agent.view.reload)
    for line in banner(config):
        out(line)
    async with agent:
        out("==> lepa agent started! Log data will stream in below:\n")
        sys.stdout.flush()
        leaves = await told.get()
        if isinstance(leaves, LepaError):
            log.error("%s", leaves.message)
            return 1
        log.info("agent told to stop")
        if leaves:
            await agent.leave()
    return 0


def banner(config: Config) -> list[str]:
    """What the agent says of itself when it starts."""
    host = config.addresses.http or config.bind_addr
    gossip = f"{config.addresses.serf or config.bind_addr}:{config.ports.serf}"
    facts = {
        "Client": str(config.client.enabled).lower(),
        "Server": str(config.server.enabled).lower(),
        "Log Level": config.log_level.upper(),
        "Region": f"{config.region} (DC: {config.datacenter})",
        "HTTP": f"{'https' if config.tls.http else 'http'}://{host}:{config.ports.http}",
        "Internal": f"{config.addresses.rpc or config.bind_addr}:{config.ports.rpc}",
        "Gossip": gossip if config.server.enabled else "off",
        "DNS": f"{config.addresses.dns or config.bind_addr}:{config.ports.dns}" if config.dns.enabled else "off",
        "Data": config.data_dir,
        "Version": f"{__version__} (API of Nomad {COMPATIBLE_VERSION})",
    }
    width = max(map(len, facts))
    return [
        "==> lepa agent configuration:",
        "",
        *(f"{name:>{width + 4}}: {value}" for name, value in facts.items()),
        "",
    ]


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    log.debug("open files limit raised from=%d to=%d", soft, hard)
