from lepa.drivers.protocol import DriverError, ExitResult


def test_success_is_code_zero_without_signal_and_error() -> None:
    assert ExitResult().successful
    for result in (ExitResult(exit_code=1), ExitResult(signal=9), ExitResult(error="lost")):
        assert not result.successful


def test_a_failed_start_is_final_unless_it_says_otherwise() -> None:
    assert not DriverError("no").recoverable
    assert DriverError("no", recoverable=True).recoverable
