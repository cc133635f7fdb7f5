import signal

import pytest

from lepa.drivers.signals import NUMBERS, signal_number
from lepa.model.errors import LepaError


def test_names_are_taken_in_every_usual_form() -> None:
    assert signal_number("SIGHUP") == signal_number("HUP") == signal_number("sighup") == 1
    assert signal_number("") == 15
    assert signal_number("", "SIGINT") == 2


def test_numbers_are_this_systems() -> None:
    for name, number in NUMBERS.items():
        if hasattr(signal, name):
            assert getattr(signal, name) == number


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(LepaError, match="SIGNOPE"):
        signal_number("SIGNOPE")
