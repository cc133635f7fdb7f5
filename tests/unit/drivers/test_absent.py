"""A driver by name only."""

import pytest

from lepa.drivers.absent import AbsentDriver
from lepa.drivers.protocol import DriverError, TaskConfig, TaskHandle
from lepa.model.errors import LepaError


async def test_a_start_fails_for_good_and_nothing_is_found() -> None:
    driver = AbsentDriver("qemu")
    with pytest.raises(DriverError, match='"qemu" is not on this node') as raised:
        await driver.start(TaskConfig(id="t", alloc_id="a"))
    assert not raised.value.recoverable
    assert not (await driver.fingerprint()).detected
    assert driver.problems({}) == ()
    handle = TaskHandle(driver="qemu", task_id="t")
    for asked in (
        driver.recover(TaskConfig(id="t", alloc_id="a"), handle),
        driver.wait("t"),
        driver.stop("t", "", 0.0),
        driver.signal("t", "SIGHUP"),
        driver.destroy("t"),
        driver.stats("t"),
        driver.exec("t", ["true"], tty=False),
    ):
        with pytest.raises(LepaError, match="not on this node"):
            await asked
    await driver.close()
