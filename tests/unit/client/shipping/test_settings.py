import pytest

from lepa.client.shipping.settings import ShipSettings, check, of_job, wants
from lepa.model.errors import LepaError
from lepa.model.task import LogShip


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (ShipSettings("x y", "syslog", "udp://a:1"), "a name has letters"),
        (ShipSettings("x", "kafka", "tcp://a:1"), 'type must be one of syslog, fluentd, loki, found "kafka"'),
        (ShipSettings("x", "syslog", "http://a:1"), "address must be udp://… or tcp://… or unix://…"),
        (ShipSettings("x", "syslog", "udp://a"), "with a port"),
        (ShipSettings("x", "fluentd", "tcp://a:many"), "with a port"),
        (ShipSettings("x", "loki", "tcp://a:1"), "http://… or https://…"),
        (ShipSettings("x", "syslog", "unix://"), "address"),
        (ShipSettings("x", "syslog", "udp://a:1", facility="local9"), "facility"),
        (ShipSettings("x", "syslog", "udp://a:1", streams=("stdin",)), "streams"),
    ],
)
def test_settings_that_make_no_receiver_are_refused(settings: ShipSettings, said: str) -> None:
    with pytest.raises(LepaError) as raised:
        check(settings)
    assert said in raised.value.message
    assert f'client.ship_logs "{settings.name}"' in raised.value.message


def test_a_jobs_receiver_names_what_the_task_may_and_no_socket_of_the_node() -> None:
    ship = LogShip(
        name="own",
        type="loki",
        address="http://${meta.loki}/push",
        labels={"who": "${NOMAD_JOB_ID}"},
        headers={"X-Scope-OrgID": "${NOMAD_NAMESPACE}"},
        timeout=2_500_000_000,
    )
    found = of_job(ship, {"meta.loki": "10.0.0.1:3100", "NOMAD_JOB_ID": "web", "NOMAD_NAMESPACE": "default"})
    assert (found.address, found.labels) == ("http://10.0.0.1:3100/push", {"who": "web"})
    assert (found.headers, found.timeout_s, found.label) == ({"X-Scope-OrgID": "default"}, 2.5, "of jobs")
    with pytest.raises(LepaError, match='logs: ship "own": address must be udp://… or tcp://…, with a port'):
        of_job(LogShip(name="own", type="syslog", address="unix:///dev/log"), {})
    with pytest.raises(LepaError, match="names something that is not known here"):
        of_job(LogShip(name="own", type="syslog", address="udp://${meta.absent}:1"), {})


def test_jobs_are_chosen_by_pattern_namespace_and_their_own_word() -> None:
    plain = check(ShipSettings("central", "syslog", "unix:///dev/log", jobs=("web*",), namespaces=("default",)))
    assert wants(plain, "web-1", "default", {})
    assert not wants(plain, "db", "default", {})
    assert not wants(plain, "web-1", "other", {})
    asked = ShipSettings("central", "loki", "https://loki/push", opt_in=True)
    assert wants(asked, "db", "default", {"ship_logs": "archive, central"})
    assert not wants(asked, "db", "default", {"ship_logs": "centrally"})
