import os

import pytest

from lepa.drivers.supervisor.reactor import READABLE, Reactor


def test_descriptors_and_timers_call_their_handlers_and_the_turn_ends_with_its_work() -> None:
    calls: list[str] = []
    reactor = Reactor(lambda: calls.append("turn"))
    reader, writer = os.pipe()

    def readable(mask: int) -> None:
        calls.append(os.read(reader, 10).decode())
        reactor.unwatch(reader)
        reactor.after(0, reactor.stop)

    reactor.watch(reader, READABLE, readable)
    assert reactor.watches(reader)
    os.write(writer, b"data")
    reactor.run()
    assert calls[:2] == ["data", "turn"]
    assert not reactor.watches(reader)
    for fd in (reader, writer):
        os.close(fd)


def test_a_cancelled_timer_does_not_fire_and_earlier_ones_fire_first() -> None:
    calls: list[int] = []
    reactor = Reactor(lambda: None)
    reactor.after(0.002, reactor.stop)
    reactor.after(0.001, lambda: calls.append(2))
    reactor.after(0, lambda: calls.append(1))
    reactor.after(0, lambda: calls.append(9)).cancel()
    reactor.run()
    assert calls == [1, 2]


def test_a_handler_with_a_bug_is_reported_and_the_loop_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    reactor = Reactor(lambda: None)

    def broken() -> None:
        raise RuntimeError("a bug")

    reactor.after(0, broken)
    reactor.after(0.001, reactor.stop)
    reactor.run()
    assert "RuntimeError: a bug" in capsys.readouterr().err
