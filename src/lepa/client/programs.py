"""Runs small programs to their end: what they are given on standard input, and what they answer.

Standard input is a file in memory rather than a pipe, so that a program that ends without reading harms nobody.
"""

import asyncio
import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from lepa.model.errors import LepaError

OUTPUT_MAX = 1024 * 1024
"""Bytes of each stream that are kept."""


class Ended(NamedTuple):
    """How a program ended, and what it wrote."""

    code: int
    output: bytes
    errors: bytes


async def run(
    *words: str | Path,
    timeout_s: float,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    listen: bool = True,
) -> Ended:
    """Run a program. listen False: what it writes goes nowhere, for one that leaves a process behind.

    Raises LepaError(unsupported) when it cannot be started, LepaError(timeout) when it goes on."""
    name = Path(words[0]).name
    heard = asyncio.subprocess.PIPE if listen else asyncio.subprocess.DEVNULL
    with _input(stdin) as given:
        try:
            process = await asyncio.create_subprocess_exec(*words, env=env, stdin=given, stdout=heard, stderr=heard)
        except OSError as error:
            raise LepaError("unsupported", f'"{name}" cannot be run: {error.strerror or error}') from error
    try:
        async with asyncio.timeout(timeout_s):
            output, errors = await process.communicate()
    except TimeoutError as error:
        raise LepaError("timeout", f'"{name}" did not end within {timeout_s:g} s') from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return Ended(process.returncode or 0, (output or b"")[:OUTPUT_MAX], (errors or b"")[:OUTPUT_MAX])


@contextlib.contextmanager
def _input(data: bytes) -> Iterator[int]:
    if not data:
        yield asyncio.subprocess.DEVNULL
        return
    handle = os.memfd_create("stdin")
    try:
        os.write(handle, data)
        os.lseek(handle, 0, os.SEEK_SET)
        yield handle
    finally:
        os.close(handle)
