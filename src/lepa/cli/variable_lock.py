"""`lepa var lock`: run a command while a variable is locked."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

from lepa.cli import variable_spec
from lepa.cli.flags import argument, command, flag, option
from lepa.cli.output import Json
from lepa.cli.session import Session, api
from lepa.cli.variables import path_of
from lepa.kit.durations import SECOND, parse_duration
from lepa.model.errors import LepaError, invalid

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
LOST = 1
RENEWED_AT = 0.5
BACKOFF_S = 1.0
ENDS_WITHIN_S = 10.0
PASSING = frozenset({"no_leader", "timeout", "internal"})


@command(words_after=True)
@argument("words", many=True, shown="<path> [@file] <command...>")
@flag("verbose", "Say what happens.", short="v")
@option("ttl", "How long the lock lasts when its holder no longer renews it.", metavar="duration")
@option("delay", "How long nobody gets it after that.", metavar="duration")
@flag("shell", "Run the command by a shell.", default=True)
@flag("early-return", "Do not wait while somebody else holds the lock.")
@option("max-retry", "How often to try again when no server answers.", kind=int, default=5, metavar="count")
@option("backoff", "How long to wait between attempts.", default="1s", metavar="duration")
@option(
    "out", "How to print the variable once it is locked: hcl, json, none or table.", default="none", metavar="format"
)
@api
def lock(
    session: Session,
    words: tuple[str, ...],
    verbose: bool,
    ttl: str | None,
    delay: str | None,
    shell: bool,
    early_return: bool,
    max_retry: int,
    backoff: str,
    out: str,
) -> int:
    """Run a command while the variable is locked; wait until nobody else holds it.

    The lock is given back when the command ends. When it is lost, the command gets SIGTERM. The exit code is the
    command's.
    """
    variable, child = _described(words)
    wanted: Json = {"TTL": ttl, "LockDelay": delay}
    variable["Lock"] = (variable.get("Lock") or {}) | {key: value for key, value in wanted.items() if value}
    if out not in variable_spec.FORMATS[1:]:
        raise invalid(f'-out is hcl, json, none or table, not "{out}"')
    say = session.out.error if verbose else _silent
    attempts = _Attempts(session, max_retry, _seconds(backoff, "backoff"), say)
    held = attempts.acquire(variable, wait=not early_return)
    say(f"lock on {held['Path']} acquired")
    try:
        if out != "none":
            session.out.line(variable_spec.shown(held, out, None))
            session.out.flush()
        return _run(child, shell, _seconds(held["Lock"]["TTL"], "ttl"), lambda: attempts.renew(held), say)
    finally:
        attempts.release(held)
        say(f"lock on {held['Path']} released")


def _silent(_: str) -> None:
    pass


def _seconds(text: str, name: str) -> float:
    try:
        return parse_duration(text) / SECOND
    except ValueError as error:
        raise invalid(f"-{name}: {error}") from error


def _described(words: Sequence[str]) -> tuple[Json, list[str]]:
    if not words:
        raise invalid("a path and a command are needed")
    count = 1 if words[0].startswith("@") or len(words) < 2 or not words[1].startswith("@") else 2
    child = list(words[count:])
    if not child:
        raise invalid("a command is needed: what to run while the variable is locked")
    return variable_spec.gathered(words[:count], "json"), child


class _Attempts:
    """Calls about one lock, tried again while no server answers."""

    def __init__(self, session: Session, most: int, pause_s: float, say: Callable[[str], None]) -> None:
        self._session = session
        self._most = most
        self._pause_s = max(pause_s, 0.01)
        self._say = say

    def acquire(self, variable: Json, *, wait: bool) -> Json:
        """The variable once it is locked for this command."""
        failed = 0
        while True:
            try:
                return self._ask("lock-acquire", variable, {"Items": variable["Items"], "Lock": variable["Lock"]})
            except LepaError as error:
                if error.code == "conflict":
                    if not wait:
                        raise LepaError("conflict", f"the variable {variable['Path']} is locked") from error
                    self._say(f"{variable['Path']} is locked by somebody else; waiting")
                elif error.code not in PASSING or failed == self._most:
                    raise
                else:
                    failed += 1
            self._session.sleep(self._pause_s)

    def renew(self, held: Json) -> None:
        """Keep the lock. Raises LepaError when it is lost."""
        self._ask("lock-renew", held, {"Lock": {"ID": held["Lock"]["ID"]}})

    def release(self, held: Json) -> None:
        """Give the lock back; it runs out by itself when nobody answers."""
        try:
            self._ask("lock-release", held, {"Lock": {"ID": held["Lock"]["ID"]}})
        except LepaError as error:
            self._say(f"lock not given back: {error.message}")

    def _ask(self, operation: str, variable: Json, body: Json) -> Json:
        body = {key: value for key, value in body.items() if value or key == "Lock"} | {"Path": variable["Path"]}
        namespace = self._session.nomad.target.namespace or variable.get("Namespace")
        query: dict[str, Any] = {operation: "", "namespace": namespace}
        found: Json = self._session.nomad.put(path_of(variable["Path"]), body, query).value
        return found


def _run(child: list[str], shell: bool, ttl_s: float, renew: Callable[[], None], say: Callable[[str], None]) -> int:
    """Run the command, renewing meanwhile; its exit code."""
    command = [os.environ.get("SHELL") or "/bin/sh", "-c", " ".join(child)] if shell else child
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        raise invalid(f"cannot run {child[0]}: {error.strerror or error}") from error
    with _passed_on(process):
        until = time.monotonic() + ttl_s
        while True:
            try:
                return _code(process.wait(ttl_s * RENEWED_AT))
            except subprocess.TimeoutExpired:
                pass
            try:
                renew()
                until = time.monotonic() + ttl_s
            except LepaError as error:
                if error.code in PASSING and time.monotonic() < until:
                    say(f"lock not renewed: {error.message}")
                    continue
                say(f"lock lost: {error.message}")
                _end(process)
                return LOST


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _code(code: int) -> int:
    return code if code >= 0 else 128 - code


@contextlib.contextmanager
def _passed_on(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """While it is entered, signals that would end this process go to the command."""

    def pass_on(number: int, _: FrameType | None) -> None:
        if process.poll() is None:
            process.send_signal(number)

    before = {each: signal.signal(each, pass_on) for each in SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
