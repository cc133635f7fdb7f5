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

The first are Clipper's names. One thread does everything: it waits for a batch, predicts, answers. The kernel keeps
connections alive meanwhile, so a long prediction needs no heartbeat. When a frontend has been silent for `SILENT_S` its
address is looked up again, for it may have moved.

Through a balancer there are as many sessions as there are frontends, and where one leads is only known once the
frontend has introduced itself. One that leads to a frontend that is served already hangs up, and tries again later.

A model that raises, wants to exit, or answers with nonsense, fails queries and not the process: the batch is tried
again one by one, so that only the queries that cannot be answered are refused. A process that the model forks has none
of the connections: it could neither answer nor keep the frontend from noticing that this one is gone. The exit codes
are Clipper's: 1, and 3 for a missing package.

A replica is waited for while it starts, so what not every one needs is imported where it is needed.
"""

import contextlib
import json
import logging
import os
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from lepa.kit.sources import Random, SystemRandom
from lepa.model.errors import LepaError, invalid
from lepa.serving import model_directory, zmtp
from lepa.serving.addresses import Address
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
from lepa.serving.message_socket import MessageSocket, PeerGone

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
INSTANCE_BYTES = 16
REDIAL_FIRST_S, REDIAL_MAX_S = 0.25, 2.0
"""At most until a session tries again that was led to a frontend that another serves."""
CONNECT_RETRY_S = 0.1
"""Until a frontend is tried again that cannot be connected to."""
LINGER_S = 1.0
"""For the last answers, when the process leaves."""
FETCH_TIMEOUT_S = 120.0
FETCH_RETRY_S = 1.0
HELLO = zmtp.hello("DEALER")
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
    except (Exception, SystemExit) as error:
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
    from lepa.serving import admin_client
    from lepa.serving.addressing import Locator, dns_provider
    from lepa.serving.model_archive import parse_image, unpack

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


def redial_after_s(at_most_s: float, random: Random) -> float:
    """How long a session waits that was led to a frontend that another serves. Not as long as one of another replica:
    in step with each other, a balancer that takes turns would lead each to the same frontend for ever."""
    return random.uniform(0.5, 1.0) * at_most_s


class Session:
    """One query frontend: a DEALER that is opened anew when the connection ends or the frontend is silent for too long.

    frontend: the name by which the frontend introduced itself, b"" before.
    """

    def __init__(self, selector: selectors.BaseSelector, address: Address, random: Random) -> None:
        self._selector = selector
        self._address = address
        self._random = random
        self._socket: MessageSocket | None = None
        self._writing = False
        self._failing = False
        self._open_at = 0.0
        self._redial_s = REDIAL_FIRST_S
        self.frontend = b""
        self.heard_at = self.said_at = 0.0
        self._open()

    def _open(self) -> None:
        """Begin to connect; the heartbeat that is sent first waits until that is done."""
        self.heard_at = time.monotonic()
        self.frontend = b""
        log.log(
            logging.DEBUG if self._failing else logging.INFO, "connecting to query frontend address=%s", self._address
        )
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)[0]
            connection = socket.socket(family, kind, protocol)
            self._socket = MessageSocket(connection, HELLO)
            connection.connect_ex(address)
        except OSError as error:
            self._failed(str(error))
            return
        self._writing = True
        self._selector.register(self._socket, selectors.EVENT_READ | selectors.EVENT_WRITE, self)
        self.send(HEARTBEAT_FRAMES)

    def close(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._socket)
            self._socket.close()
            self._socket = None

    def forget(self) -> None:
        """Close the connection in this process alone, and leave what watches it to the other."""
        if self._socket is not None:
            self._socket.close()

    def _failed(self, reason: str) -> None:
        """Connect anew in a moment."""
        level = logging.DEBUG if self._failing else logging.WARNING
        log.log(level, "query frontend is not connected address=%s reason=%s", self._address, reason)
        self._failing = True
        self.close()
        self._open_at = time.monotonic() + CONNECT_RETRY_S

    def met(self, frontend: bytes) -> None:
        """This session serves a frontend that no other one does."""
        self.frontend = frontend
        self._redial_s = REDIAL_FIRST_S

    def hang_up(self, now: float) -> None:
        """Leave a frontend that another session serves, and try again later."""
        self.close()
        self.frontend = b""
        self._open_at = now + redial_after_s(self._redial_s, self._random)
        self._redial_s = min(2 * self._redial_s, REDIAL_MAX_S)

    def send(self, frames: Sequence[bytes]) -> None:
        """Send, now or as soon as the frontend takes it; what is said to one that is gone is lost."""
        self.said_at = time.monotonic()
        if self._socket is None:
            return
        try:
            self._socket.send(frames)
        except PeerGone as gone:
            self._failed(str(gone))
        else:
            self._watch_writable()

    def receive(self, events: int) -> list[list[bytes]]:
        """What has come in, for these events of the selector."""
        if self._socket is None:
            return []
        try:
            if events & selectors.EVENT_WRITE:
                self._socket.flush()
            messages = self._socket.receive() if events & selectors.EVENT_READ else []
        except PeerGone as gone:
            self._failed(str(gone))
            return []
        if events & selectors.EVENT_READ:
            self._failing = False
            self.heard_at = time.monotonic()
        self._watch_writable()
        return messages

    def _watch_writable(self) -> None:
        if self._socket is None or self._socket.pending == self._writing:
            return
        self._writing = not self._writing
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing else 0)
        self._selector.modify(self._socket, wanted, self)

    @property
    def pending(self) -> bool:
        """Whether something is still to be sent."""
        return self._socket is not None and self._socket.pending

    def silent(self, now: float) -> bool:
        return now - self.heard_at > SILENT_S

    def keep(self, now: float) -> None:
        """Heartbeat when it is time; connect anew when nothing is heard."""
        if self._socket is None:
            if now >= self._open_at:
                self._open()
            return
        if self.silent(now):
            log.info("query frontend is silent address=%s", self._address)
            self.close()
            self._open()
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
            from lepa.serving.addressing import Locator, dns_provider

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
    """Serves one model version until it is told to stop. instance: what it is known by at every frontend."""

    def __init__(self, settings: ContainerSettings, function: PredictFunction) -> None:
        self._settings = settings
        self._function = function
        self._kind = input_type(settings.input_type)
        self.instance = os.urandom(INSTANCE_BYTES).hex()
        self._random = SystemRandom()
        self._selector = selectors.DefaultSelector()
        self._finder = FrontendFinder(settings)
        self._sessions: dict[Place, Session] = {}
        self._stopping = False
        self._process = os.getpid()
        os.register_at_fork(after_in_child=self._forked)

    @property
    def stopping(self) -> bool:
        """Whether it was told to stop."""
        return self._stopping

    def stop(self) -> None:
        """Finish the batch at hand and leave; may be called by a signal, and by another thread."""
        self._stopping = True

    def _forked(self) -> None:
        """In a process that the model has forked: leave the connections to this one's parent."""
        for session in self._sessions.values():
            session.forget()

    def run(self) -> None:
        """Serve until `stop`."""
        kept_at = 0.0
        while not self._stopping:
            if (now := time.monotonic()) - kept_at >= KEEP_EVERY_S:
                self._keep_sessions(now)
                kept_at = now
            self._turn(KEEP_EVERY_S)
        self._say_the_rest()
        for session in self._sessions.values():
            session.close()
        self._selector.close()

    def _turn(self, timeout_s: float) -> None:
        """Wait for something to happen, and serve whom it happened to."""
        if not self._sessions:
            time.sleep(timeout_s)
        for key, events in self._selector.select(timeout_s):
            session: Session = key.data
            for frames in session.receive(events):
                self._handle(session, frames)

    def _say_the_rest(self) -> None:
        """Give the last answers a moment to leave."""
        give_up = time.monotonic() + LINGER_S
        while time.monotonic() < give_up and any(session.pending for session in self._sessions.values()):
            for key, events in self._selector.select(LINGER_S / 10):
                key.data.receive(events & selectors.EVENT_WRITE)

    def _keep_sessions(self, now: float) -> None:
        """Join new frontends; leave those that are no longer named and are silent; keep the others."""
        named = self._finder.places
        for place in named:
            if place not in self._sessions:
                self._sessions[place] = Session(self._selector, place.address, self._random)
        for place, session in list(self._sessions.items()):
            if place not in named and session.silent(now):
                session.close()
                del self._sessions[place]
            else:
                session.keep(now)

    def _handle(self, session: Session, frames: list[bytes]) -> None:
        message = decode_from_frontend(frames)
        if self._stopping:
            return
        if isinstance(message, Batch):
            began = time.monotonic()
            outputs = self._answer(message)
            if os.getpid() != self._process:
                os._exit(EXIT_FAILED)  # The model forked, and its child came back here.
            self._was_deaf(time.monotonic() - began)
            session.send(encode_outputs(message.message_id, outputs, message.packed))
        elif isinstance(message, Malformed):
            log.warning("message was malformed reason=%s", message.reason)
        elif message.who:
            settings = self._settings
            who = encode_new_container(settings.model_name, settings.model_version, self._kind.code, self.instance)
            session.send(who)
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
    _stop_by_signals(container)
    log.info("model loaded name=%s version=%s", settings.model_name, settings.model_version)
    container.run()
    return 0


def _stop_by_signals(container: ModelContainer) -> None:
    """Let SIGTERM and SIGINT stop the container, and end the process when that takes longer than `GRACE_S`."""

    def stop(number: int, frame: FrameType | None) -> None:
        if not container.stopping:
            container.stop()
            overdue = threading.Timer(GRACE_S, os._exit, [EXIT_FAILED])
            overdue.daemon = True
            overdue.start()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)


if __name__ == "__main__":
    sys.exit(main())
