"""What runs inside a model container: loads the model, and answers batches of every query frontend it is connected to.

    python -m lepa.serving.model_container

    CLIPPER_MODEL_NAME, CLIPPER_MODEL_VERSION   who this is (required)
    CLIPPER_MODEL_PATH                          the deployable model's directory (/model)
    CLIPPER_INPUT_TYPE                          one of the five input types (doubles)
    CLIPPER_IP, CLIPPER_PORT                    the query frontend's RPC port (127.0.0.1, 7000)

The names are Clipper's. One thread does everything: it waits for a batch, predicts, answers. ZeroMQ's own thread
keeps connections alive meanwhile, so a long prediction needs no heartbeat. When a frontend has been silent for
`SILENT_S` its address is looked up again, for it may have moved.

A model that raises, or answers with nonsense, fails queries and not the process: the batch is tried again one by one,
so that only the queries that cannot be answered are refused. The exit codes are Clipper's: 1, and 3 for a missing
package.
"""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import zmq
from msgspec import Struct

from lepa.model.errors import LepaError, invalid
from lepa.serving import model_directory
from lepa.serving.addressing import Address
from lepa.serving.container_rpc import (
    HEARTBEAT_FRAMES,
    Batch,
    Failure,
    Malformed,
    decode_from_frontend,
    encode_new_container,
    encode_outputs,
)
from lepa.serving.inputs import InputType, input_type
from lepa.serving.model_directory import PredictFunction

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
"""Of silence from us: then a heartbeat is sent."""
SILENT_S = 5.0
"""Of silence from a frontend: then its address is looked up again."""
PING_MS = 2000
EXIT_FAILED = 1
EXIT_PACKAGE_MISSING = 3

_DTYPES = {"bytes": "int8", "integers": "<i4", "floats": "<f4", "doubles": "<f8"}


class ContainerSettings(Struct, frozen=True):
    """See the module's table of variables."""

    model_name: str
    model_version: str
    model_path: Path
    input_type: str
    frontend: Address


def settings_from(environment: Mapping[str, str]) -> ContainerSettings:
    """The settings in the environment. Raises LepaError(invalid) naming what is missing."""
    for name in ("CLIPPER_MODEL_NAME", "CLIPPER_MODEL_VERSION"):
        if not environment.get(name):
            raise invalid(f"{name} is not set: a model container must know which model it serves")
    port = environment.get("CLIPPER_PORT", "7000")
    if not port.isdigit():
        raise invalid(f'CLIPPER_PORT is "{port}": expected a port number')
    return ContainerSettings(
        model_name=environment["CLIPPER_MODEL_NAME"],
        model_version=environment["CLIPPER_MODEL_VERSION"],
        model_path=Path(environment.get("CLIPPER_MODEL_PATH", "/model")),
        input_type=input_type(environment.get("CLIPPER_INPUT_TYPE", "doubles")).name,
        frontend=Address(environment.get("CLIPPER_IP", "127.0.0.1"), int(port)),
    )


# The model


def model_inputs(kind: InputType, inputs: Sequence[bytes]) -> Any:
    """The inputs as a prediction function takes them: rows of one numpy array where they are equally long, else an
    object array of arrays; strings are an object array of str. The arrays are the function's to keep and to change."""
    if kind.name == "strings":
        return _objects([text.decode() for text in inputs])
    dtype = _DTYPES[kind.name]
    if len({len(item) for item in inputs}) == 1:
        return np.frombuffer(bytearray(b"".join(inputs)), dtype).reshape(len(inputs), -1)
    return _objects([np.frombuffer(bytearray(item), dtype) for item in inputs])


def _objects(items: list[Any]) -> Any:
    array = np.empty(len(items), object)
    array[:] = items
    return array


def predict_batch(function: PredictFunction, kind: InputType, inputs: Sequence[bytes]) -> list[bytes | Failure]:
    """One output for each input. Where the function fails for the batch, each input is tried alone."""
    try:
        outputs = function(model_inputs(kind, inputs))
        if len(outputs) != len(inputs):
            raise ValueError(f"the model gave {len(outputs)} outputs for {len(inputs)} inputs")
        return [_output(output) for output in outputs]
    except Exception as error:
        if len(inputs) > 1:
            return [predict_batch(function, kind, [item])[0] for item in inputs]
        log.warning("prediction failed", exc_info=error)
        return [Failure(f"{type(error).__name__}: {error}")]


def _output(output: Any) -> bytes:
    return output if isinstance(output, bytes) else str(output).encode()


# The wire


class Session:
    """One query frontend: a DEALER that is opened anew when the frontend has been silent for too long."""

    def __init__(self, context: "zmq.Context[Any]", poller: zmq.Poller, locate: Callable[[], Address]) -> None:
        self._context = context
        self._poller = poller
        self._locate = locate
        self.socket = self._open()

    def _open(self) -> "zmq.Socket[bytes]":
        address = self._locate()
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.linger = 1000
        socket.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        if ":" in address.host:
            socket.setsockopt(zmq.IPV6, 1)
        socket.connect(f"tcp://{address}")
        self._poller.register(socket, zmq.POLLIN)
        self.opened_at = self.heard_at = time.monotonic()
        self.said_at = 0.0
        log.info("connecting to query frontend address=%s", address)
        return socket

    def close(self) -> None:
        self._poller.unregister(self.socket)
        self.socket.close()

    def send(self, frames: Sequence[bytes]) -> None:
        """Send, or drop it when the frontend takes nothing any more."""
        self.said_at = time.monotonic()
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            log.warning("message was dropped reason=the query frontend takes none")

    def receive(self) -> list[bytes] | None:
        """One message, if there is one."""
        try:
            frames: list[bytes] = self.socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        self.heard_at = time.monotonic()
        return frames

    def keep(self, now: float) -> None:
        """Heartbeat when it is time; reconnect when nothing is heard."""
        if now - self.heard_at > SILENT_S:
            self.close()
            self.socket = self._open()
        if now - self.said_at >= HEARTBEAT_S:
            self.send(HEARTBEAT_FRAMES)


class ModelContainer:
    """Serves one model version until it is told to stop."""

    def __init__(self, settings: ContainerSettings, function: PredictFunction) -> None:
        self._settings = settings
        self._function = function
        self._kind = input_type(settings.input_type)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._poller = zmq.Poller()
        self._stopping = False

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Finish the batch at hand and leave; may be called by a signal."""
        self._stopping = True

    def run(self) -> None:
        session = Session(self._context, self._poller, lambda: self._settings.frontend)
        while not self._stopping:
            session.keep(time.monotonic())
            if self._poller.poll(int(HEARTBEAT_S * 1000)):
                while not self._stopping and (frames := session.receive()) is not None:
                    self._handle(session, frames)
        session.close()
        self._context.term()

    def _handle(self, session: Session, frames: list[bytes]) -> None:
        message = decode_from_frontend(frames)
        if isinstance(message, Batch):
            session.send(encode_outputs(message.message_id, self._answer(message), message.packed))
        elif isinstance(message, Malformed):
            log.warning("message was malformed reason=%s", message.reason)
        elif message.who:
            settings = self._settings
            session.send(encode_new_container(settings.model_name, settings.model_version, self._kind.code))

    def _answer(self, batch: Batch) -> list[bytes | Failure]:
        if batch.input_type != self._kind.code:
            failure = Failure(f"the model takes {self._kind.name}, the query is of input type {batch.input_type}")
            return [failure] * len(batch.inputs)
        return predict_batch(self._function, self._kind, batch.inputs) if batch.inputs else []


def main() -> int:
    """Serve the model that the environment names. Returns the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr)
    try:
        settings = settings_from(os.environ)
        function = model_directory.load(settings.model_path)
    except ImportError as error:
        print(f"the model cannot be loaded: {error}; install the package in the container", file=sys.stderr)
        return EXIT_PACKAGE_MISSING
    except LepaError as error:
        print(f"the model cannot be served: {error}", file=sys.stderr)
        return EXIT_FAILED
    except Exception as error:
        log.error("the model cannot be loaded", exc_info=error)
        return EXIT_FAILED
    container = ModelContainer(settings, function)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, container.stop)
    log.info("model loaded name=%s version=%s", settings.model_name, settings.model_version)
    container.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
