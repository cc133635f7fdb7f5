"""Images for tasks: fetching them with credentials, and removing those that no task needs any more.

Only images that were fetched for tasks here are removed: one that somebody built on this host could not be had again.
"""

import asyncio
import contextlib
import json
import logging
import os
import shutil
from typing import Any

from lepa.drivers import options
from lepa.drivers.container_driver import resolve
from lepa.drivers.docker_api import DockerApi, DockerError, split_image
from lepa.drivers.docker_settings import AuthSettings
from lepa.drivers.oci_runtime import PATH
from lepa.drivers.protocol import DriverError, TaskConfig
from lepa.kit.durations import parse_duration
from lepa.kit.sources import Clock
from lepa.kit.tasks import Tasks

log = logging.getLogger(__name__)

DOCKER_HUB = "index.docker.io/v1/"
HELPER_S = 10.0


class Images:
    """The images of one daemon. delay_s: how long after its last task an image goes; None: never."""

    def __init__(
        self,
        api: DockerApi,
        clock: Clock,
        tasks: Tasks,
        auth: AuthSettings,
        *,
        timeout_s: float,
        silence_s: float | None,
        delay_s: float | None,
    ) -> None:
        self._api = api
        self._clock = clock
        self._tasks = tasks
        self._auth = auth
        self._timeout_s = timeout_s
        self._silence_s = silence_s
        self._delay_s = delay_s
        self._pulls: dict[str, asyncio.Lock] = {}
        self._fetched: set[str] = set()
        self._users: dict[str, set[str]] = {}
        self._removals: dict[str, asyncio.Task[None]] = {}

    async def provide(self, task: TaskConfig) -> None:
        """Have a task's image: by `load`, else by a pull when it is missing, or newer by name, or asked for."""
        image = options.text(task.config, "image")
        self.use(task)
        lock = self._pulls.setdefault(image, asyncio.Lock())
        async with lock:
            if archive := options.text(task.config, "load"):
                await self._api.load(resolve(task, archive))
                self._fetched.add(image)
            elif options.flag(task.config, "force_pull") or not (present := await self._api.has_image(image)):
                await self._pull(task, image)
            elif present and split_image(image)[1] == "latest":
                await self._refresh(task, image)
        if not lock.locked():
            self._pulls.pop(image, None)

    async def _refresh(self, task: TaskConfig, image: str) -> None:
        """A newer "latest" is wanted where there is one; what is here will do where no registry has it."""
        try:
            await self._pull(task, image)
        except DriverError as error:
            log.info("image not refreshed image=%s reason=%s", image, error.message)

    def use(self, task: TaskConfig) -> None:
        """A task needs its image from now on."""
        image = options.text(task.config, "image")
        self._users.setdefault(image, set()).add(task.id)
        if removal := self._removals.pop(image, None):
            removal.cancel()

    def release(self, task: TaskConfig) -> None:
        """A task does not need its image any more."""
        image = options.text(task.config, "image")
        users = self._users.get(image, set())
        users.discard(task.id)
        if users:
            return
        self._users.pop(image, None)
        if self._delay_s is not None and image in self._fetched and image not in self._removals:
            self._removals[image] = self._tasks.start(f"image.{image}", self._remove_later(image, self._delay_s))

    async def _remove_later(self, image: str, delay_s: float) -> None:
        await self._clock.sleep(delay_s)
        self._removals.pop(image, None)
        self._fetched.discard(image)
        try:
            await self._api.remove_image(image)
            log.info("image removed image=%s", image)
        except DockerError as error:
            log.info("image kept image=%s reason=%s", image, error)

    async def _pull(self, task: TaskConfig, image: str) -> None:
        limit = options.text(task.config, "image_pull_timeout")
        timeout_s = parse_duration(limit) / 1e9 if limit else self._timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                await self._api.pull(image, await self.credentials(task, image), silence_s=self._silence_s)
        except TimeoutError as error:
            raise DriverError(f"image {image} was not pulled within {timeout_s:g} s", recoverable=True) from error
        except DockerError as error:
            raise DriverError(f"image {image} was not pulled: {error}", recoverable=True) from error
        self._fetched.add(image)

    async def credentials(self, task: TaskConfig, image: str) -> dict[str, str] | None:
        """What the job says, else what the operator's helper or config.json holds for the image's registry."""
        auth = options.block(task.config, "auth")
        if auth:
            return {
                "username": options.text(auth, "username"),
                "password": options.text(auth, "password"),
                "email": options.text(auth, "email"),
                "serveraddress": options.text(auth, "server_address"),
            }
        try:
            if self._auth.helper and (found := await ask_helper(self._auth.helper, registry_of(image))):
                return found
            return from_config(self._auth.config, registry_of(image)) if self._auth.config else None
        except DriverError:
            if options.flag(task.config, "auth_soft_fail"):
                return None
            raise


def from_config(path: str, registry: str) -> dict[str, str] | None:
    """The credentials of a registry in Docker's config.json; None when there are none. Raises DriverError."""
    try:
        with open(path) as file:
            known = json.load(file).get("auths", {})
    except (OSError, ValueError, AttributeError) as error:
        raise DriverError(f"credentials in {path} cannot be read: {error}") from error
    entry = known.get(registry) or known.get(f"https://{registry}")
    return {"auth": entry["auth"], "serveraddress": registry} if entry and "auth" in entry else None


async def ask_helper(name: str, registry: str) -> dict[str, str] | None:
    """What docker-credential-NAME has for a registry; None when it has nothing. Raises DriverError.

    The protocol of docker-credential-helpers: the registry on standard input, JSON on standard output.
    """
    program = shutil.which(f"docker-credential-{name}", path=os.environ.get("PATH", PATH))
    if program is None:
        raise DriverError(f"docker-credential-{name} was not found on the agent's PATH")
    process = await asyncio.create_subprocess_exec(
        program,
        "get",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={"PATH": os.environ.get("PATH", PATH), "HOME": os.environ.get("HOME", "/")},
    )
    try:
        async with asyncio.timeout(HELPER_S):
            said, _ = await process.communicate(registry.encode())
    except TimeoutError as error:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise DriverError(f"docker-credential-{name} gave no answer within {HELPER_S:g} s", recoverable=True) from error
    if process.returncode != 0:
        return None
    return _helper_answer(said, name, registry)


def _helper_answer(said: bytes, name: str, registry: str) -> dict[str, str]:
    try:
        found: dict[str, Any] = json.loads(said)
        user, secret = str(found["Username"]), str(found["Secret"])
    except (ValueError, KeyError, TypeError) as error:
        raise DriverError(f"docker-credential-{name} gave an answer that is not Docker's") from error
    if user == "<token>":
        return {"identitytoken": secret, "serveraddress": registry}
    return {"username": user, "password": secret, "serveraddress": registry}


def registry_of(image: str) -> str:
    """The registry of an image: its first part when that looks like a host, else Docker's own."""
    host, slash, _ = split_image(image)[0].partition("/")
    is_host = bool(slash) and ("." in host or ":" in host or host == "localhost")
    return host if is_host else DOCKER_HUB
