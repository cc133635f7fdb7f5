import os

import msgspec
import pytest

from lepa.drivers.protocol import DriverError
from lepa.drivers.supervised import exit_result, find_user, log_files, own_identity, without_no_change
from lepa.drivers.supervisor.messages import Exit, Identity, LogFiles
from lepa.model.task import LogConfig


def test_log_settings_become_files_unless_logging_is_off() -> None:
    assert log_files("/l", LogConfig(max_files=3, max_file_size_mb=2)) == LogFiles("/l", 3, 2 * 1024 * 1024)
    assert log_files("/l", LogConfig(max_files=0, max_file_size_mb=0)) == LogFiles("/l", 1, 1024 * 1024)
    for logs in (LogConfig(disabled=True), LogConfig(enabled=False)):
        assert log_files("/l", logs) is None
    assert log_files("/l", LogConfig(enabled=None)) is not None
    assert log_files("", LogConfig()) is None


def test_users_are_found_by_name_or_number() -> None:
    assert find_user("root").uid == find_user("0").uid == 0
    with pytest.raises(DriverError, match="'no-such-user' does not exist"):
        find_user("no-such-user")


def test_our_own_user_needs_no_change() -> None:
    assert without_no_change(own_identity()) == Identity()
    assert without_no_change(Identity(os.geteuid() + 1, 5)) == Identity(os.geteuid() + 1, 5)


def test_an_unknown_exit_is_no_success() -> None:
    assert exit_result(Exit()).successful
    assert not exit_result(Exit(error="lost")).successful
    assert not exit_result(Exit(code=137, signal=9)).successful


def test_state_of_an_older_agent_without_the_word_disabled_has_logs() -> None:
    """Case B172."""
    logs = msgspec.json.decode(b'{"MaxFiles": 3, "MaxFileSizeMB": 2}', type=LogConfig)
    assert log_files("/x", logs) == LogFiles("/x", 3, 2 * 1024 * 1024)
    assert log_files("/x", msgspec.json.decode(b'{"Enabled": true}', type=LogConfig)) is not None
    assert log_files("/x", msgspec.json.decode(b'{"Disabled": true}', type=LogConfig)) is None
