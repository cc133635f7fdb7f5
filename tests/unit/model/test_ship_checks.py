import pytest

from lepa.model.ship_checks import job_receiver_problems
from lepa.model.task import LogShip

GOOD = LogShip(name="central", type="syslog", address="tcp://logs.example:601")


@pytest.mark.parametrize(
    "receiver",
    [
        GOOD,
        LogShip(name="l", type="loki", address="https://loki.example/loki/api/v1/push", headers={"A": "b"}),
        LogShip(name="f", type="fluentd", address="tcp://[::1]:24224", streams=("stderr",)),
        LogShip(name="f", type="fluentd", address="tcp://${attr.unique.network.ip-address}:${meta.port}"),
    ],
)
def test_receivers_that_a_job_may_name(receiver: LogShip) -> None:
    assert list(job_receiver_problems([receiver])) == []


@pytest.mark.parametrize(
    ("receiver", "said"),
    [
        (LogShip(type="syslog", address="udp://a:1"), 'logs: ship "": a name has letters'),
        (LogShip(name="x", type="gelf", address="udp://a:1"), 'found "gelf"'),
        (
            LogShip(name="x", type="syslog", address="unix:///dev/log"),
            "address must be udp://… or tcp://…, with a port",
        ),
        (LogShip(name="x", type="syslog", address="${meta.where}"), "address must be"),
        (LogShip(name="x", type="fluentd", address="tcp://a:70000"), "address must be"),
        (LogShip(name="x", type="syslog", address="udp://a:1", facility="local9"), "facility must be one of"),
        (LogShip(name="x", type="syslog", address="udp://a:1", streams=("both",)), "found both"),
        (LogShip(name="x", type="syslog", address="udp://a:1", timeout=0), "timeout must be positive"),
    ],
)
def test_what_is_wrong_is_said_with_the_receivers_name(receiver: LogShip, said: str) -> None:
    (problem,) = job_receiver_problems([receiver])
    assert problem.startswith(f'logs: ship "{receiver.name}": ')
    assert said in problem


def test_names_are_told_apart_and_there_are_not_too_many() -> None:
    assert list(job_receiver_problems([GOOD, GOOD])) == ['logs: ship "central": there are two receivers of that name']
    many = [LogShip(name=f"r{n}", type=GOOD.type, address=GOOD.address) for n in range(9)]
    assert list(job_receiver_problems(many)) == ["logs: at most 8 receivers; got 9"]
