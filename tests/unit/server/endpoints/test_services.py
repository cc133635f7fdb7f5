"""Which instances a key gets."""

import pytest
from tests.builders import make_service

from lepa.model.errors import LepaError
from lepa.server.endpoints.services import choose

INSTANCES = [make_service(str(number), port=8000 + number, address="10.0.0.1") for number in range(10)]


def test_c51_a_key_keeps_its_instances_while_others_come_and_go() -> None:
    chosen = choose(INSTANCES, "3|user-1")
    fewer = [instance for instance in INSTANCES if instance in chosen or instance.port % 2]
    assert choose(fewer, "3|user-1") == chosen
    assert choose(INSTANCES[::-1], "3|user-1") == chosen


def test_c51_keys_spread_over_instances() -> None:
    assert len({choose(INSTANCES, f"1|{key}")[0].id for key in range(200)}) == 10


def test_c51_more_than_there_are_is_all() -> None:
    assert len(choose(INSTANCES, "99|k")) == 10


@pytest.mark.parametrize("text", ["", "3", "x|k", "0|k", "3|", "|k"])
def test_c51_a_bad_wish_is_refused(text: str) -> None:
    with pytest.raises(LepaError, match="choose"):
        choose(INSTANCES, text)
