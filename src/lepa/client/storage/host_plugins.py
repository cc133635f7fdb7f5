"""Plugins that make volumes on a node: `mkdir`, which is built in, and programs that speak Nomad's protocol.

A program in `host_volume_plugin_dir` is called as `PROGRAM OPERATION` with `DHV_*` variables about the volume; what it
answers is JSON on standard output, and whatever it has to say otherwise goes to standard error:

    fingerprint   {"version": "0.0.1"}
    create        {"path": "/where/it/is", "bytes": 50000000}; called again when the agent starts, for what a restart
                  of the host took away, so it must not harm a volume that is there
    delete        nothing
"""

import json
import logging
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from lepa.client import programs
from lepa.model.errors import LepaError, invalid
from lepa.model.volume import HostVolume

log = logging.getLogger(__name__)

MKDIR = "mkdir"
MKDIR_VERSION = "0.0.1"
MODE = 0o700
FINGERPRINT_S = 5.0
OPERATION_S = 100.0
PLUGINS_MAX = 50
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Made(NamedTuple):
    """Where a volume is, and how large (bytes, 0 when nobody knows)."""

    path: str
    bytes: int = 0


class Plugin(Protocol):
    """One way to make volumes."""

    async def version(self) -> str:
        """Of the plugin. Raises LepaError when it does not work here."""

    async def create(self, volume: HostVolume) -> Made:
        """Make the volume, or make sure that it is there. Raises LepaError."""

    async def delete(self, volume: HostVolume) -> None:
        """Remove the volume with what is in it. Raises LepaError."""


class Mkdir:
    """Directories below the node's own: parameters `mode` (octal, 0700), `uid` and `gid`. It knows no capacity."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def version(self) -> str:
        """Always there."""
        return MKDIR_VERSION

    async def create(self, volume: HostVolume) -> Made:
        """Make the directory with its mode and owner; one that is there keeps its own."""
        mode = _number(volume.parameters, "mode", 8, MODE)
        uid, gid = _number(volume.parameters, "uid", 10, -1), _number(volume.parameters, "gid", 10, -1)
        path = self._path(volume)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not path.is_dir():
                path.mkdir()
                path.chmod(mode)
                os.chown(path, uid, gid)
        except OSError as error:
            raise LepaError("internal", f"cannot make {path}: {error.strerror or error}") from error
        return Made(str(path))

    async def delete(self, volume: HostVolume) -> None:
        """Remove the directory; one that is gone is fine."""
        path = self._path(volume)
        try:
            if path.exists():
                shutil.rmtree(path)
        except OSError as error:
            raise LepaError("internal", f"cannot remove {path}: {error.strerror or error}") from error

    def _path(self, volume: HostVolume) -> Path:
        if not volume.id or volume.id in (".", "..") or "/" in volume.id:
            raise invalid(f'"{volume.id}" cannot be the id of a volume')
        return self._directory / volume.id


def _number(parameters: Mapping[str, str], name: str, base: int, default: int) -> int:
    text = parameters.get(name, "")
    try:
        return int(text, base) if text else default
    except ValueError as error:
        kind = "an octal number such as 0750" if base == 8 else "a number"
        raise invalid(f'parameter {name} of plugin mkdir must be {kind}, found "{text}"') from error


class External:
    """A program. directory: where it may put volumes. node_id, node_pool: of this node."""

    def __init__(self, program: Path, directory: Path, node_id: str, node_pool: str) -> None:
        self._program = program
        self._directory = directory
        self._node = {"DHV_NODE_ID": node_id, "DHV_NODE_POOL": node_pool}

    async def version(self) -> str:
        """What it says of itself. Raises LepaError."""
        answer = await self._run("fingerprint", {}, FINGERPRINT_S)
        if not isinstance(answer.get("version"), str) or not answer["version"]:
            raise invalid(f'host volume plugin "{self._program.name}" tells no version')
        return str(answer["version"])

    async def create(self, volume: HostVolume) -> Made:
        """Let it make the volume. Raises LepaError."""
        sizes = {
            "DHV_CAPACITY_MIN_BYTES": str(volume.requested_capacity_min_bytes),
            "DHV_CAPACITY_MAX_BYTES": str(volume.requested_capacity_max_bytes),
        }
        answer = await self._run("create", self._about(volume) | sizes, OPERATION_S)
        path, size = answer.get("path"), answer.get("bytes", 0)
        if not isinstance(path, str) or not path.startswith("/") or not isinstance(size, int):
            raise invalid(
                f'host volume plugin "{self._program.name}" must answer create with a path and a number of bytes, '
                f"found {json.dumps(answer)[:200]}"
            )
        return Made(path, size)

    async def delete(self, volume: HostVolume) -> None:
        """Let it remove the volume. Raises LepaError."""
        await self._run("delete", self._about(volume) | {"DHV_CREATED_PATH": volume.host_path}, OPERATION_S)

    def _about(self, volume: HostVolume) -> dict[str, str]:
        return {
            "DHV_NAMESPACE": volume.namespace,
            "DHV_VOLUME_NAME": volume.name,
            "DHV_VOLUME_ID": volume.id,
            "DHV_PARAMETERS": json.dumps(volume.parameters),
        }

    async def _run(self, operation: str, told: Mapping[str, str], within_s: float) -> dict[str, Any]:
        self._directory.mkdir(parents=True, exist_ok=True)
        env = {
            "PATH": os.environ.get("PATH", PATH),
            "DHV_OPERATION": operation,
            "DHV_VOLUMES_DIR": str(self._directory),
            "DHV_PLUGIN_DIR": str(self._program.parent),
            **self._node,
            **told,
        }
        ended = await programs.run(self._program, operation, timeout_s=within_s, env=env)
        name, complaint = self._program.name, ended.errors.decode(errors="replace").strip()[-500:]
        if complaint:
            log.debug("host volume plugin said plugin=%s operation=%s text=%r", name, operation, complaint)
        if ended.code != 0:
            said = complaint or ended.output.decode(errors="replace").strip()[-500:] or "it gave no reason"
            raise LepaError(
                "internal", f'host volume plugin "{name}" failed to {operation} (exit {ended.code}): {said}'
            )
        try:
            answer = json.loads(ended.output) if ended.output.strip() else {}
        except ValueError as error:
            shown = ended.output.decode(errors="replace")[:200]
            raise LepaError(
                "internal", f'host volume plugin "{name}" answered no JSON to {operation}: {shown}'
            ) from error
        return answer if isinstance(answer, dict) else {}


def find_plugins(directory: Path, volumes: Path, node_id: str, node_pool: str) -> dict[str, Plugin]:
    """Plugins of a node by name; what is not a program is left out."""
    found: dict[str, Plugin] = {MKDIR: Mkdir(volumes)}
    for path in sorted(directory.glob("*"))[:PLUGINS_MAX] if directory.is_dir() else ():
        if path.is_file() and os.access(path, os.X_OK) and path.name not in found:
            found[path.name] = External(path, volumes, node_id, node_pool)
    return found
