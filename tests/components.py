"""Real components that integration tests run against: OCI runtimes and a Docker daemon.

A component that is missing fails the test that needs it, with the command that installs it; nothing is skipped.
"""

import fcntl
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import tarfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from urllib.parse import urlencode

DOCKER_PACKAGES = "docker.io iptables busybox-static"
OCI_PACKAGES = "crun runc"
BUSYBOX_IMAGE = "lepa-test/busybox:1"
READY_WITHIN_S = 30.0


def require(program: str, packages: str) -> str:
    """The path of an installed program; fails with how to install it."""
    found = shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
    assert found, f"{program} is not installed: apt-get install -y --no-install-recommends {packages}"
    return found


def require_root() -> None:
    """Containers need root."""
    assert os.geteuid() == 0, "this test makes namespaces and cgroups: run it as root"


def allow_crun() -> None:
    """crun refuses a v2 cgroup tree with controllers beside v1 trees; taking hugetlb to v1 makes it empty.

    The mount is left in place: taking it away again empties the figures of a running Docker daemon. A hierarchy that is
    there and not mounted makes crun leave plain files in its place, so it is mounted then too.
    """
    controllers = Path("/sys/fs/cgroup/unified/cgroup.controllers")
    place = Path("/sys/fs/cgroup/hugetlb")
    made = ":hugetlb:" in Path("/proc/self/cgroup").read_text()
    if controllers.exists() and ("hugetlb" in controllers.read_text() or made) and not place.is_mount():
        place.mkdir(exist_ok=True)
        subprocess.run(["mount", "-t", "cgroup", "-o", "hugetlb", "cgroup", str(place)], check=True)


@contextmanager
def docker_daemon(shared: Path) -> Iterator[str]:
    """The endpoint of a Docker daemon with a busybox image: one that runs already, else one of our own.

    shared: a directory common to all test workers of a session; the first starts the daemon, the last stops it.
    """
    require_root()
    require("dockerd", DOCKER_PACKAGES)
    with _locked(shared) as state:
        if state["users"] == 0:
            found = _find_or_start(shared)
            try:
                import_busybox(str(found["socket"]))
            except BaseException:
                _stop_own(found, shared)
                raise
            state |= found
        state["users"] = int(state["users"]) + 1
        endpoint = f"unix://{state['socket']}"
    try:
        yield endpoint
    finally:
        with _locked(shared) as state:
            state["users"] = int(state["users"]) - 1
            if state["users"] == 0:
                _stop_own(state, shared)


@contextmanager
def _locked(shared: Path) -> Iterator[dict[str, object]]:
    path = shared / "docker-users.json"
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        state: dict[str, object] = json.loads(text) if text else {"users": 0, "pid": 0, "socket": ""}
        try:
            yield state
        finally:
            file.truncate(0)
            file.write(json.dumps(state))
            file.flush()


def _find_or_start(shared: Path) -> dict[str, object]:
    default = "/var/run/docker.sock"
    if _answers(default):
        return {"pid": 0, "socket": default}
    socket_path = f"/tmp/lepa-test-docker-{os.getpid()}.sock"
    daemon = start_docker(shared / "docker", socket_path)
    return {"pid": daemon.pid, "socket": socket_path}


def start_docker(home: Path, socket_path: str, *inside: str) -> "subprocess.Popen[bytes]":
    """A daemon that keeps everything below `home`, once it answers. inside: what its command begins with."""
    home.mkdir()
    options = {
        "--data-root": home / "data",
        "--exec-root": home / "exec",
        "--pidfile": home / "pid",
        "--host": f"unix://{socket_path}",
    }
    with open(home / "log", "wb") as log:
        words = [str(word) for pair in options.items() for word in pair]
        daemon = subprocess.Popen([*inside, "dockerd", *words], stdout=log, stderr=log, start_new_session=True)
    deadline = time.monotonic() + READY_WITHIN_S
    try:
        while not _answers(socket_path):
            said = (home / "log").read_text()[-2000:]
            assert daemon.poll() is None, f"dockerd ended at once:\n{said}"
            assert time.monotonic() < deadline, f"dockerd was not ready within {READY_WITHIN_S} s:\n{said}"
            time.sleep(0.05)
    except BaseException:
        _stop(daemon.pid, home)
        raise
    return daemon


def _stop_own(state: dict[str, object], shared: Path) -> None:
    """Stop the daemon if it is one of ours."""
    if state["pid"]:
        _stop(int(str(state["pid"])), shared / "docker")


def _stop(pid: int, home: Path) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + READY_WITHIN_S
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
        time.sleep(0.05)
    mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for mount in sorted((mount for mount in mounts if mount.startswith(str(home))), reverse=True):
        subprocess.run(["umount", "-l", mount], check=False)
    shutil.rmtree(home, ignore_errors=True)
    subprocess.run(["ip", "link", "delete", "docker0"], check=False, capture_output=True)


def _answers(path: str) -> bool:
    try:
        status, _ = _ask(path, "GET", "/_ping")
    except OSError:
        return False
    return status == 200


def _ask(path: str, method: str, url: str, body: bytes = b"", kind: str = "application/x-tar") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("docker", timeout=READY_WITHIN_S)
    connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.sock.settimeout(READY_WITHIN_S)
    connection.sock.connect(path)
    try:
        connection.request(method, url, body=body, headers={"Content-Type": kind})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def import_busybox(socket_path: str) -> None:
    """An image of one program, made here: no registry is needed."""
    repository, _, tag = BUSYBOX_IMAGE.partition(":")
    changes = [("changes", "ENV PATH=/bin"), ("changes", 'CMD ["/bin/sh"]')]
    query = urlencode([("fromSrc", "-"), ("repo", repository), ("tag", tag), *changes])
    status, said = _ask(socket_path, "POST", f"/images/create?{query}", _busybox_root())
    assert status == 200, f"busybox image could not be imported: {said.decode()}"
    assert b'"error"' not in said, said.decode()


def _busybox_root() -> bytes:
    program = Path(require("busybox", DOCKER_PACKAGES)).resolve()
    commands = subprocess.run([program, "--list"], check=True, capture_output=True, text=True).stdout.split()
    out = BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for folder in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(folder)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            archive.addfile(entry)
        archive.add(program, "bin/busybox")
        for command in commands:
            if command != "busybox":
                entry = tarfile.TarInfo(f"bin/{command}")
                entry.type, entry.linkname = tarfile.SYMTYPE, "busybox"
                archive.addfile(entry)
        users = b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n"
        groups = b"root:x:0:\nnogroup:x:65534:\n"
        for name, content in (("etc/passwd", users), ("etc/group", groups)):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, BytesIO(content))
    return out.getvalue()


JAVA_PACKAGES = "openjdk-17-jdk-headless"
_HELLO = """
public class Hello {
  public static void main(String[] args) throws Exception {
    Runtime.getRuntime().addShutdownHook(new Thread(() -> System.out.println("bye")));
    System.out.println("hello " + String.join(",", args) + " " + System.getProperty("mood"));
    System.out.println("heap " + Runtime.getRuntime().maxMemory() / 1048576);
    if (args.length > 0 && args[0].equals("fail")) System.exit(3);
    if (args.length > 0 && args[0].equals("stay")) Thread.sleep(600000);
  }
}
"""


def java_program(folder: Path) -> Path:
    """Hello.class and hello.jar in a folder: it greets, tells its heap in MiB, and fails, stays or ends as told."""
    require("javac", JAVA_PACKAGES)
    source = folder / "Hello.java"
    source.write_text(_HELLO)
    (folder / "manifest").write_text("Main-Class: Hello\n")
    subprocess.run(["javac", "-d", folder, source], check=True)
    jar = ["jar", "cfm", folder / "hello.jar", folder / "manifest", "-C", folder, "Hello.class"]
    subprocess.run(jar, check=True)
    for each in folder.iterdir():
        each.chmod(0o644)
    return folder / "hello.jar"


PODMAN_PACKAGES = "podman crun"
PODMAN_IMAGE = "docker.io/lepa-test/busybox:latest"
"""What Podman calls an image that its Docker-like API imported as lepa-test/busybox."""


@contextmanager
def podman_service(home: Path) -> Iterator[str]:
    """The socket of a Podman service with storage of its own below `home` and a busybox image."""
    require_root()
    program = require("podman", PODMAN_PACKAGES)
    allow_crun()
    (home / "containers.conf").write_text(
        '[containers]\ndefault_ulimits = ["nofile=1024:16384"]\n[engine]\nevents_logger = "file"\n'
    )
    socket_path = f"/tmp/lepa-test-podman-{os.getpid()}.sock"
    places = [f"--{name}={home / name}" for name in ("root", "runroot", "tmpdir")]
    command = [program, *places, "--network-config-dir", str(home / "networks")]
    env = os.environ | {"CONTAINERS_CONF": str(home / "containers.conf"), "TMPDIR": str(home)}
    with open(home / "log", "wb") as log:
        service = [*command, "system", "service", "-t", "0", f"unix://{socket_path}"]
        # Its monitors write a file `oom` where they are.
        process = subprocess.Popen(service, stdout=log, stderr=log, env=env, cwd=home, start_new_session=True)
    try:
        deadline = time.monotonic() + READY_WITHIN_S
        while not _answers(socket_path):
            said = (home / "log").read_text()[-2000:]
            assert process.poll() is None, f"podman ended at once:\n{said}"
            assert time.monotonic() < deadline, f"podman was not ready within {READY_WITHIN_S} s:\n{said}"
            time.sleep(0.05)
        import_busybox(socket_path)
        yield socket_path
    finally:
        subprocess.run([*command, "rm", "--all", "--force", "-t", "0"], env=env, check=False, capture_output=True)
        process.terminate()
        process.wait(READY_WITHIN_S)
        _end_monitors(str(home))
        with suppress(FileNotFoundError):
            os.unlink(socket_path)
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        for mount in sorted((mount for mount in mounts if mount.startswith(str(home))), reverse=True):
            subprocess.run(["umount", "-l", mount], check=False)


def _end_monitors(home: str) -> None:
    """Podman's monitor of a command inside a container stays for five minutes after its end."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if words[0].endswith(b"conmon") and any(home.encode() in word for word in words):
                os.kill(int(path.parent.name), signal.SIGKILL)


def free_ports(count: int) -> list[int]:
    """Ports of loopback, for TCP and UDP, that nobody uses now; below those that the kernel picks for connections."""
    found: list[int] = []
    port = 10_000 + os.getpid() * 37 % 9_000
    while len(found) < count:
        port = 10_000 + (port - 9_999) % 9_999
        with suppress(OSError), socket.socket() as tcp, socket.socket(type=socket.SOCK_DGRAM) as udp:
            tcp.bind(("127.0.0.1", port))
            udp.bind(("127.0.0.1", port))
            found.append(port)
    return found


def listens(port: int) -> bool:
    """Whether somebody takes TCP connections there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False
