"""Runs CNI plugins: ADD and DEL of a whole list for one namespace."""

import asyncio
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lepa.client import programs
from lepa.client.network import cni
from lepa.client.network.cni import PluginList
from lepa.model.errors import LepaError

log = logging.getLogger(__name__)

PLUGIN_S = 60.0
AT_ONCE_MAX = 4
"""Calls at a time: each starts a handful of programs that wait for one lock of iptables."""
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Where plugins look for programs such as iptables when the agent's own PATH has no sbin."""


class CniPrograms:
    """The plugins below some directories. path: directories with colons between them."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._turns = asyncio.Semaphore(AT_ONCE_MAX)

    def find(self, plugin: str) -> Path:
        """A plugin's program. Raises LepaError(invalid) that says where it was looked for."""
        for folder in filter(None, self._path.split(":")):
            program = Path(folder) / plugin
            if program.is_file() and os.access(program, os.X_OK):
                return program
        raise LepaError(
            "invalid", f'CNI plugin "{plugin}" is not in {self._path or "any directory"}; install it, or set cni_path'
        )

    async def add(
        self, network: PluginList, container: str, namespace: Path, facts: Mapping[str, Any], args: Mapping[str, str]
    ) -> dict[str, Any]:
        """Attach a namespace; the result. What a failed attempt left is taken away. Raises LepaError."""
        env = cni.environment("ADD", container, str(namespace), self._path, args)
        result: dict[str, Any] | None = None
        async with self._turns:
            try:
                for position in range(len(network.plugins)):
                    call = cni.call(network, position, facts, result)
                    result = cni.parse_result(await self._run(call, env), call.type)
            except LepaError:
                await self._delete(network, container, namespace, facts, args, result)
                raise
        assert result is not None
        return result

    async def delete(
        self,
        network: PluginList,
        container: str,
        namespace: Path | None,
        facts: Mapping[str, Any],
        args: Mapping[str, str],
        result: Mapping[str, Any] | None,
    ) -> bool:
        """Detach, with the result of ADD as far as it is known; namespace None: it is gone. False: not all worked."""
        async with self._turns:
            return await self._delete(network, container, namespace, facts, args, result)

    async def _delete(
        self,
        network: PluginList,
        container: str,
        namespace: Path | None,
        facts: Mapping[str, Any],
        args: Mapping[str, str],
        result: Mapping[str, Any] | None,
    ) -> bool:
        env = cni.environment("DEL", container, str(namespace or ""), self._path, args)
        fine = True
        for position in reversed(range(len(network.plugins))):
            call = cni.call(network, position, facts, result)
            try:
                await self._run(call, env)
            except LepaError as error:
                log.warning("network was not taken away whole container=%s error=%s", container, error.message)
                fine = False
        return fine

    async def _run(self, call: cni.Call, env: Mapping[str, str]) -> bytes:
        path = os.environ.get("PATH", "")
        found = {**env, "PATH": f"{path}:{SYSTEM_PATH}" if path else SYSTEM_PATH}
        told = json.dumps(call.config).encode()
        ended = await programs.run(self.find(call.type), timeout_s=PLUGIN_S, stdin=told, env=found)
        if ended.code != 0:
            raise cni.failure(call.type, ended.output, ended.errors)
        return ended.output
