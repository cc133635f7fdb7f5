"""Runs an ingress: `python -m lepa.ingress --agent http://127.0.0.1:4646 --http 9999`.

The agent runs it so too, with `--settings -`: the settings are one line of JSON on standard input then, and the end of
that input means that the agent has gone.
"""

import argparse
import asyncio
import contextlib
import gc
import os
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from lepa.ingress.ingress import Ingress
from lepa.ingress.settings import IngressSettings
from lepa.kit.sources import SystemClock, SystemRandom
from lepa.kit.telemetry import set_up_logging
from lepa.model.errors import LepaError, invalid
from lepa.sdk.address import target

SWITCH_S = 0.0002
"""How long building a table may keep the interpreter from the thread that carries traffic."""
GC_THRESHOLDS = (50_000, 25, 40)
LISTED = {"tcp", "certificates"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run until SIGINT or SIGTERM; the process's exit code. Never raises LepaError: says what is wrong."""
    parsed = parser().parse_args(arguments)
    handler = set_up_logging(parsed.log_level, as_json=parsed.log_json)
    tune_interpreter()
    _raise_file_limit()
    try:
        settings = settings_of(parsed)
        return asyncio.run(_serve(settings, parsed.agent, parsed.tell, supervised=parsed.settings == "-"))
    except LepaError as error:
        print(f"Error starting ingress: {error.message}", file=sys.stderr)
        _tell(parsed.tell, error.message)
        return 1
    finally:
        handler.flush()


def tune_interpreter() -> None:
    """For a thread that answers at once beside one that builds large tables."""
    sys.setswitchinterval(SWITCH_S)
    gc.set_threshold(*GC_THRESHOLDS)


def parser() -> argparse.ArgumentParser:
    """One option for each setting, besides those of the program."""
    found = argparse.ArgumentParser(
        prog="python -m lepa.ingress", description="Carry traffic to services by their tags."
    )
    found.add_argument(
        "--agent", default="", metavar="URL", help="an agent's HTTP API; default LEPA_ADDR or NOMAD_ADDR"
    )
    found.add_argument(
        "--settings", default="", metavar="FILE", help="settings as JSON; - is one line of standard input"
    )
    found.add_argument("--tell", type=int, default=0, help=argparse.SUPPRESS)
    found.add_argument("--log-level", default="info")
    found.add_argument("--log-json", action="store_true")
    for field in msgspec.structs.fields(IngressSettings):
        name = f"--{field.name.replace('_', '-')}"
        if field.name in LISTED:
            found.add_argument(name, action="append", metavar="VALUE", default=None)
        elif isinstance(field.default, bool):
            found.add_argument(name, action=argparse.BooleanOptionalAction, default=None)
        elif field.default is msgspec.NODEFAULT:
            found.add_argument(name, action="append", metavar="NAME=VALUE", default=None)
        else:
            found.add_argument(name, metavar=str(field.default) or "VALUE", default=None)
    return found


def settings_of(parsed: argparse.Namespace) -> IngressSettings:
    """The settings of a command line, laid over those of a file. Raises LepaError(invalid)."""
    values: dict[str, Any] = {}
    try:
        if parsed.settings:
            text = sys.stdin.readline() if parsed.settings == "-" else Path(parsed.settings).read_text()
            values = msgspec.json.decode(text, type=dict[str, Any])
        for field in msgspec.structs.fields(IngressSettings):
            given = getattr(parsed, field.name)
            if given is not None:
                pairs = field.default is msgspec.NODEFAULT
                values[field.name] = dict(pair.partition("=")[::2] for pair in given) if pairs else given
        return msgspec.convert(values, IngressSettings, strict=False)
    except (OSError, msgspec.MsgspecError) as error:
        raise invalid(f"ingress: settings: {error}") from error


async def _serve(settings: IngressSettings, agent: str, tell: int, *, supervised: bool) -> int:
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    if supervised:
        loop.add_reader(sys.stdin.fileno(), _tell_at_end, told)
    async with Ingress(settings, target(os.environ, address=agent), SystemClock(), SystemRandom()):
        _tell(tell, "started")
        gc.freeze()
        await told.wait()
    return 0


def _tell(descriptor: int, text: str) -> None:
    """Say to whoever started us how that went. descriptor: 0 for nobody."""
    if descriptor:
        with contextlib.suppress(OSError):
            os.write(descriptor, f"{text}\n".encode())


def _tell_at_end(told: asyncio.Event) -> None:
    """Whoever started us has ended."""
    if not os.read(sys.stdin.fileno(), 4_096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        told.set()


def _raise_file_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


if __name__ == "__main__":
    sys.exit(main())
