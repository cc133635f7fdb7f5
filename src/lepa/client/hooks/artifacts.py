"""Fetches a task's artifacts before it starts.

Each artifact is downloaded into the task's private directory, checked, unpacked there, and only then moved into place,
so that a task never sees half of one. Sources are HTTP(S) URLs and git repositories; whatever a job file, a server or
an archive says, nothing is written outside the allocation.
"""

import asyncio
import contextlib
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

import aiohttp

from lepa.client import confined, task_env
from lepa.client.alloc_dir import AllocDir, task_owner
from lepa.client.hooks import archives
from lepa.client.hooks.artifact_source import Source, source_of
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.model.errors import LepaError
from lepa.model.task import TaskArtifact

DOWNLOAD_BYTES_MAX = 100 * 1024**3
DOWNLOAD_S = 30 * 60.0
CHUNK = 256 * 1024
GIT_OUTPUT_MAX = 500
FAILED = "Failed Artifact Download"


class ArtifactHook(QuietHook):
    """`artifact { source = "https://…/tool.tar.gz" }`. What was fetched once is not fetched again at a restart."""

    name = "artifacts"

    def __init__(self, directory: AllocDir, http: aiohttp.ClientSession) -> None:
        self._directory = directory
        self._http = http
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
        if source.kind == "git":
            await _clone(source, content)
            return
        fetched = staging / "fetched"
        await self._download(source, artifact, fetched)
        if source.archive:
            await asyncio.to_thread(archives.unpack, fetched, source.archive, content, source.file_name)
        else:
            fetched.rename(content / source.file_name)

    async def _download(self, source: Source, artifact: TaskArtifact, target: Path) -> None:
        digest = hashlib.new(source.checksum_type) if source.checksum_type else None
        try:
            async with asyncio.timeout(DOWNLOAD_S):
                with target.open("wb") as file:
                    async for chunk in self._chunks(source, insecure=artifact.getter_insecure):
                        file.write(chunk)
                        if digest is not None:
                            digest.update(chunk)
        except TimeoutError as error:
            raise LepaError("timeout", f"not finished within {DOWNLOAD_S:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise LepaError("internal", str(error) or type(error).__name__) from error
        if digest is not None and digest.hexdigest() != source.checksum:
            raise LepaError(
                "invalid", f"checksum did not match: expected {source.checksum}, found {digest.hexdigest()}"
            )

    async def _chunks(self, source: Source, *, insecure: bool) -> AsyncIterator[bytes]:
        received = 0
        async with self._http.get(source.url, headers=dict(source.headers), ssl=not insecure) as response:
            if response.status != 200:
                raise LepaError("internal", f"the server answered {response.status} {response.reason or ''}".strip())
            async for chunk in response.content.iter_chunked(CHUNK):
                received += len(chunk)
                if received > DOWNLOAD_BYTES_MAX:
                    raise LepaError("invalid", f"it is larger than {DOWNLOAD_BYTES_MAX} bytes")
                yield chunk

    def _install(self, source: Source, staging: Path, destination: str, owner: confined.Owner) -> None:
        """Move what was fetched into place. mode "file": the destination is the file's own path."""
        content = _below(staging / "content", source.subdirectory)
        names = os.listdir(content)
        single = len(names) == 1 and not (content / names[0]).is_dir()
        if source.mode == "dir" and source.kind != "git" and not source.archive:
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


async def _clone(source: Source, content: Path) -> None:
    """With git itself, which may ask nobody for a password."""
    if shutil.which("git") is None:
        raise LepaError("unsupported", "git is not installed on this node")
    depth = ["--depth", source.depth] if source.depth else []
    await _git(
        "clone",
        "--quiet",
        *depth,
        *(["--branch", source.ref] if depth and source.ref else []),
        "--",
        source.url,
        str(content),
    )
    if source.ref and not depth:
        await _git("-C", str(content), "checkout", "--quiet", source.ref, "--")
    shutil.rmtree(content / ".git", ignore_errors=True)


async def _git(*words: str) -> None:
    env = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_CONFIG_NOSYSTEM": "1"}
    process = await asyncio.create_subprocess_exec(
        "git",
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(DOWNLOAD_S):
            _, complaint = await process.communicate()
    except TimeoutError as error:
        raise LepaError("timeout", f"git was not done within {DOWNLOAD_S:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LepaError("internal", f"git: {complaint.decode(errors='replace').strip()[-GIT_OUTPUT_MAX:]}")
