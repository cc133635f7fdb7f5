"""Artifacts and templates of tasks on a whole node, with a real HTTP server, git repositories and archives."""

import asyncio
import contextlib
import hashlib
import io
import os
import subprocess
import tarfile
import zipfile
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from tests.builders import make_group, make_job, make_service, make_task
from tests.node import Servers, own_supervisor, placed, running_client

from lepa.client import secrets_mount
from lepa.client.client import Client
from lepa.client.hooks.artifact_settings import ArtifactSettings
from lepa.drivers.raw_exec import RawExec, RawExecSettings
from lepa.drivers.supervisor.client import Supervisor
from lepa.kit.sources import SystemClock
from lepa.model.allocation import Allocation
from lepa.model.policies import RestartPolicy
from lepa.model.service import ServiceRegistration
from lepa.model.task import ChangeScript, TaskArtifact, Template, WaitConfig

SOON = WaitConfig(min=20_000_000)
NEVER = RestartPolicy(attempts=0)
LAYOUT = {"bin/tool": b"#!/bin/sh\necho tool\n", "README": b"read me\n"}


@pytest.fixture
def servers() -> Servers:
    return Servers()


@pytest.fixture(autouse=True)
def no_mounts_left(tmp_path: Path) -> Iterator[None]:
    yield
    secrets_mount.unmount_below(tmp_path)


@contextlib.asynccontextmanager
async def http_server(answers: dict[str, bytes], seen: list[web.Request] | None = None) -> AsyncIterator[str]:
    """A server of fixed answers; its URL."""

    async def answer(request: web.Request) -> web.Response:
        if seen is not None:
            seen.append(request)
        body = answers.get(request.path)
        return web.Response(status=404) if body is None else web.Response(body=body)

    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


def tar(entries: dict[str, bytes], *members: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        for name, data in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o755
            archive.addfile(entry, io.BytesIO(data))
        for member in members:
            archive.addfile(member)
    return out.getvalue()


def zipped(entries: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return out.getvalue()


def link(name: str, target: str) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = tarfile.SYMTYPE, target
    return entry


def with_artifacts(*artifacts: TaskArtifact, **fields: Any) -> Allocation:
    task = make_task(config={"run_for": "1h"}, artifacts=artifacts)
    job = make_job(meta={"v": "1.2"}, groups=(make_group(tasks=(task,), restart_policy=NEVER),))
    return placed(job, **fields)


class TestArtifacts:
    async def run(self, tmp_path: Path, servers: Servers, alloc: Allocation, *wanted: str) -> tuple[Path, Allocation]:
        settings = {"meta": {"host": "127.0.0.1"}, "artifacts": ArtifactSettings(local_git=True)}
        async with running_client(tmp_path / "node", servers, **settings) as client:
            servers.place(alloc)
            seen = await servers.status(alloc.id, *(wanted or ("running",)))
            return client.alloc_root / alloc.id, seen

    async def test_files_and_archives_arrive(self, tmp_path: Path, servers: Servers) -> None:
        seen: list[web.Request] = []
        answers = {"/1.2/a.txt": b"text", "/a.tgz": tar(LAYOUT), "/b.zip": zipped(LAYOUT), "/c.sh": b"echo"}
        async with http_server(answers, seen) as url:
            port = url.rsplit(":", 1)[1]
            alloc = with_artifacts(
                TaskArtifact(getter_source=f"http://${{meta.host}}:{port}/${{NOMAD_META_v}}/a.txt"),
                TaskArtifact(
                    getter_source=f"{url}/a.tgz",
                    relative_dest="local/tar",
                    getter_headers={"X-Who": "${node.unique.name}"},
                ),
                TaskArtifact(getter_source=f"{url}/b.zip", relative_dest="${NOMAD_ALLOC_DIR}/data/zip"),
                TaskArtifact(getter_source=f"{url}/c.sh", relative_dest="local/run.sh", getter_mode="file"),
                TaskArtifact(getter_source=f"{url}/a.tgz", relative_dest="local", getter_options={"archive": "false"}),
                TaskArtifact(getter_source=f"{url}/a.tgz//bin", relative_dest="local/part"),
                TaskArtifact(getter_source=f"{url}/c.sh", relative_dest="secrets/"),
            )
            root, _ = await self.run(tmp_path, servers, alloc)
            local = root / "web/local"
            assert (local / "a.txt").read_bytes() == b"text"
            assert (local / "tar/bin/tool").read_bytes() == LAYOUT["bin/tool"]
            assert os.access(local / "tar/bin/tool", os.X_OK)
            assert (root / "alloc/data/zip/README").read_bytes() == b"read me\n"
            assert (local / "run.sh").read_bytes() == b"echo"
            assert (local / "a.tgz").read_bytes() == answers["/a.tgz"]
            assert (local / "part/tool").exists()
            assert (root / "web/secrets/c.sh").read_bytes() == b"echo"
            assert not list((root / "web/private").iterdir())
        assert seen[1].headers["X-Who"] == "here"
        assert "Downloading Artifacts" in servers.events(alloc.id)

    @pytest.mark.parametrize("as_option", [True, False])
    async def test_a_checksum_is_held(self, tmp_path: Path, servers: Servers, as_option: bool) -> None:
        good, bad = f"sha256:{hashlib.sha256(b'x').hexdigest()}", f"sha256:{'0' * 64}"

        def artifact(url: str, checksum: str) -> TaskArtifact:
            if as_option:
                return TaskArtifact(getter_source=url, getter_options={"checksum": checksum})
            return TaskArtifact(getter_source=f"{url}?checksum={checksum}")

        async with http_server({"/x": b"x"}) as url:
            await self.run(tmp_path / "1", servers, with_artifacts(artifact(f"{url}/x", good)))
            alloc = with_artifacts(artifact(f"{url}/x", bad), number=2)
            root, _ = await self.run(tmp_path / "2", servers, alloc, "failed")
        assert "Failed Artifact Download" in servers.events(alloc.id)
        assert not (root / "web/local/x").exists()

    @pytest.mark.parametrize(
        "archive",
        [
            tar({"../../out": b"x"}),
            tar({"/tmp/lepa-slip": b"x"}, link("l", "/etc")),
            tar({}, link("l", "../../..")),
            zipped({"../../out": b"x"}),
            b"no archive at all",
        ],
        ids=["tar-up", "tar-absolute-link", "tar-link-up", "zip-up", "broken"],
    )
    async def test_a_hostile_archive_is_refused(self, tmp_path: Path, servers: Servers, archive: bytes) -> None:
        name = "/a.zip" if archive[:2] == b"PK" else "/a.tgz"
        async with http_server({name: archive}) as url:
            alloc = with_artifacts(TaskArtifact(getter_source=url + name))
            root, _ = await self.run(tmp_path, servers, alloc, "failed")
        assert "Failed Artifact Download" in servers.events(alloc.id)
        assert list((root / "web/local").iterdir()) == []
        assert not Path("/tmp/lepa-slip").exists()

    async def test_a_destination_outside_is_refused(self, tmp_path: Path, servers: Servers) -> None:
        async with http_server({"/x": b"x"}) as url:
            alloc = with_artifacts(TaskArtifact(getter_source=f"{url}/x", relative_dest="../../../out"))
            _, failed = await self.run(tmp_path, servers, alloc, "failed")
        assert "escapes" in " ".join(told.display_message for told in failed.task_states["web"].events)

    async def test_a_missing_file_is_tried_again_as_the_policy_says(self, tmp_path: Path, servers: Servers) -> None:
        policy = RestartPolicy(attempts=1000, interval=60_000_000_000, delay=50_000_000)
        answers: dict[str, bytes] = {}
        async with http_server(answers) as url, running_client(tmp_path, servers):
            artifact = TaskArtifact(getter_source=f"{url}/late")
            dead, other = (
                make_task(config={"run_for": "1h"}, artifacts=(artifact,)),
                make_task("other", config={"run_for": "1h"}),
            )
            servers.place(alloc := placed(make_job(groups=(make_group(tasks=(dead, other), restart_policy=policy),))))
            await servers.until(lambda: (a := servers.reported.get(alloc.id)) and a.task_states["web"].restarts)
            await servers.until(lambda: servers.reported[alloc.id].task_states["other"].state == "running")
            answers["/late"] = b"there"
            await servers.until(lambda: servers.reported[alloc.id].task_states["web"].state == "running")

    async def test_a_repository_is_cloned_at_a_revision(self, tmp_path: Path, servers: Servers) -> None:
        repository = tmp_path / "repository"
        repository.mkdir()

        def git(*words: str) -> None:
            identity = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "init.defaultBranch=main"]
            subprocess.run(["git", *identity, *words], cwd=repository, check=True, capture_output=True)

        git("init")
        (repository / "file").write_text("one")
        git("add", ".")
        git("commit", "-m", "one")
        git("tag", "v1")
        (repository / "file").write_text("two")
        git("commit", "-am", "two")
        alloc = with_artifacts(
            TaskArtifact(getter_source=f"git::{repository}", relative_dest="local/now"),
            TaskArtifact(
                getter_source=f"git::file://{repository}", relative_dest="local/then", getter_options={"ref": "v1"}
            ),
        )
        root, _ = await self.run(tmp_path, servers, alloc)
        assert (root / "web/local/now/file").read_text() == "two"
        assert (root / "web/local/then/file").read_text() == "one"
        assert not (root / "web/local/now/.git").exists()

    async def test_a_job_is_stopped_during_a_long_download(self, tmp_path: Path, servers: Servers) -> None:
        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(-1)

        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server, running_client(tmp_path, servers):
            port = server.sockets[0].getsockname()[1]
            servers.place(alloc := with_artifacts(TaskArtifact(getter_source=f"http://127.0.0.1:{port}/x")))
            await servers.until(
                lambda: alloc.id in servers.reported and "Downloading Artifacts" in servers.events(alloc.id)
            )
            servers.stop(alloc.id)
            await servers.status(alloc.id, "complete")


def with_templates(*templates: Template, run_for: str = "1h", **fields: Any) -> Allocation:
    task = make_task(config={"run_for": run_for}, templates=tuple(replace(t, splay=0, wait=SOON) for t in templates))
    job = make_job(meta={"v": "1.2"}, groups=(make_group(tasks=(task,), restart_policy=NEVER),))
    return placed(job, **fields)


def template(text: str, path: str = "local/out", **fields: Any) -> Template:
    return Template(embedded_tmpl=text, dest_path=path, **fields)


LIST = '{{ range nomadService "db" }}{{ .Address }}:{{ .Port }} {{ end }}'


def database(number: int) -> ServiceRegistration:
    return make_service(f"db-{number}", service_name="db", port=5000 + number)


class TestTemplates:
    async def test_files_are_rendered_before_the_start(self, tmp_path: Path, servers: Servers) -> None:
        alloc = with_templates(
            template('{{ env "NOMAD_META_v" }} {{ "a,b" | split "," | join "-" | toUpper }}'),
            template(
                '[[ env "NOMAD_JOB_ID" ]] {{ plain }}', "local/other", left_delim="[[", right_delim="]]", perms="0600"
            ),
            template("shared", "${NOMAD_ALLOC_DIR}/data/shared"),
            template("hidden", "${NOMAD_SECRETS_DIR}/hidden"),
            Template(source_path="local/out", dest_path="local/copy"),
        )
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc)
            await servers.status(alloc.id, "running")
            root = client.alloc_root / alloc.id
            assert (root / "web/local/out").read_text() == "1.2 A-B"
            assert (root / "web/local/other").stat().st_mode & 0o777 == 0o600
            assert (root / "web/local/other").read_text() == "web {{ plain }}"
            assert (root / "alloc/data/shared").read_text() == "shared"
            assert (root / "web/secrets/hidden").read_text() == "hidden"
            assert (root / "web/local/copy").read_text() == "1.2 A-B"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ('{{ key "a/b" }}', "key-value store"),
            ('{{ plugin "id" }}', "not allowed"),
            ("{{ nothing }}", "nothing"),
            ("{{ if }}", "line 1"),
            ('{{ file "/etc/passwd" }}', "no such file"),
            ('{{ file "../../../../etc/passwd" }}', "escapes"),
        ],
    )
    async def test_what_cannot_be_rendered_fails_the_task_with_a_sentence(
        self, tmp_path: Path, servers: Servers, text: str, reason: str
    ) -> None:
        async with running_client(tmp_path, servers):
            servers.place(alloc := with_templates(template(text)))
            failed = await servers.status(alloc.id, "failed")
        told = next(told for told in failed.task_states["web"].events if told.type == "Template")
        assert reason in told.display_message

    async def test_a_changed_service_restarts_the_task_once(self, tmp_path: Path, servers: Servers) -> None:
        servers.offer(database(1))
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := with_templates(template(LIST), template(LIST, "local/two")))
            await servers.status(alloc.id, "running")
            out = client.alloc_root / alloc.id / "web/local/out"
            assert out.read_text() == "127.0.0.1:5001 "
            servers.offer(database(2))
            await servers.until(lambda: servers.reported[alloc.id].task_states["web"].restarts == 1)
            await servers.status(alloc.id, "running")
            assert out.read_text() == "127.0.0.1:5001 127.0.0.1:5002 "
            servers.withdraw("db-1")
            await servers.until(lambda: servers.reported[alloc.id].task_states["web"].restarts == 2)
            await servers.status(alloc.id, "running")
            assert out.read_text() == "127.0.0.1:5002 "
        assert "Template with change_mode restart re-rendered" in {
            told.details.get("restart_reason") for told in servers.reported[alloc.id].task_states["web"].events
        }

    async def test_a_service_that_is_only_written_again_changes_nothing(self, tmp_path: Path, servers: Servers) -> None:
        servers.offer(database(1))
        async with running_client(tmp_path, servers):
            servers.place(alloc := with_templates(template(LIST)))
            await servers.status(alloc.id, "running")
            for _ in range(3):
                servers.offer(database(1))
                await asyncio.sleep(0.05)
            assert servers.reported[alloc.id].task_states["web"].restarts == 0

    @pytest.mark.parametrize("mode", ["signal", "noop"])
    async def test_other_change_modes_leave_the_task_running(self, tmp_path: Path, servers: Servers, mode: str) -> None:
        async with running_client(tmp_path, servers) as client:
            servers.place(alloc := with_templates(template(LIST, change_mode=mode, change_signal="SIGHUP")))
            await servers.status(alloc.id, "running")
            out = client.alloc_root / alloc.id / "web/local/out"
            servers.offer(database(1))
            await servers.until(lambda: out.read_text() == "127.0.0.1:5001 ")
            if mode == "signal":
                await servers.until(lambda: "Signaling" in servers.events(alloc.id))
            assert servers.reported[alloc.id].task_states["web"].restarts == 0


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[Supervisor]:
    async with own_supervisor(tmp_path) as found:
        yield found


class TestTemplatesOfProcesses:
    @pytest.fixture
    def raw_client(self, tmp_path: Path, servers: Servers, supervisor: Supervisor) -> Callable[[], Any]:
        def make() -> contextlib.AbstractAsyncContextManager[Client]:
            drivers = {"raw_exec": RawExec(supervisor, SystemClock(), RawExecSettings(enabled=True))}
            return running_client(tmp_path / "node", servers, drivers)

        return make

    def alloc(self, script: str, *templates: Template) -> Allocation:
        task = make_task(
            driver="raw_exec",
            config={"command": "/bin/sh", "args": ["-c", script]},
            templates=tuple(replace(each, splay=0, wait=SOON) for each in templates),
        )
        return placed(make_job(groups=(make_group(tasks=(task,)),)))

    async def test_variables_come_from_templates(self, raw_client: Callable[[], Any], servers: Servers) -> None:
        env = template("A=\"x y\"\nB=${NOT} # no\n# c\nexport C='$1'", "${NOMAD_SECRETS_DIR}/x.env", envvars=True)
        async with raw_client() as client:
            servers.place(alloc := self.alloc('echo "$A|$B|$C" > local/env; sleep 60', env))
            out = client.alloc_root / alloc.id / "web/local/env"
            await servers.until(lambda: out.exists() and out.read_text())
            assert out.read_text() == "x y|${NOT}|$1\n"

    async def test_a_script_runs_after_a_change_and_after_one_that_nobody_saw(
        self, raw_client: Callable[[], Any], servers: Servers
    ) -> None:
        """Case B200."""
        script = ChangeScript(command="/bin/sh", args=("-c", "cat local/out >> local/log; echo >> local/log"))
        rendered = template(LIST, change_mode="script", change_script=script)
        async with raw_client() as client:
            servers.place(alloc := self.alloc("sleep 60", rendered))
            await servers.status(alloc.id, "running")
            log = client.alloc_root / alloc.id / "web/local/log"
            servers.offer(database(1))
            await servers.until(lambda: log.exists() and log.read_text() == "127.0.0.1:5001 \n")
        servers.offer(database(2))
        async with raw_client():
            await servers.until(lambda: log.read_text().count("\n") == 2)
            await asyncio.sleep(0.1)
            assert log.read_text().splitlines()[-1] == "127.0.0.1:5001 127.0.0.1:5002 "
            assert log.read_text().count("\n") == 2
        assert servers.reported[alloc.id].task_states["web"].restarts == 0

    async def test_a_script_that_fails_may_end_the_task(self, raw_client: Callable[[], Any], servers: Servers) -> None:
        script = ChangeScript(command="/bin/false", fail_on_error=True)
        async with raw_client():
            servers.place(alloc := self.alloc("sleep 60", template(LIST, change_mode="script", change_script=script)))
            await servers.status(alloc.id, "running")
            servers.offer(database(1))
            await servers.status(alloc.id, "failed")
