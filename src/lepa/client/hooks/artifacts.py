"""Fetches a task's artifacts before it starts.

Each artifact is downloaded into the task's private directory, checked, unpacked there, and only then moved into place,
so that a task never sees half of one. Sources are HTTP(S) URLs, git and hg repositories, and object stores; whatever a
job file, a server or an archive says, nothing is written outside the allocation.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import aiohttp

from lepa.client import confined, task_env
from lepa.client.alloc_dir import AllocDir, task_owner
from lepa.client.hooks import archives
from lepa.client.hooks.artifact_http import download, require_digest
from lepa.client.hooks.artifact_objects import fetch_objects
from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.client.hooks.artifact_source import Source, source_of
from lepa.client.hooks.artifact_tools import clone
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.model.errors import LepaError
from lepa.model.task import TaskArtifact

FAILED = "Failed Artifact Download"


class ArtifactHook(QuietHook):
    """`artifact { source = "https://…/tool.tar.gz" }`. What was fetched once is not fetched again at a restart."""

    name = "artifacts"

    def __init__(
        self, directory: AllocDir, http: aiohttp.ClientSession, settings: ArtifactSettings | None = None
    ) -> None:
        """http: a session that keeps to the settings' networks (artifact_http.guarded_session)."""
        self._directory = directory
        self._http = http
        self._settings = settings or ArtifactSettings()
        self._fetched: list[TaskArtifact] = []

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Fetch what is still missing, one after the other."""
        wanted = [artifact for artifact in setup.place.task.artifacts if artifact not in self._fetched]
        if wanted:
            setup.task.note("Downloading Artifacts", "Client is downloading artifacts")
        for artifact in wanted:
            try:
                await self._fetch(artifact, setup)
            except LepaError as error:
                text = f"failed to download artifact {artifact.getter_source!r}: {error.message}"
                recoverable = error.code in {"timeout", "internal"}
                raise HookError(text, recoverable=recoverable, event=FAILED) from error
            self._fetched.append(artifact)
        return {}

    async def _fetch(self, artifact: TaskArtifact, setup: Setup) -> None:
        place, task = setup.place, setup.place.task
        targets = task_env.references(place, setup.env)
        source = source_of(artifact, targets)
        destination = self._directory.of_task(task.name, task_env.interpolate(artifact.relative_dest, targets))
        owner = task_owner(task.user) if artifact.chown and task.user else confined.NOBODY_ELSE
        with self._staging(task.name) as staging:
            await self._get(source, artifact, staging)
            await asyncio.to_thread(self._install, source, staging, destination, owner)

    @contextlib.contextmanager
    def _staging(self, task: str) -> Iterator[Path]:
        """A directory of the agent's own, gone afterwards."""
        path = self._directory.task(task).private / "artifact"
        shutil.rmtree(path, ignore_errors=True)
        (path / "content").mkdir(parents=True, mode=0o755)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    async def _get(self, source: Source, artifact: TaskArtifact, staging: Path) -> None:
        """Fill `content` in the staging directory."""
        content = staging / "content"
        if source.kind in ("git", "hg"):
            await clone(source, content, self._settings)
            return
        fetched, settings = staging / "fetched", self._settings
        if source.kind == "http":
            await download(self._http, source, fetched, settings, insecure=artifact.getter_insecure)
        elif await fetch_objects(source, fetched, content, settings):
            await asyncio.to_thread(require_digest, fetched, source)
        else:
            return
        if source.archive:
            await asyncio.to_thread(
                archives.unpack,
                fetched,
                source.archive,
                content,
                source.file_name,
                files=settings.files_max,
                size=settings.unpacked_bytes_max,
            )
        else:
            fetched.rename(content / source.file_name)

    def _install(self, source: Source, staging: Path, destination: str, owner: confined.Owner) -> None:
        """Move what was fetched into place. mode "file": the destination is the file's own path."""
        content = _below(staging / "content", source.subdirectory)
        names = os.listdir(content)
        single = len(names) == 1 and not (content / names[0]).is_dir()
        if source.mode == "dir" and source.kind not in ("git", "hg") and not source.archive:
            raise LepaError("invalid", 'mode "dir" needs an archive or a repository')
        if source.mode == "file":
            if not single:
                raise LepaError("invalid", f'mode "file" needs one file, found {len(names)} entries')
            parent, name = os.path.split(destination)
            (content / names[0]).rename(content / name)
            destination = parent
        confined.move_into(content, self._directory.path, destination, owner=owner)


def _below(content: Path, subdirectory: str) -> Path:
    """`//dir` of a source: only this part of what was fetched."""
    found = confined.inside(content, subdirectory)
    if not found.is_dir():
        raise LepaError("invalid", f'there is no directory "{subdirectory}" in it')
    return found
