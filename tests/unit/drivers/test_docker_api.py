import asyncio

import pytest

from lepa.drivers.docker_api import DockerApi, split_frames, split_image


@pytest.mark.parametrize(
    ("image", "parts"),
    [
        ("web", ("web", "latest")),
        ("web:1", ("web", "1")),
        ("host:5000/a/web", ("host:5000/a/web", "latest")),
        ("host:5000/a/web:1.2", ("host:5000/a/web", "1.2")),
        ("web@sha256:abc", ("web", "sha256:abc")),
    ],
)
def test_an_image_is_split_at_its_tag_not_at_its_port(image: str, parts: tuple[str, str]) -> None:
    assert split_image(image) == parts


async def test_multiplexed_streams_are_taken_apart() -> None:
    reader = asyncio.StreamReader()
    reader.feed_data(b"\x01\0\0\0\0\0\0\x02hi" + b"\x02\0\0\0\0\0\0\x03bad" + b"\x01\0\0")
    reader.feed_eof()
    assert [piece async for piece in split_frames(reader)] == [("stdout", b"hi"), ("stderr", b"bad")]


def test_an_endpoint_must_be_one() -> None:
    with pytest.raises(ValueError, match="must begin with"):
        DockerApi("/var/run/docker.sock")
