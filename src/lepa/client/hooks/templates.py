"""Renders a task's templates before it starts, and again when what they depend on changes.

    prestart   find out what the templates need, render them all, write what differs, load `env` templates
    watch      a blocking query a need; after a change, and some quiet, render again; what then differs decides:
               restart the task (once, for all templates), else signal it or run scripts, after a random splay

A task that an earlier agent started is compared with what lies on disk, so a change that nobody saw is acted on now.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

from msgspec.structs import replace

from lepa.client import confined, task_env
from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks import template_text
from lepa.client.hooks.env_file import parse_env_file
from lepa.client.hooks.protocol import HookError, QuietHook, Setup
from lepa.client.hooks.template_settings import TemplateSettings
from lepa.client.hooks.template_text import MAYBE_VARIABLE, SERVICE, VARIABLE, VARIABLES, Need
from lepa.client.identities import Identities
from lepa.client.waiting import happens
from lepa.drivers.protocol import TaskNetwork
from lepa.kit.durations import SECOND
from lepa.kit.sources import Clock, Random
from lepa.kit.tasks import Tasks
from lepa.model.errors import LepaError, invalid
from lepa.model.service import ServiceRegistration
from lepa.model.task import ChangeScript, Template
from lepa.rpc import methods as m
from lepa.rpc.acl_requests import VariableView
from lepa.rpc.methods import Caller
from lepa.rpc.requests import WAIT_MAX_NS, ReadRequest, Reply, ServiceReadRequest

log = logging.getLogger(__name__)

NEEDS_MAX = 100
ROUNDS_MAX = 16
"""Renderings until a template has said everything that it needs: each may depend on what the last one found."""
CALL_FACTOR = 1.2
"""How much longer than the longest wait of a query its answer may take."""
SOURCE_BYTES_MAX = 8 * 1024 * 1024


class TemplateHook(QuietHook):
    """`template { data = "…" destination = "local/app.conf" }`"""

    name = "templates"

    def __init__(
        self,
        directory: AllocDir,
        caller: Caller,
        clock: Clock,
        random: Random,
        settings: TemplateSettings | None = None,
        identities: Identities | None = None,
    ) -> None:
        """identities: gives what is shown to servers that want to know who asks."""
        self._directory = directory
        self._identities = identities
        self._token = ""
        self._settings = settings or TemplateSettings()
        self._caller = caller
        self._clock = clock
        self._random = random
        self._tasks = Tasks("client.templates")
        self._known: dict[Need, Reply[Sequence[Any]]] = {}
        self._needs: set[Need] = set()
        self._following: set[Need] = set()
        self._rendering = False
        self._changed = asyncio.Event()
        self._runs = asyncio.Event()
        self._setup: Setup | None = None
        self._first_scripts: list[ChangeScript] = []

    # Around the task

    async def prestart(self, setup: Setup) -> Mapping[str, str]:
        """Render everything once."""
        self._setup = setup
        try:
            written = await self._render_all(setup)
            added = await asyncio.to_thread(self._env, setup)
        except LepaError as error:
            recoverable = error.code in {"timeout", "no_leader", "internal"}
            raise HookError(error.message, recoverable=recoverable, event="Template") from error
        scripts = [template.change_script for template in written if template.change_mode == "script"]
        self._first_scripts = [script for script in scripts if script is not None and script.run_on_first_render]
        self._watch()
        return added

    async def recovered(self, setup: Setup) -> Mapping[str, str]:
        """The variables as they were rendered; what changed meanwhile is found in the background."""
        self._setup = setup
        added: Mapping[str, str] = {}
        with contextlib.suppress(LepaError):
            added = await asyncio.to_thread(self._env, setup)
        self._changed.set()
        self._watch()
        return added

    async def poststart(self, setup: Setup, network: TaskNetwork | None) -> None:
        """Scripts that want to run after the first rendering too."""
        self._runs.set()
        scripts, self._first_scripts = self._first_scripts, []
        for script in scripts:
            self._tasks.start("script", self._run_script(script, setup))

    async def exited(self) -> None:
        """Changes are of no interest until the next start, which renders anyway."""
        self._runs.clear()

    async def close(self) -> None:
        """End all queries."""
        await self._tasks.close()

    # Rendering

    async def _render_all(self, setup: Setup, *, again: bool = False) -> list[Template]:
        """Render every template; returns those whose file differed from it and was written anew.

        again: while the task runs, when templates that say `once` stay as they are.
        """
        written = []
        for template in setup.place.task.templates:
            if again and template.once:
                continue
            text = await self._render(template, setup)
            if await asyncio.to_thread(self._write, template, text, setup):
                written.append(template)
        return written

    async def _render(self, template: Template, setup: Setup) -> str:
        """Render until nothing is missing."""
        text = await asyncio.to_thread(self._text, template, setup)
        for _ in range(ROUNDS_MAX):
            world = _World(self._directory, setup, self._known, self._clock.now_ns(), self._settings)
            rendering = await asyncio.to_thread(
                template_text.render,
                text,
                world,
                left=template.left_delim,
                right=template.right_delim,
                strict=template.err_missing_key,
                denied=self._settings.denied,
            )
            if not template.once:
                self._needs |= rendering.needs
            if len(self._known.keys() | rendering.needs) > NEEDS_MAX:
                raise invalid(f"the templates of a task may depend on {NEEDS_MAX} services and variables at most")
            if not rendering.missing:
                return rendering.text
            for need in rendering.missing:
                self._known[need] = await self._first_answer(need, setup)
        raise invalid("a template asks for ever more services or variables")

    def _text(self, template: Template, setup: Setup) -> str:
        if template.embedded_tmpl or not template.source_path:
            return template.embedded_tmpl
        path = task_env.interpolate(template.source_path, task_env.references(setup.place, setup.env))
        return _read(self._directory, self._directory.of_task(setup.place.task.name, path))

    def _destination(self, template: Template, setup: Setup) -> str:
        path = task_env.interpolate(template.dest_path, task_env.references(setup.place, setup.env))
        return self._directory.of_task(setup.place.task.name, path)

    def _write(self, template: Template, text: str, setup: Setup) -> bool:
        """Write the file when its content differs; whether it did."""
        path = self._destination(template, setup)
        with contextlib.suppress(LepaError):
            if _read(self._directory, path) == text:
                return False
        owner = confined.Owner(_id(template.uid), _id(template.gid))
        confined.write_file(
            self._directory.path, path, text.encode(), mode=int(template.perms or "0644", 8), owner=owner
        )
        return True

    def _env(self, setup: Setup) -> dict[str, str]:
        """Variables of all `env` templates, the last one winning."""
        added: dict[str, str] = {}
        for template in setup.place.task.templates:
            if template.envvars:
                path = self._destination(template, setup)
                added |= parse_env_file(_read(self._directory, path), path)
        return added

    # Finding out

    async def _first_answer(self, need: Need, setup: Setup) -> Reply[Sequence[Any]]:
        """Ask until somebody answers. Raises LepaError after as many attempts as the settings say."""
        settings, delay_s, attempt = self._settings, self._settings.backoff_s, 1
        while True:
            try:
                return await self._when_there(need, await self._ask(need, setup, 0), setup)
            except LepaError as error:
                if attempt == settings.attempts or error.code not in {"timeout", "no_leader", "internal"}:
                    raise
            await self._clock.sleep(delay_s)
            delay_s, attempt = min(2 * delay_s, settings.backoff_max_s), attempt + 1

    async def _when_there(self, need: Need, found: Reply[Any], setup: Setup) -> Reply[Sequence[Any]]:
        """The answer; a variable that a template cannot do without is waited for."""
        if need.kind == VARIABLE and found.value is None:
            setup.task.note("Template", f"Missing: nomad.var.block({need.name})")
            while found.value is None:
                found = await self._ask(need, setup, max(found.index, 1))
        return found

    async def _ask(self, need: Need, setup: Setup, index: int) -> Reply[Any]:
        """What a template needs; when it differs from `index` or after the longest wait.

        Servers that want to know who asks are shown the task's identity.
        """
        try:
            return await self._asked(need, setup, index)
        except LepaError as error:
            if error.code != "denied" or self._identities is None:
                raise
        self._token = await self._identities.default(setup.place)
        return await self._asked(need, setup, index)

    async def _asked(self, need: Need, setup: Setup, index: int) -> Reply[Any]:
        namespace, wait_ns = setup.place.alloc.namespace, min(int(self._settings.query_s * SECOND), WAIT_MAX_NS)
        call_s = wait_ns / SECOND * CALL_FACTOR
        try:
            async with asyncio.timeout(call_s):
                if need.kind in (VARIABLE, MAYBE_VARIABLE, VARIABLES):
                    return await self._variables(need, namespace, index)
                if need.kind == SERVICE:
                    by_name = ServiceReadRequest(
                        id=need.name, namespace=namespace, index=index, stale=True, auth_token=self._token
                    )
                    found = await self._caller.call(m.SERVICE_GET, by_name)
                    return Reply(value=found.value, index=found.index)
                listing = ReadRequest(namespace=namespace, index=index, stale=True, auth_token=self._token)
                names = await self._caller.call(m.SERVICE_LIST, listing)
        except TimeoutError as error:
            raise LepaError("timeout", f"no server answered what a template needs within {call_s:g} s") from error
        stubs = [stub for each in names.value if each.namespace == namespace for stub in each.services]
        return Reply(value=tuple((stub.service_name, stub.tags) for stub in stubs), index=names.index)

    async def _variables(self, need: Need, namespace: str, index: int) -> Reply[Any]:
        """A variable's items in a tuple, None (or, where it may be missing, nothing) when it is not there; or the
        variables below a path."""
        path, _, elsewhere = need.name.partition("@")
        about = ReadRequest(namespace=elsewhere or namespace, index=index, auth_token=self._token)
        if need.kind == VARIABLES:
            listed = await self._caller.call(m.VARIABLE_LIST, replace(about, prefix=path))
            return Reply(value=tuple(map(_stub, listed.value)), index=listed.index)
        found = await self._caller.call(m.VARIABLE_GET, replace(about, id=path))
        absent = () if need.kind == MAYBE_VARIABLE else None
        return Reply(value=absent if found.value is None else (found.value.items or {},), index=found.index)

    def _watch(self) -> None:
        """Follow what the templates need; once, for all lives of the task."""
        if not self._rendering and any(not template.once for template in self._templates()):
            self._rendering = True
            self._tasks.start("render", self._render_again())
        for need in self._needs - self._following:
            self._following.add(need)
            self._tasks.start("follow", self._follow(need))

    def _templates(self) -> tuple[Template, ...]:
        return self._setup.place.task.templates if self._setup is not None else ()

    async def _follow(self, need: Need) -> None:
        first_s, last_s = self._settings.backoff_s, self._settings.backoff_max_s
        delay_s = first_s
        while True:
            assert self._setup is not None
            known = self._known[need]
            try:
                now = await self._ask(need, self._setup, max(known.index, 1))
            except LepaError as error:
                log.warning("what a template needs could not be followed name=%s error=%s", need.name, error.message)
                await self._clock.sleep(delay_s)
                delay_s = min(2 * delay_s, last_s)
                continue
            delay_s = first_s
            if now.value is None:
                self._known[need] = replace(known, index=now.index)
                continue  # what was there is gone: the last rendering stands until it is there again
            self._known[need] = now
            if _without_indexes(now.value) != _without_indexes(known.value):
                self._changed.set()

    # After a change

    async def _render_again(self) -> None:
        """Render after each change, and do what the templates say about it."""
        while True:
            await self._changed.wait()
            await self._quiet()
            await self._runs.wait()
            assert self._setup is not None
            setup = self._setup
            try:
                written = await self._render_all(setup, again=True)
            except LepaError as error:
                setup.task.note("Template", error.message)
                await self._clock.sleep(self._settings.backoff_max_s)
                self._changed.set()
                continue
            self._watch()
            await self._act(written, setup)

    async def _quiet(self) -> None:
        """Wait until nothing has changed for a while, but not for ever."""
        waits = [template.wait for template in self._templates() if template.wait is not None]
        quiet_s = self._settings.quiet(min((wait.min / SECOND for wait in waits if wait.min is not None), default=None))
        last_s = self._settings.quiet_max(
            min((wait.max / SECOND for wait in waits if wait.max is not None), default=None)
        )
        until = self._clock.now() + last_s
        self._changed.clear()
        while self._clock.now() < until and await happens(self._changed, self._clock, quiet_s):
            self._changed.clear()

    async def _act(self, written: Sequence[Template], setup: Setup) -> None:
        """Restart, or signal and run scripts, after a random part of the longest splay."""
        acting = [template for template in written if template.change_mode != "noop"]
        if not acting:
            return
        await self._clock.sleep(self._random.uniform(0.0, max(template.splay for template in acting) / SECOND))
        try:
            if any(template.change_mode == "restart" for template in acting):
                setup.task.restart("Template with change_mode restart re-rendered")
                return
            for name in sorted({template.change_signal for template in acting if template.change_mode == "signal"}):
                await setup.task.signal(name, "Template re-rendered")
        except LepaError as error:
            setup.task.note("Template", f"Template re-rendered, but: {error.message}")
        for template in acting:
            if template.change_mode == "script" and template.change_script is not None:
                await self._run_script(template.change_script, setup)

    async def _run_script(self, script: ChangeScript, setup: Setup) -> None:
        targets = task_env.references(setup.place, setup.env)
        command = [task_env.interpolate(word, targets) for word in (script.command, *script.args)]
        try:
            async with asyncio.timeout(script.timeout / SECOND):
                code, _ = await setup.task.run_command(command)
            outcome = f"exit code {code}"
        except TimeoutError:
            code, outcome = -1, f"not done within {script.timeout / SECOND:g} s"
        except LepaError as error:
            code, outcome = -1, error.message
        setup.task.note("Template", f"Template ran script {script.command}: {outcome}")
        if code != 0 and script.fail_on_error:
            setup.task.kill(f"Template script {script.command} failed: {outcome}", failed=True)


class _World:
    """What a template of a task may see."""

    def __init__(
        self,
        directory: AllocDir,
        setup: Setup,
        known: Mapping[Need, Reply[Sequence[Any]]],
        now_ns: int,
        settings: TemplateSettings,
    ) -> None:
        self._directory = directory
        self._sandbox = settings.file_sandbox
        self._task = setup.place.task.name
        self._known = known
        self.env = setup.env
        self.now_ns = now_ns

    def known(self, need: Need) -> Sequence[Any] | None:
        """What is known, None while it is not."""
        reply = self._known.get(need)
        return None if reply is None else reply.value

    def read_file(self, path: str) -> str:
        """A file of the allocation; any file of the host where the operator lifted that."""
        if not self._sandbox and path.startswith("/") and not path.startswith(("/alloc/", "/local/", "/secrets/")):
            return _text(open(path, "rb"), path)
        return _read(self._directory, self._directory.of_task(self._task, path))


def _read(directory: AllocDir, path: str) -> str:
    return _text(confined.open_file(directory.path, path), path)


def _text(opened: BinaryIO, path: str) -> str:
    with opened as file:
        data = file.read(SOURCE_BYTES_MAX + 1)
    if len(data) > SOURCE_BYTES_MAX:
        raise invalid(f"{path} is larger than {SOURCE_BYTES_MAX} bytes")
    return data.decode(errors="replace")


def _id(number: int | None) -> int:
    return -1 if number is None else number


def _stub(variable: VariableView) -> dict[str, Any]:
    """A variable of a list as templates see it."""
    return {
        "Namespace": variable.namespace,
        "Path": variable.path,
        "CreateIndex": variable.create_index,
        "ModifyIndex": variable.modify_index,
        "CreateTime": variable.create_time,
        "ModifyTime": variable.modify_time,
    }


def _without_indexes(found: Sequence[Any]) -> list[Any]:
    """What matters to a template: an instance that was only written again is the same."""
    return [
        replace(each, create_index=0, modify_index=0) if isinstance(each, ServiceRegistration) else each
        for each in found
    ]
