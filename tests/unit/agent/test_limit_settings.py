"""What one address may hold of a listener."""

import pytest

from lepa.agent.config_loader import build
from lepa.agent.limit_settings import http_limits, rpc_limits
from lepa.kit.doorman import Limits
from lepa.model.errors import LepaError

BASE = {"data_dir": "/tmp/a", "server": {"enabled": True}}


def test_limits_are_those_of_the_file_or_the_usual_ones() -> None:
    usual = build(BASE).config
    assert (http_limits(usual), rpc_limits(usual)) == (Limits(100, 5.0), Limits(1000, 5.0))
    block = {"http_max_conns_per_client": 7, "https_handshake_timeout": "2s", "rpc_max_conns_per_client": 0}
    given = build(BASE | {"limits": block}).config
    assert (http_limits(given), rpc_limits(given)) == (Limits(7, 2.0), Limits(0, 5.0))


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ({"rpc_handshake_timeout": "soon"}, "limits.rpc_handshake_timeout"),
        ({"http_max_conns_per_client": -1}, "limits.http_max_conns_per_client: a number of connections, or 0"),
        ({"conns": 1}, "unknown field"),
    ],
)
def test_odd_limits_are_refused(block: dict[str, object], message: str) -> None:
    with pytest.raises(LepaError, match=message):
        build(BASE | {"limits": block})
