"""Sends the agent's metrics to statsd, statsite and Datadog's agent, once in a collection interval.

What cannot be sent is lost: nobody waits for a sink, and its next interval is tried anew. A sink that fails is told
once, until it works again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from lepa.agent.config import Config, seconds
from lepa.kit import statsd
from lepa.kit.sources import Clock
from lepa.kit.telemetry import Metrics
from lepa.model.errors import invalid

log = logging.getLogger(__name__)

SEND_S: Final = 5.0


class Sink:
    """One place that metrics go to. stream: by TCP, else by datagrams."""

    def __init__(self, name: str, host: str, port: int, dialect: statsd.Dialect, *, stream: bool) -> None:
        self.name, self.dialect = name, dialect
        self._host, self._port, self._stream = host, port, stream
        self._writer: asyncio.StreamWriter | None = None
        self._datagrams: asyncio.DatagramTransport | None = None
        self._well = True

    async def send(self, packets: list[bytes]) -> None:
        """Send, or give up and say so."""
        try:
            async with asyncio.timeout(SEND_S):
                await (self._write(packets) if self._stream else self._throw(packets))
        except (OSError, TimeoutError) as error:
            if self._well:
                log.warning(
                    "metrics not sent sink=%s host=%s port=%d error=%s", self.name, self._host, self._port, error
                )
            self._well = False
            self.close()
        else:
            self._well = True

    async def _write(self, packets: list[bytes]) -> None:
        if self._writer is None:
            _, self._writer = await asyncio.open_connection(self._host, self._port)
        self._writer.writelines(packets)
        await self._writer.drain()

    async def _throw(self, packets: list[bytes]) -> None:
        if self._datagrams is None or self._datagrams.is_closing():
            loop, where = asyncio.get_running_loop(), (self._host, self._port)
            self._datagrams, _ = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, remote_addr=where)
        for packet in packets:
            self._datagrams.sendto(packet)

    def close(self) -> None:
        """End the connection; the next sending makes another."""
        for transport in (self._writer, self._datagrams):
            if transport is not None:
                transport.close()
        self._writer = self._datagrams = None


def sinks_of(config: Config) -> list[Sink]:
    """The sinks that the telemetry block names. Raises LepaError(invalid)."""
    telemetry = config.telemetry
    host = "" if telemetry.disable_hostname and not telemetry.use_node_name else config.name
    plain, tagged = statsd.Dialect(host.replace(".", "_")), statsd.Dialect("", telemetry.datadog_tags)
    wanted = (
        ("statsd", telemetry.statsd_address, plain, False),
        ("statsite", telemetry.statsite_address, plain, True),
        ("datadog", telemetry.datadog_address, tagged, False),
    )
    return [Sink(name, *_address(name, text), dialect, stream=by) for name, text, dialect, by in wanted if text]


def _address(name: str, text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise invalid(
            f'configuration: telemetry.{name}_address: "{text}" is not a host and port such as "127.0.0.1:8125"'
        )
    return host.strip("[]"), int(port)


async def send_for_ever(
    config: Config, sinks: list[Sink], metrics: Metrics, update: Callable[[], Awaitable[None]], clock: Clock
) -> None:
    """Send everything to all sinks until cancelled. update: brings gauges up to date."""
    interval_s = seconds(config.telemetry.collection_interval, "telemetry.collection_interval")
    news = metrics.follow()
    try:
        while True:
            await clock.sleep(interval_s)
            await update()
            heard = []
            with suppress(IndexError):
                while True:
                    heard.append(news.popleft())
            gauges = metrics.all_gauges()
            shown = [each for each in heard if metrics.shows(each.name)]
            for sink in sinks:
                await sink.send(list(statsd.packets(statsd.lines(gauges, shown, sink.dialect))))
    finally:
        for sink in sinks:
            sink.close()
