"""Metrics that are sent to statsd, statsite and Datadog's agent."""

import asyncio
from typing import Any

import pytest

from lepa.agent.config_loader import build
from lepa.agent.metric_sinks import send_for_ever, sinks_of
from lepa.kit.sources import SystemClock
from lepa.kit.tasks import Tasks
from lepa.kit.telemetry import Metrics
from lepa.model.errors import LepaError

WAIT_S = 30.0


def config(**telemetry: Any) -> Any:
    block = {"collection_interval": "10ms", **telemetry}
    return build({"name": "here", "data_dir": "/tmp/a", "server": {"enabled": True}, "telemetry": block}).config


class Receiver(asyncio.DatagramProtocol):
    """A statsd that keeps what it hears."""

    def __init__(self) -> None:
        self.heard = bytearray()
        self.changed = asyncio.Event()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self.take(data)

    def take(self, data: bytes) -> None:
        self.heard += data
        self.changed.set()

    async def until(self, *texts: bytes) -> None:
        async with asyncio.timeout(WAIT_S):
            while not all(text in self.heard for text in texts):
                self.changed.clear()
                await self.changed.wait()


async def test_each_sink_hears_gauges_counters_and_measurements() -> None:
    loop, statsd, datadog, statsite = asyncio.get_running_loop(), Receiver(), Receiver(), Receiver()

    async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(4096):
            statsite.take(data)
        writer.close()

    one, _ = await loop.create_datagram_endpoint(lambda: statsd, local_addr=("127.0.0.1", 0))
    two, _ = await loop.create_datagram_endpoint(lambda: datadog, local_addr=("127.0.0.1", 0))
    listener = await asyncio.start_server(read, "127.0.0.1", 0)
    wanted = config(
        statsd_address=f"127.0.0.1:{one.get_extra_info('sockname')[1]}",
        datadog_address=f"127.0.0.1:{two.get_extra_info('sockname')[1]}",
        statsite_address=f"127.0.0.1:{listener.sockets[0].getsockname()[1]}",
        datadog_tags=["team:sea"],
        prefix_filter=["-nomad.hidden"],
    )
    metrics = Metrics(prefixes=wanted.telemetry.prefix_filter)

    async def update() -> None:
        metrics.gauge("nomad.up", 1)
        metrics.count("nomad.calls", 2)
        metrics.sample("nomad.took", 3.5, job="web")
        metrics.count("nomad.hidden")

    async with Tasks("test") as tasks:
        tasks.start("send", send_for_ever(wanted, sinks_of(wanted), metrics, update, SystemClock()))
        plain = (b"nomad.here.up:1|g\n", b"nomad.calls:2|c\n", b"nomad.took.web:3.5|ms\n")
        await statsd.until(*plain)
        await statsite.until(*plain)
        await datadog.until(b"nomad.up:1|g|#team:sea\n", b"nomad.took:3.5|ms|#team:sea,job:web\n")
    assert b"hidden" not in statsd.heard
    listener.close()
    one.close()
    two.close()


async def test_a_sink_that_is_not_there_is_told_once_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    (sink,) = sinks_of(config(statsite_address=f"127.0.0.1:{port}"))
    for _ in range(3):
        await sink.send([b"a:1|g\n"])
    assert [record.getMessage().split(" error")[0] for record in caplog.records] == [
        f"metrics not sent sink=statsite host=127.0.0.1 port={port}"
    ]


def test_names_of_hosts_may_be_left_out() -> None:
    telemetry = {"statsd_address": "127.0.0.1:8125", "disable_hostname": True}
    assert [sink.dialect.host for sink in sinks_of(config(**telemetry))] == [""]
    assert [sink.dialect.host for sink in sinks_of(config(**telemetry, use_node_name=True))] == ["here"]
    assert sinks_of(config()) == []


@pytest.mark.parametrize("address", ["8125", "host:", "host:x", "host:0", ":8125"])
def test_an_odd_address_is_refused(address: str) -> None:
    with pytest.raises(LepaError, match=r"telemetry\.statsd_address"):
        sinks_of(config(statsd_address=address))
