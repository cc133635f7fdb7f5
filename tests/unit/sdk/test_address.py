"""Where an agent is, and who asks."""

import pytest

from lepa.model.errors import LepaError
from lepa.sdk.address import headers, path_with, target


def test_without_anything_it_is_the_local_agent() -> None:
    assert target({}).url == "http://127.0.0.1:4646"


def test_flags_win_over_our_variables_and_these_over_nomads() -> None:
    env = {"NOMAD_ADDR": "http://nomad:1", "LEPA_ADDR": "http://lepa:2", "NOMAD_TOKEN": "t", "NOMAD_NAMESPACE": "n"}
    assert target(env).url == "http://lepa:2"
    assert target(env, address="flag:3").url == "http://flag:3"
    assert target(env).token == "t"
    assert target(env, namespace="m").namespace == "m"


@pytest.mark.parametrize("text", ["ftp://x", "http://", "http://x:port", "unix:///x"])
def test_a_bad_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(LepaError, match="invalid address"):
        target({}, address=text)


def test_ipv6_addresses_get_their_brackets() -> None:
    assert target({}, address="http://[::1]:4646").url == "http://[::1]:4646"


def test_a_path_gets_the_targets_scope_unless_it_has_its_own() -> None:
    to = target({}, namespace="n", region="r")
    assert path_with(to, "/v1/jobs", {"prefix": "a b", "all": True, "skip": None}) == (
        "/v1/jobs?namespace=n&region=r&prefix=a+b&all=true"
    )
    assert path_with(to, "/v1/jobs", {"namespace": "*"}) == "/v1/jobs?namespace=%2A&region=r"
    assert path_with(target({}), "/v1/jobs") == "/v1/jobs"


def test_parameters_are_added_to_those_that_the_path_has() -> None:
    assert path_with(target({}), "/v1/event/stream?topic=Job", {"index": 3}) == "/v1/event/stream?topic=Job&index=3"


def test_a_token_goes_into_its_header() -> None:
    assert headers(target({}, token="secret")) == {"X-Nomad-Token": "secret"}
    assert headers(target({})) == {}
