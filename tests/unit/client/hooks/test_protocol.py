"""A hook that does nothing."""

from typing import Any, cast

from lepa.client.hooks.protocol import HookError, QuietHook, Setup, TaskHook


async def test_a_quiet_hook_is_a_hook() -> None:
    hook: TaskHook = QuietHook()
    setup = cast(Setup, cast(Any, None))
    assert await hook.prestart(setup) == {}
    assert await hook.recovered(setup) == {}
    await hook.poststart(setup, None)
    await hook.stopping()
    await hook.exited()
    await hook.close()


def test_a_hooks_error_may_be_tried_again_unless_it_says_otherwise() -> None:
    assert HookError("x").recoverable
    assert HookError("x").event == "Task hook failed"
