"""What runs inside a model container: loads the model, and answers batches of every query frontend it is connected to.

    python -m lepa.serving.model_container

    CLIPPER_MODEL_NAME, CLIPPER_MODEL_VERSION   who this is (required)
    CLIPPER_MODEL_PATH                          the deployable model's directory (/model)
    CLIPPER_INPUT_TYPE                          one of the five input types (doubles)
    CLIPPER_IP, CLIPPER_PORT                    the query frontend's RPC port (127.0.0.1, 7000)
    LEPA_DISCOVERY                              where services are found (see `addressing`), for what follows
    LEPA_RPC_SERVICE                            serve every query frontend of this service: each at its own address,
                                                or, where CLIPPER_IP is set too, through the balancer that it names
    LEPA_MODEL_IMAGE                            fetch this model archive into CLIPPER_MODEL_PATH first
    LEPA_MANAGEMENT_SERVICE                     from the management frontend of this service

The first are Clipper's names. One thread does everything: it waits for a batch, predicts, answers. ZeroMQ's own thread
keeps connections alive meanwhile, so a long prediction needs no heartbeat. When a frontend has been silent for
`SILENT_S` its address is looked up again, for it may have moved.

Through a balancer there are as many sessions as there are frontends, and where one leads is only known once the
frontend has introduced itself. One that leads to a frontend that is served already hangs up, and tries again later.

A model that raises, or answers with nonsense, fails queries and not the process: the batch is tried again one by one,
so that only the queries that cannot be answered are refused. The exit codes are Clipper's: 1, and 3 for a missing
package.
"""

import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
import zmq
from msgspec import Struct

from lepa.model.errors import LepaError, invalid
from lepa.serving import admin_client, model_directory
from lepa.serving.addresses import Address
from lepa.serving.addressing import Locator, dns_provider
from lepa.serving.container_rpc import (
    HEARTBEAT_FRAMES,
    Batch,
    Failure,
    Malformed,
    decode_from_frontend,
    encode_new_container,
    encode_outputs,
)
from lepa.serving.frameworks import PredictFunction
from lepa.serving.inputs import InputType, input_type
from lepa.serving.model_archive import parse_image, unpack

log = logging.getLogger(__name__)

HEARTBEAT_S = 1.0
"""Of silence from us: then a heartbeat is sent."""
SILENT_S = 5.0
"""Of silence from a frontend, the time of batches apart: then its address is looked up again."""
KEEP_EVERY_S = 0.25
"""Between two looks at heartbeats and at the list of frontends."""
LOOK_UP_EVERY_S = 1.0
"""Between two look-ups of the frontends; answers are kept for their TTL."""
FRONTENDS_MAX = 100
REDIAL_FIRST_S, REDIAL_MAX_S = 0.25, 16.0
"""Until a session tries again that was led to a frontend that another serves."""
MESSAGES_PER_TURN = 4
SEND_QUEUE_MAX = 1000
FETCH_TIMEOUT_S = 120.0
FETCH_RETRY_S = 1.0
PING_MS = 2000
GRACE_S = 5.0
"""For the batch at hand, once the process was told to stop."""
EXIT_FAILED = 1
EXIT_PACKAGE_MISSING = 3

_DTYPES = {"bytes": "int8", "integers": "<i4", "floats": "<f4", "doubles": "<f8"}


class ContainerSettings(Struct, frozen=True):
    """See the module's table of variables; "" where one is not set. balanced: `frontend` is a load balancer."""

    model_name: str
    model_version: str
    model_path: Path
    input_type: str
    frontend: Address
    discovery: str = ""
    rpc_service: str = ""
    model_image: str = ""
    management_service: str = ""
    balanced: bool = False


def settings_from(environment: Mapping[str, str]) -> ContainerSettings:
    """The settings in the environment. Raises LepaError(invalid) naming what is missing."""
    for name in ("CLIPPER_MODEL_NAME", "CLIPPER_MODEL_VERSION"):
        if not environment.get(name):
            raise invalid(f"{name} is not set: a model container must know which model it serves")
    port = environment.get("CLIPPER_PORT", "7000")
    if not port.isdigit():
        raise invalid(f'CLIPPER_PORT is "{port}": expected a port number')
    if environment.get("LEPA_RPC_SERVICE") and not environment.get("LEPA_DISCOVERY"):
        raise invalid("LEPA_RPC_SERVICE is set, but not LEPA_DISCOVERY: where shall the service be looked up?")
    return ContainerSettings(
        model_name=environment["CLIPPER_MODEL_NAME"],
        model_version=environment["CLIPPER_MODEL_VERSION"],
        model_path=Path(environment.get("CLIPPER_MODEL_PATH", "/model")),
        input_type=input_type(environment.get("CLIPPER_INPUT_TYPE", "doubles")).name,
        frontend=Address(environment.get("CLIPPER_IP", "127.0.0.1"), int(port)),
        discovery=environment.get("LEPA_DISCOVERY", ""),
        rpc_service=environment.get("LEPA_RPC_SERVICE", ""),
        model_image=environment.get("LEPA_MODEL_IMAGE", ""),
        management_service=environment.get("LEPA_MANAGEMENT_SERVICE", ""),
        balanced=bool(environment.get("LEPA_RPC_SERVICE") and environment.get("CLIPPER_IP")),
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
    """One output on the wire: bytes as they are; arrays, lists and dicts as JSON; anything else as `str` has it."""
    if isinstance(output, bytes):
        return output
    if isinstance(output, list | tuple | dict) or (hasattr(output, "tolist") and not isinstance(output, np.generic)):
        return json.dumps(output, default=_plain).encode()
    return str(output).encode()


def _plain(value: Any) -> Any:
    if not hasattr(value, "tolist"):
        raise TypeError(f"a {type(value).__name__} in an output cannot be written as JSON")
    return value.tolist()


def fetch_model(settings: ContainerSettings) -> None:
    """Fetch the model's archive from the management frontend, which may be on its way up or elsewhere."""
    image = parse_image(settings.model_image)
    locator = Locator(dns_provider(settings.discovery))
    give_up = time.monotonic() + FETCH_TIMEOUT_S
    while True:
        try:
            archive = admin_client.send(locator.first(settings.management_service), "GET", image.path, timeout_s=60.0)
        except LepaError as error:
            if time.monotonic() > give_up:
                raise
            log.warning("model archive was not fetched image=%s error=%s", image, error)
            time.sleep(FETCH_RETRY_S)
            continue
        unpack(archive, image, settings.model_path)
        return


# The wire


class Place(NamedTuple):
    """Where a session goes. number: tells sessions through one balancer apart."""

    address: Address
    number: int = 0


class Session:
    """One query frontend: a DEALER that is opened anew when the frontend has been silent for too long.

    frontend: the name by which the frontend introduced itself, b"" before.
    """

    def __init__(self, context: "zmq.Context[Any]", poller: zmq.Poller, address: Address) -> None:
        self._context = context
        self._poller = poller
        self._address = address
        self._redial_at: float | None = None
        self._redial_s = REDIAL_FIRST_S
        self.socket = self._open()

    def _open(self) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = self._context.socket(zmq.DEALER)
        socket.linger = 1000
        socket.setsockopt(zmq.HEARTBEAT_IVL, PING_MS)
        socket.setsockopt(zmq.SNDHWM, SEND_QUEUE_MAX)
        if ":" in self._address.host:
            socket.setsockopt(zmq.IPV6, 1)
        socket.connect(f"tcp://{self._address}")
        self._poller.register(socket, zmq.POLLIN)
        self._redial_at = None
        self.frontend = b""
        self.heard_at = time.monotonic()
        self.said_at = 0.0
        log.info("connecting to query frontend address=%s", self._address)
        return socket

    def close(self) -> None:
        if self._redial_at is None:
            self._poller.unregister(self.socket)
            self.socket.close()

    def met(self, frontend: bytes) -> None:
        """This session serves a frontend that no other one does."""
        self.frontend = frontend
        self._redial_s = REDIAL_FIRST_S

    def hang_up(self, now: float) -> None:
        """Leave a frontend that another session serves, and try again later."""
        self.close()
        self.frontend = b""
        self._redial_at = now + self._redial_s
        self._redial_s = min(2 * self._redial_s, REDIAL_MAX_S)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send, or drop it when the frontend takes nothing any more."""
        self.said_at = time.monotonic()
        try:
            self.socket.send_multipart(frames, zmq.DONTWAIT)
        except zmq.Again:
            log.warning("message was dropped address=%s reason=the query frontend takes none", self._address)

    def receive(self) -> list[bytes] | None:
        """One message, if there is one."""
        if self._redial_at is not None:
            return None
        try:
            frames: list[bytes] = self.socket.recv_multipart(zmq.DONTWAIT)
        except zmq.Again:
            return None
        self.heard_at = time.monotonic()
        return frames

    def silent(self, now: float) -> bool:
        return now - self.heard_at > SILENT_S

    def keep(self, now: float) -> None:
        """Heartbeat when it is time; connect anew when nothing is heard."""
        if self._redial_at is not None:
            if now >= self._redial_at:
                self.socket = self._open()
            return
        if self.silent(now):
            self.close()
            self.socket = self._open()
        if now - self.said_at >= HEARTBEAT_S:
            self.send(HEARTBEAT_FRAMES)


class FrontendFinder:
    """Keeps the list of places fresh, in a thread of its own: a look-up may block, batches may not."""

    def __init__(self, settings: ContainerSettings) -> None:
        self._settings = settings
        self.places: tuple[Place, ...] = ()
        if not settings.rpc_service or settings.balanced:
            self.places = (Place(settings.frontend),)
        if settings.rpc_service:
            self._locator = Locator(dns_provider(settings.discovery))
            threading.Thread(target=self._follow, name="find-frontends", daemon=True).start()

    def _follow(self) -> None:
        service = self._settings.rpc_service
        while True:
            try:
                self.places = self._places(self._locator.locate(service)[:FRONTENDS_MAX])
            except LepaError as error:
                log.warning("query frontends were not found service=%s error=%s", service, error)
            time.sleep(LOOK_UP_EVERY_S)

    def _places(self, located: Sequence[Address]) -> tuple[Place, ...]:
        """One place for each frontend."""
        if self._settings.balanced:
            return tuple(Place(self._settings.frontend, number) for number in range(max(1, len(located))))
        return tuple(map(Place, located))


class ModelContainer:
    """Serves one model version until it is told to stop."""

    def __init__(self, settings: ContainerSettings, function: PredictFunction) -> None:
        self._settings = settings
        self._function = function
        self._kind = input_type(settings.input_type)
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context(io_threads=1)
        self._poller = zmq.Poller()
        self._finder = FrontendFinder(settings)
        self._sessions: dict[Place, Session] = {}
        self._stopping = False

    def stop(self, number: int = 0, frame: FrameType | None = None) -> None:
        """Finish the batch at hand and leave, or leave after `GRACE_S`; may be called by a signal."""
        if not self._stopping:
            self._stopping = True
            overdue = threading.Timer(GRACE_S, os._exit, [EXIT_FAILED])
            overdue.daemon = True
            overdue.start()

    def run(self) -> None:
        """Serve until `stop`."""
        kept_at = 0.0
        while not self._stopping:
            if (now := time.monotonic()) - kept_at >= KEEP_EVERY_S:
                self._keep_sessions(now)
                kept_at = now
            if self._poller.poll(int(KEEP_EVERY_S * 1000)):
                for session in list(self._sessions.values()):
                    self._serve(session)
        for session in self._sessions.values():
            session.close()
        self._context.term()

    def _keep_sessions(self, now: float) -> None:
        """Join new frontends; leave those that are no longer named and are silent; keep the others."""
        named = self._finder.places
        for place in named:
            if place not in self._sessions:
                self._sessions[place] = Session(self._context, self._poller, place.address)
        for place, session in list(self._sessions.items()):
            if place not in named and session.silent(now):
                session.close()
                del self._sessions[place]
            else:
                session.keep(now)

    def _serve(self, session: Session) -> None:
        """Answer what one frontend has sent; a few messages, then it is another one's turn."""
        for _ in range(MESSAGES_PER_TURN):
            frames = None if self._stopping else session.receive()
            if frames is None:
                return
            self._handle(session, frames)

    def _handle(self, session: Session, frames: list[bytes]) -> None:
        message = decode_from_frontend(frames)
        if isinstance(message, Batch):
            began = time.monotonic()
            outputs = self._answer(message)
            self._was_deaf(time.monotonic() - began)
            session.send(encode_outputs(message.message_id, outputs, message.packed))
        elif isinstance(message, Malformed):
            log.warning("message was malformed reason=%s", message.reason)
        elif message.who:
            settings = self._settings
            session.send(encode_new_container(settings.model_name, settings.model_version, self._kind.code))
        elif message.frontend:
            self._introduced(session, message.frontend)

    def _introduced(self, session: Session, frontend: bytes) -> None:
        """A session knows where it leads now."""
        if any(other is not session and other.frontend == frontend for other in self._sessions.values()):
            session.hang_up(time.monotonic())
        else:
            session.met(frontend)

    def _was_deaf(self, seconds: float) -> None:
        """While the model ran nothing was read: that time is no silence of the frontends."""
        for session in self._sessions.values():
            session.heard_at += seconds

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
        if settings.model_image:
            fetch_model(settings)
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
