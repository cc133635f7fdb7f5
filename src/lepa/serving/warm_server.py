"""Forks model processes from one that has imported already what they need: tens of milliseconds instead of a second.

    python -m lepa.serving.warm_server --socket PATH

Importing numpy and a framework is most of a model's start, and its memory is shared by all that are forked. One
request is one connection to a Unix socket: a line of JSON with the environment and the log file of the new process, and
the framework to have at hand; the answer is a line with its pid, or an error. Whoever opens the socket can run code as
this user, so it lies in a directory that only this user can enter.

The server itself never loads a model: it has no threads, no connections and no model's code, so a fork is a clean
beginning. It reaps what it forked; when it ends, the models go on.
"""

import argparse
import contextlib
import importlib
import os
import selectors
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from lepa.model.errors import LepaError
from lepa.serving import model_container

REQUEST_BYTES_MAX = 1 << 20
REQUEST_TIMEOUT_S = 5.0
CALL_TIMEOUT_S = 30.0
"""For the answer: the first model of a framework waits for its import."""
BACKLOG = 64
_IMPORTS = {"scikit-learn": ("sklearn.linear_model", "sklearn.ensemble", "joblib")}
"""What is worth having, and safe to fork with, by framework."""


class ForkRequest(Struct):
    """environment: of the new process, whole. log: the file for what it prints."""

    environment: dict[str, str]
    log: str
    framework: str = ""


class Forked(Struct):
    """pid: 0 with an error."""

    pid: int = 0
    error: str = ""


def fork_model(path: Path, environment: Mapping[str, str], log: Path, framework: str) -> int:
    """Ask the server at `path` for a new model process; its pid. Raises LepaError(internal) when there is none."""
    request = msgspec.json.encode(ForkRequest(dict(environment), str(log), framework))
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(CALL_TIMEOUT_S)
            connection.connect(str(path))
            connection.sendall(request + b"\n")
            answer = msgspec.json.decode(_line(connection), type=Forked)
    except (OSError, msgspec.MsgspecError) as error:
        raise LepaError("internal", f"the warm server at {path} does not answer: {error}") from error
    if not answer.pid:
        raise LepaError("internal", f"the warm server could not fork: {answer.error}")
    return answer.pid


def _line(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n"):
        piece = connection.recv(1 << 16)
        if not piece or len(received) > REQUEST_BYTES_MAX:
            raise OSError("the peer sent no whole line")
        received += piece
    return bytes(received)


class WarmServer:
    """See the module."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stopping = False
        self._selector = selectors.DefaultSelector()

    def run(self) -> None:
        """Serve until SIGTERM or SIGINT."""
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(BACKLOG)
        reading, self._waking = os.pipe()
        os.set_blocking(self._waking, False)
        signal.set_wakeup_fd(self._waking)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(reading, selectors.EVENT_READ)
        while not self._stopping:
            for key, _ in self._selector.select():
                if key.fileobj is self._listener:
                    self._serve(self._listener.accept()[0])
                else:
                    os.read(reading, 4096)
                    _reap()
        self._path.unlink(missing_ok=True)

    def _stop(self, number: int, frame: object) -> None:
        self._stopping = True

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(REQUEST_TIMEOUT_S)
            try:
                request = msgspec.json.decode(_line(connection), type=ForkRequest)
                _warm_up(request.framework)
                pid = os.fork()
            except (OSError, msgspec.MsgspecError) as error:
                answer = Forked(error=str(error))
            else:
                if not pid:
                    self._become_model(request, connection)
                answer = Forked(pid)
            with contextlib.suppress(OSError):
                connection.sendall(msgspec.json.encode(answer) + b"\n")

    def _become_model(self, request: ForkRequest, connection: socket.socket) -> None:
        """In the child: leave everything of the server's behind, and never return."""
        code = model_container.EXIT_FAILED
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            connection.close()
            self._listener.close()
            self._selector.close()
            _redirect(request.log)
            os.environ.clear()
            os.environ.update(request.environment)
            code = model_container.main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _redirect(log: str) -> None:
    """Standard input from nowhere, output and errors to the log."""
    nowhere = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for source, target in ((nowhere, 0), (output, 1), (output, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    os.close(output)


def _warm_up(framework: str) -> None:
    for module in _IMPORTS.get(framework, ()):
        with contextlib.suppress(ImportError):
            importlib.import_module(module)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a warm server until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="lepa.serving.warm_server", description="Fork model processes.")
    parser.add_argument("--socket", type=Path, required=True, help="the Unix socket to listen on")
    WarmServer(parser.parse_args(arguments).socket).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
