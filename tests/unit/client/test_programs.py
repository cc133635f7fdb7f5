"""Small programs, run to their end."""

import pytest

from lepa.client import programs
from lepa.model.errors import LepaError


async def test_input_output_and_errors_are_carried() -> None:
    ended = await programs.run("/bin/sh", "-c", "cat; echo bad >&2; exit 3", timeout_s=10, stdin=b"in")
    assert ended == (3, b"in", b"bad\n")


async def test_a_program_that_reads_nothing_harms_nobody() -> None:
    assert (await programs.run("/bin/true", timeout_s=10, stdin=b"x" * 1_000_000)).code == 0


async def test_its_environment_is_the_given_one() -> None:
    ended = await programs.run("/usr/bin/env", timeout_s=10, env={"ONLY": "this"})
    assert ended.output == b"ONLY=this\n"


async def test_one_that_leaves_a_process_behind_is_not_listened_to() -> None:
    ended = await programs.run("/bin/sh", "-c", "sleep 0.5 & echo hi", timeout_s=10, listen=False)
    assert ended == (0, b"", b"")


async def test_one_that_goes_on_is_ended() -> None:
    with pytest.raises(LepaError, match='"sleep" did not end within'):
        await programs.run("/bin/sleep", "60", timeout_s=0.05)


async def test_one_that_is_missing_is_told() -> None:
    with pytest.raises(LepaError, match='"nothing" cannot be run'):
        await programs.run("/nowhere/nothing", timeout_s=1)
