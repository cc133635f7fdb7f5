"""Fetches artifacts from repositories with the tools that made them, git and hg.

They run with a clean environment, no configuration of anybody's, no terminal, and never by way of a shell; a job's
words are arguments that cannot be taken for options.
"""

import asyncio
import base64
import binascii
import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from lepa.client.hooks.artifact_settings import ArtifactSettings, denied
from lepa.client.hooks.artifact_source import Source
from lepa.model.errors import LepaError, invalid

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SAID_MAX = 500


async def clone(source: Source, content: Path, settings: ArtifactSettings) -> None:
    """Fill `content` with a repository's files, without its history. Raises LepaError."""
    if urlsplit(source.url).scheme == "file":
        if not settings.local_git:
            text = "repositories of the node itself are not fetched (client.artifact.allow_local_git)"
            raise LepaError("denied", text)
    else:
        host = urlsplit(source.url).hostname or source.url.partition("@")[2].partition(":")[0]
        await require_allowed(host, settings)
    if source.kind == "hg":
        await _hg(source, content, settings)
    else:
        await _git(source, content, settings)


async def _git(source: Source, content: Path, settings: ArtifactSettings) -> None:
    env = _environment(content, settings) | {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "GIT_ALLOW_PROTOCOL": "https:http:ssh:git" + (":file" if settings.local_git else ""),
    }
    if source.ssh_key:
        key = _key_file(source.ssh_key, content)
        env["GIT_SSH_COMMAND"] = (
            f"ssh -i {key} -o IdentitiesOnly=yes -o BatchMode=yes -o StrictHostKeyChecking=accept-new"
        )
    depth = ["--depth", source.depth] if source.depth else []
    branch = ["--branch", source.ref] if depth and source.ref else []
    options = ["-c", "core.hooksPath=/dev/null", "-c", "safe.directory=*"]
    words = [*options, "clone", "--quiet", *depth, *branch, "--", source.url, str(content)]
    await _run("git", words, env, settings.git_s)
    if source.ref and not depth:
        checkout = [*options, "-C", str(content), "checkout", "--quiet", source.ref, "--"]
        await _run("git", checkout, env, settings.git_s)
    shutil.rmtree(content / ".git", ignore_errors=True)


async def _hg(source: Source, content: Path, settings: ArtifactSettings) -> None:
    env = _environment(content, settings) | {"HGPLAIN": "1", "HGRCPATH": ""}
    revision = ["--updaterev", source.ref] if source.ref else []
    content.rmdir()
    await _run(
        "hg", ["--noninteractive", "clone", "--quiet", *revision, "--", source.url, str(content)], env, settings.hg_s
    )
    shutil.rmtree(content / ".hg", ignore_errors=True)


def _environment(content: Path, settings: ArtifactSettings) -> dict[str, str]:
    """A home of its own, and only those of the agent's variables that the operator names."""
    kept = {name: os.environ[name] for name in settings.environment if name in os.environ}
    return {"PATH": PATH, "HOME": str(content.parent), "LC_ALL": "C.UTF-8", **kept}


def _key_file(encoded: str, content: Path) -> Path:
    """The job's key for ssh, in a file that only we may read; it goes with the staging directory."""
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError) as error:
        raise invalid("sshkey is not a key in base64") from error
    path = content.parent / "ssh-key"
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(fd, "wb") as file:
        file.write(key if key.endswith(b"\n") else key + b"\n")
    return path


async def require_allowed(host: str, settings: ArtifactSettings) -> None:
    """The host's addresses are out of the denied networks; whom else the tool asks is its own affair.

    Raises LepaError.
    """
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise LepaError("internal", f"{host}: {error.strerror or error}") from error
    for *_, address in found:
        if network := denied(str(address[0]), settings.denied_networks):
            raise LepaError("denied", f"{address[0]} is in {network}, which artifacts are not fetched from")


async def _run(program: str, words: Sequence[str], env: dict[str, str], timeout_s: float) -> None:
    path = shutil.which(program, path=PATH)
    if path is None:
        raise LepaError("unsupported", f"{program} is not installed on this node")
    process = await asyncio.create_subprocess_exec(
        path,
        *words,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(timeout_s):
            _, complaint = await process.communicate()
    except TimeoutError as error:
        raise LepaError("timeout", f"{program} was not done within {timeout_s:g} s") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise LepaError("internal", f"{program}: {complaint.decode(errors='replace').strip()[-SAID_MAX:]}")
