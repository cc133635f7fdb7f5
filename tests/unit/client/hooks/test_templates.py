"""Templates around a task's life, with servers and a clock of the test's own."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.builders import make_alloc, make_group, make_job, make_node, make_service, make_task
from tests.clocks import ManualClock

from lepa.client.alloc_dir import AllocDir
from lepa.client.hooks.protocol import HookError, Setup
from lepa.client.hooks.templates import TemplateHook
from lepa.client.identities import Identities
from lepa.client.task_env import Directories, Place
from lepa.kit.sources import SeededRandom
from lepa.model.errors import LepaError
from lepa.model.service import ServiceRegistration
from lepa.model.task import ChangeScript, Template
from lepa.rpc.acl_requests import SignedIdentity, VariableView
from lepa.rpc.methods import IDENTITY_SIGN, VARIABLE_GET, VARIABLE_LIST
from lepa.rpc.requests import Reply

LIST = '{{ range nomadService "db" }}{{ .Port }},{{ end }}'
SECOND = 1_000_000_000


class FakeTask:
    def __init__(self) -> None:
        self.asked: list[str] = []
        self.code = 0
        self.error: LepaError | None = None

    def note(self, kind: str, message: str) -> None:
        self.asked.append(f"note {message}")

    def restart(self, reason: str) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append("restart")

    def kill(self, reason: str, *, failed: bool = False) -> None:
        self.asked.append(f"kill {failed}")

    async def signal(self, name: str, reason: str) -> None:
        self.asked.append(f"signal {name}")

    async def run_command(self, command: Sequence[str]) -> tuple[int, bytes]:
        if self.error is not None:
            raise self.error
        self.asked.append(f"run {' '.join(command)}")
        return self.code, b""


class Bench:
    """A hook, its servers and its task."""

    def __init__(self, root: Path) -> None:
        self.clock = ManualClock()
        self.task = FakeTask()
        self.index = 5
        self.services: list[ServiceRegistration] = []
        self.failures = 0
        self.locked = False
        self.variables: dict[tuple[str, str], dict[str, str]] = {}
        self._changed = asyncio.Event()
        self.directory = AllocDir(root, "a")
        self.directory.build(["web"])
        signer = Identities(self, make_node)
        self.hook = TemplateHook(self.directory, self, self.clock, SeededRandom(1), identities=signer)

    async def call(self, method: Any, request: Any) -> Reply[Any]:
        if self.failures:
            self.failures -= 1
            raise LepaError("no_leader", "away")
        if method is IDENTITY_SIGN:
            signed = (SignedIdentity(wanted=each, jwt="signed") for each in request.wanted)
            return Reply(value=tuple(signed))
        if self.locked and request.auth_token != "signed":
            raise LepaError("denied", "Permission denied")
        while request.index >= self.index:
            await self._changed.wait()
        if method is VARIABLE_GET:
            items = self.variables.get((request.namespace, request.id))
            return Reply(value=None if items is None else VariableView(items=items), index=self.index)
        if method is VARIABLE_LIST:
            found = [path for namespace, path in self.variables if path.startswith(request.prefix)]
            return Reply(value=tuple(VariableView(path=path) for path in found), index=self.index)
        return Reply(value=tuple(self.services), index=self.index)

    def stream(self, method: Any, request: Any) -> Any:
        raise AssertionError

    def offer(self, *ports: int) -> None:
        self.index += 1
        self.services = [make_service(str(port), service_name="db", port=port) for port in ports]
        self._changed.set()
        self._changed = asyncio.Event()

    def write(self, path: str, namespace: str = "default", **items: str) -> None:
        self.index += 1
        self.variables[namespace, path] = items
        self._changed.set()
        self._changed = asyncio.Event()

    def setup(self, *templates: Template) -> Setup:
        task = make_task(templates=templates)
        group = make_group(tasks=(task,))
        job = make_job(groups=(group,))
        place = Place(make_node(), "global", job, group, task, make_alloc("a", job=job), Directories("", "", ""))
        return Setup(place, {"NAME": "web"}, self.task)

    async def start(self, *templates: Template) -> None:
        setup = self.setup(*templates)
        await self.hook.prestart(setup)
        await self.hook.poststart(setup, None)

    async def pass_time(self, seconds: float) -> None:
        for _ in range(3):
            await self.clock.advance(seconds / 3)

    def read(self, name: str = "out") -> str:
        return (self.directory.task("web").local / name).read_text()


async def _at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


@pytest.fixture
async def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """What is for threads is done at once, so that nothing takes real time."""
    monkeypatch.setattr(asyncio, "to_thread", _at_once)
    found = Bench(tmp_path)
    yield found
    await found.hook.close()
    found.directory.destroy()


def template(text: str = LIST, path: str = "local/out", **fields: Any) -> Template:
    return Template(embedded_tmpl=text, dest_path=path, **fields)


async def test_a_change_restarts_the_task_after_some_quiet_and_a_splay(bench: Bench) -> None:
    await bench.start(template(splay=10 * SECOND), template(path="local/two", splay=0))
    assert bench.read() == ""
    bench.offer(1)
    await bench.pass_time(3.0)
    assert bench.read() == ""
    bench.offer(1, 2)
    await bench.pass_time(4.0)
    assert bench.read() == ""
    await bench.pass_time(3.0)
    assert bench.read() == bench.read("two") == "1,2,"
    await bench.pass_time(10.0)
    assert bench.task.asked == ["restart"]


async def test_each_signal_is_sent_once_and_scripts_run(bench: Bench) -> None:
    signal: dict[str, Any] = {"change_mode": "signal", "change_signal": "SIGHUP", "splay": 0}
    script = ChangeScript(command="/bin/${node.datacenter}", args=("x",))
    await bench.start(
        template(**signal),
        template(path="local/two", **signal),
        template(path="local/three", change_mode="script", change_script=script, splay=0),
    )
    bench.offer(1)
    await bench.pass_time(9.0)
    assert bench.task.asked == [
        "signal SIGHUP",
        "run /bin/dc1 x",
        "note Template ran script /bin/${node.datacenter}: exit code 0",
    ]


async def test_a_script_may_run_after_the_first_rendering_and_end_the_task(bench: Bench) -> None:
    script = ChangeScript(command="x", run_on_first_render=True, fail_on_error=True)
    bench.task.code = 1
    await bench.start(template("text", change_mode="script", change_script=script))
    await bench.pass_time(1.0)
    assert bench.task.asked[0] == "run x"
    assert bench.task.asked[-1] == "kill True"


async def test_noop_renders_and_does_nothing_and_once_does_not_even_render(bench: Bench) -> None:
    await bench.start(template(change_mode="noop"), template(path="local/once", once=True))
    bench.offer(1)
    await bench.pass_time(9.0)
    assert bench.read() == "1,"
    assert bench.task.asked == []


async def test_only_once_templates_are_not_watched(bench: Bench) -> None:
    await bench.start(template(once=True))
    bench.offer(1)
    await bench.pass_time(9.0)
    assert bench.read() == ""


async def test_a_restart_that_comes_too_late_is_noted(bench: Bench) -> None:
    bench.task.error = LepaError("invalid", "Task not running")
    await bench.start(template(splay=0))
    bench.offer(1)
    await bench.pass_time(9.0)
    assert bench.task.asked == ["note Template re-rendered, but: Task not running"]


async def test_servers_that_are_away_are_asked_again_but_not_for_ever(bench: Bench) -> None:
    bench.failures = 3
    starting = asyncio.create_task(bench.start(template()))
    await bench.pass_time(6.0)
    assert starting.done()
    bench.failures = 1000
    other = TemplateHook(bench.directory, bench, bench.clock, SeededRandom(1))
    failing = asyncio.create_task(other.prestart(bench.setup(template())))
    for _ in range(20):
        await bench.pass_time(60.0)
    with pytest.raises(HookError) as raised:
        await failing
    assert raised.value.recoverable
    await other.close()


async def test_a_task_that_was_taken_up_learns_of_what_changed_meanwhile(bench: Bench) -> None:
    await bench.start(template("A=1", "local/x.env", envvars=True), template(splay=0))
    await bench.hook.close()
    bench.offer(1)
    again = TemplateHook(bench.directory, bench, bench.clock, SeededRandom(1))
    setup = bench.setup(template("A=2", "local/x.env", envvars=True, splay=0), template(splay=0))
    assert await again.recovered(setup) == {"A": "1"}
    await again.poststart(setup, None)
    await bench.pass_time(9.0)
    assert bench.read() == "1,"
    assert bench.task.asked == ["restart"]
    await again.close()


@pytest.mark.parametrize("error", [None, LepaError("invalid", "Task not running")])
async def test_a_script_waits_for_a_task_that_is_taken_up_slowly(bench: Bench, error: LepaError | None) -> None:
    """B201: the agent restarts, the text changes, and the task is not there yet."""
    wanted = template(change_mode="script", change_script=ChangeScript(command="x"), splay=0)
    await bench.start(wanted)
    await bench.hook.close()
    bench.offer(1)
    again = TemplateHook(bench.directory, bench, bench.clock, SeededRandom(1))
    setup = bench.setup(wanted)
    await again.recovered(setup)
    await bench.pass_time(30.0)
    assert bench.task.asked == []
    bench.task.error = error
    await again.poststart(setup, None)
    await bench.pass_time(9.0)
    assert bench.read() == "1,"
    outcome = "exit code 0" if error is None else "Task not running"
    assert bench.task.asked[-1] == f"note Template ran script x: {outcome}"
    assert bench.task.asked[:-1] == (["run x"] if error is None else [])
    await again.close()


@pytest.mark.parametrize(
    "wrong",
    [template("{{ nope }}"), template("x", "../../../out"), template("no variable", "local/x.env", envvars=True)],
)
async def test_what_cannot_be_rendered_will_not_be_tried_again(bench: Bench, wrong: Template) -> None:
    with pytest.raises(HookError) as raised:
        await bench.start(wrong)
    assert not raised.value.recoverable


async def test_too_many_services_are_refused(bench: Bench) -> None:
    with pytest.raises(HookError, match="100 services"):
        await bench.start(template('{{ range $i := loop 101 }}{{ nomadService (printf "s%d" $i) }}{{ end }}'))


VARIABLE = '{{ with nomadVar "nomad/jobs/web" }}{{ .user }}:{{ .password }}{{ end }}'


async def test_a_variable_is_rendered_and_a_change_of_it_is_a_change(bench: Bench) -> None:
    bench.write("nomad/jobs/web", user="u", password="1")
    bench.write("other", namespace="far", user="v", password="2")
    far = '{{ with nomadVar "other@far" }}{{ .user }}{{ end }}'
    await bench.start(template(VARIABLE, splay=0), template(far, path="local/far"))
    assert bench.read() == "u:1"
    assert bench.read("far") == "v"
    bench.write("nomad/jobs/web", user="u", password="3")
    await bench.pass_time(30.0)
    assert bench.read() == "u:3"
    assert bench.task.asked.count("restart") == 1


async def test_servers_that_ask_who_wants_it_are_shown_the_tasks_identity(bench: Bench) -> None:
    bench.locked = True
    bench.write("nomad/jobs/web", user="u", password="1")
    await bench.start(template(VARIABLE))
    assert bench.read() == "u:1"


async def test_a_variable_that_is_not_there_is_waited_for(bench: Bench) -> None:
    starting = asyncio.create_task(bench.start(template(VARIABLE)))
    await asyncio.sleep(0.05)
    assert not starting.done()
    assert bench.task.asked == ["note Missing: nomad.var.block(nomad/jobs/web)"]
    bench.write("nomad/jobs/web", user="u", password="1")
    await starting
    assert bench.read() == "u:1"


async def test_a_variable_that_goes_leaves_what_was_rendered(bench: Bench) -> None:
    bench.write("nomad/jobs/web", user="u", password="1")
    await bench.start(template(VARIABLE, splay=0))
    del bench.variables["default", "nomad/jobs/web"]
    bench.write("nomad/jobs/else")
    await bench.pass_time(30.0)
    assert bench.read() == "u:1"
    assert "restart" not in bench.task.asked
    bench.write("nomad/jobs/web", user="w", password="1")
    await bench.pass_time(30.0)
    assert bench.read() == "w:1"


async def test_lists_of_variables_and_whether_there_are_any(bench: Bench) -> None:
    bench.write("a/b", x="1")
    bench.write("a/c", x="1")
    text = (
        '{{ range nomadVarList "a" }}{{ .Path }} {{ end }}{{ nomadVarExists "a/b" }} {{ nomadVarExists "a/z" }} '
        '{{ nomadVarListExists "a" }} {{ nomadVarListExists "z" }} {{ len (nomadVarListSafe "z") }}'
    )
    await bench.start(template(text))
    assert bench.read() == "a/b a/c true false true false 0"
