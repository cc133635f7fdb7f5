"""A cloud's metadata service, played by a local server."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from lepa.client.fingerprint import cloud

ANSWERS = {
    "instance-id": "i-0abc",
    "instance-type": "m5.large",
    "placement/availability-zone": "eu-west-1a",
    "local-ipv4": "10.0.0.7",
}


@contextmanager
def metadata(*, tokens: bool) -> Iterator[str]:
    class Answer(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._send("token" if tokens else None)

        def do_GET(self) -> None:
            allowed = not tokens or self.headers.get("X-aws-ec2-metadata-token") == "token"
            name = self.path.removeprefix("/latest/meta-data/")
            self._send(ANSWERS.get(name) if allowed else None)

        def _send(self, text: str | None) -> None:
            self.send_response(404 if text is None else 200)
            self.end_headers()
            self.wfile.write((text or "").encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_instance_of_the_cloud_is_known_with_and_without_tokens() -> None:
    for tokens in (True, False):
        with metadata(tokens=tokens) as url:
            found = cloud.aws(url)
        assert found.attributes["unique.platform.aws.instance-id"] == "i-0abc"
        assert found.attributes["platform.aws.instance-type"] == "m5.large"
        assert "unique.platform.aws.public-ipv4" not in found.attributes
        assert found.links == {"aws.ec2": "eu-west-1a.i-0abc"}


def test_a_host_outside_of_the_cloud_has_nothing_to_tell() -> None:
    assert cloud.aws("http://127.0.0.1:1/").attributes == {}
    assert cloud.aws("no url").attributes == {}
