"""The other protocols a query frontend speaks: the Open Inference Protocol (/v2) and OpenAI's API (/v1).

A request becomes queries like any other: same deadlines, same batches, same cache. Only what a model's own HTTP server
answers is passed through.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

import msgspec

from lepa import __version__
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid, not_found
from lepa.serving import inference_protocol, openai_api
from lepa.serving.http_connection import Headers, HttpConnection
from lepa.serving.inference_protocol import application_named
from lepa.serving.pass_through import PassThrough
from lepa.serving.query import Predictions
from lepa.serving.served import Answer, Reply, ServedApplication, ServedModel

WAKE_S = 60.0
"""For the first replica of a model that has gone to zero, until a request that passes through is given up."""

_STATUS = {"invalid": 400, "not_found": 404, "unsupported": 400, "timeout": 503}


class Frontend(Protocol):
    """What the doors need of the query frontend."""

    predictions: Predictions

    @property
    def configured(self) -> bool:
        """Whether it is known what is served."""

    def now(self) -> float:
        """Monotonic seconds."""

    def ask(self, served: ServedApplication, data: bytes, version: str, reply: Reply) -> None:
        """Open one query."""


class OpenDoors:
    """See the module."""

    def __init__(self, frontend: Frontend, pass_through: PassThrough, tasks: Tasks) -> None:
        self._frontend = frontend
        self._pass_through = pass_through
        self._tasks = tasks

    def handle(self, connection: HttpConnection, method: bytes, path: bytes, headers: Headers, body: bytes) -> None:
        """Answer a request whose path begins with /v1/ or /v2."""
        try:
            if path.startswith(b"/v1/"):
                self._openai(connection, method, path, headers, body)
            else:
                self._inference(connection, method, path.decode(), headers, body)
        except LepaError as error:
            _refuse(connection, path, error)

    def _gather(
        self,
        connection: HttpConnection,
        path: bytes,
        served: ServedApplication,
        inputs: list[bytes],
        version: str,
        done: Callable[[list[Answer]], bytes],
    ) -> None:
        """Ask about all inputs; when every answer is there, `done` makes a body of them."""
        answers: dict[int, Answer] = {}

        def answered(position: int, answer: Answer) -> None:
            answers[position] = answer
            if len(answers) == len(inputs):
                finish([answers[number] for number in range(len(inputs))])

        def finish(found: list[Answer]) -> None:
            try:
                connection.ok(done(found))
            except LepaError as error:
                _refuse(connection, path, error)

        if not inputs:
            finish([])
        for position, data in enumerate(inputs):
            self._frontend.ask(served, data, version, partial(answered, position))

    # The Open Inference Protocol

    def _inference(self, connection: HttpConnection, method: bytes, path: str, headers: Headers, body: bytes) -> None:
        parts = path.strip("/").split("/")
        if parts == ["v2"]:
            connection.ok(msgspec.json.encode(inference_protocol.server_metadata(__version__)))
        elif parts == ["v2", "health", "live"]:
            connection.ok(b'{"live":true}')
        elif parts == ["v2", "health", "ready"]:
            ready = self._frontend.configured
            connection.reply(200 if ready else 503, b'{"ready":true}' if ready else b'{"ready":false}')
        elif parts[:2] == ["v2", "models"] and len(parts) > 2:
            self._model(
                connection, method, application_named(self._frontend.predictions, parts[2]), parts[3:], headers, body
            )
        else:
            raise not_found(f"the inference protocol has no {path}")

    def _model(
        self,
        connection: HttpConnection,
        method: bytes,
        served: ServedApplication,
        rest: list[str],
        headers: Headers,
        body: bytes,
    ) -> None:
        version = ""
        if rest[:1] == ["versions"] and len(rest) > 1:
            version, rest = rest[1], rest[2:]
        if rest == ["infer"] and method == b"POST":
            self._infer(connection, served, version, headers, body)
        elif not rest and method == b"GET":
            connection.ok(msgspec.json.encode(inference_protocol.metadata(served)))
        elif rest == ["ready"] and method == b"GET":
            ready = inference_protocol.is_ready(self._frontend.predictions, served)
            connection.reply(200 if ready else 503, b'{"ready":true}' if ready else b'{"ready":false}')
        else:
            raise not_found(f"the inference protocol has no {method.decode()} of {'/'.join(rest)} of a model")

    def _infer(
        self, connection: HttpConnection, served: ServedApplication, version: str, headers: Headers, body: bytes
    ) -> None:
        request, elements = inference_protocol.decode_infer(body, _json_length(headers, body))
        inputs = inference_protocol.inputs_of(request, elements, served.input_type)
        shown = version or next(iter(inference_protocol.versions_of(served)), "")
        done = partial(inference_protocol.encode_infer, served.name, shown, request.id)
        self._gather(connection, b"/v2", served, inputs, version, done)

    # OpenAI's API

    def _openai(self, connection: HttpConnection, method: bytes, path: bytes, headers: Headers, body: bytes) -> None:
        if path == b"/v1/models" and method == b"GET":
            connection.ok(openai_api.encode_models(self._frontend.predictions.applications))
            return
        if path not in openai_api.PASSED_THROUGH or method != b"POST":
            raise not_found(f"{method.decode()} {path.decode(errors='replace')} is not served")
        served = application_named(self._frontend.predictions, openai_api.decode_model(body))
        model = self._frontend.predictions.passes_to(served)
        if model:
            work = self._stream(connection, model, path, headers, body)
            connection.on_lost(self._tasks.start("pass-through", work).cancel)
        elif path == openai_api.EMBEDDINGS:
            self._embed(connection, served, body)
        else:
            raise invalid(f"the model of application {served.name} has no endpoint that speaks OpenAI's API")

    async def _stream(
        self, connection: HttpConnection, model: ServedModel, path: bytes, headers: Headers, body: bytes
    ) -> None:
        """Pass a request through, and count that it is under way. A model that has gone to zero is waited for."""
        assert model.record is not None
        endpoint, patience_s = model.record.endpoint, WAKE_S if model.comes_back else 0.0
        model.streams.began(self._frontend.now())
        try:
            await self._pass_through.relay(connection, endpoint, path, headers, body, patience_s)
        finally:
            model.streams.ended(self._frontend.now())

    def _embed(self, connection: HttpConnection, served: ServedApplication, body: bytes) -> None:
        if served.input_type.name != "strings":
            raise invalid(f"embeddings are of strings; application {served.name} takes {served.input_type.name}")
        request = openai_api.decode_embeddings(body)
        inputs = [text.encode() for text in request.texts]
        self._gather(
            connection, openai_api.EMBEDDINGS, served, inputs, "", partial(openai_api.encode_embeddings, request)
        )


def _refuse(connection: HttpConnection, path: bytes, error: LepaError) -> None:
    """Answer with an error as clients of the path's protocol read it."""
    status = _STATUS.get(error.code, 500)
    if path.startswith(b"/v1/"):
        connection.reply(status, openai_api.encode_error(f"{error.code}_error", error.message))
    else:
        connection.reply(status, msgspec.json.encode({"error": error.message}))


def _json_length(headers: Headers, body: bytes) -> int | None:
    text = dict(headers).get(inference_protocol.BINARY_HEADER)
    if text is None:
        return None
    if not text.isdigit() or int(text) > len(body):
        raise invalid("Inference-Header-Content-Length is no length within the body")
    return int(text)
