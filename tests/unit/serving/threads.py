"""Blocking calls from asynchronous tests."""

import asyncio
from collections.abc import Callable
from typing import Any


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a blocking call beside the loop that answers it."""
    return await asyncio.wait_for(asyncio.to_thread(function, *arguments), 10)
