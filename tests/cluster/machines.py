"""Machines on one host: each a set of Linux namespaces (network, mounts, host name, processes) that a process holds.

A machine asks itself for names (/etc/resolv.conf says so), where usually nobody answers.

Nothing of a machine has a name on the host, so any number of them can stand side by side. When the holding process ends
the kernel ends everything else on the machine and takes its mounts and its cable away. It ends with the test process,
whatever becomes of that, and in any case after LIFE_S.
"""

import contextlib
import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

LIFE_S = 3_600
COMMAND_S = 60.0
END_S = 10.0
KINDS = ("--net", "--mount", "--uts", "--pid")
HOLDING = ("--fork", "--kill-child", "--mount-proc", "--propagation", "private")
NEW_NETWORK = 0x40000000
TOOLS = {"ip": "iproute2", "nsenter": "util-linux", "unshare": "util-linux", "setpriv": "util-linux"}


def check_host() -> None:
    """Raises RuntimeError with what is missing to make machines here."""
    if os.geteuid() != 0:
        raise RuntimeError("the test bed makes network namespaces: run it as root")
    if missing := sorted({package for tool, package in TOOLS.items() if shutil.which(tool) is None}):
        raise RuntimeError(f"the test bed needs {' and '.join(missing)}: apt-get install {' '.join(missing)}")


class Machine:
    """One machine. address: of its cable, "" without one. pid: of the process that holds it, on the host."""

    def __init__(self, name: str, folder: Path, address: str = "") -> None:
        self.name = name
        self.folder = folder
        self.address = address
        folder.mkdir(parents=True)
        (folder / "resolv.conf").write_text("nameserver 127.0.0.1\n")
        self.boot()

    def boot(self) -> None:
        """Switch the machine on; it has no cable yet."""
        hold = (
            f"ip link set lo up && hostname {self.name} && mount --bind {self.folder}/resolv.conf /etc/resolv.conf"
            f" && echo ready && exec env --ignore-signal=CHLD sleep {LIFE_S}"
        )
        self._holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "unshare", *KINDS, *HOLDING, "sh", "-c", hold],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._holder.stdout is not None
        if (said := self._holder.stdout.readline()) != "ready\n":
            self.end()
            raise RuntimeError(f"this host lets the test bed make no namespaces: {said.strip()}")
        (self.pid,) = children(self._holder.pid)
        self._mounts_at_first = self._mounts()

    def _mounts(self) -> int:
        return len(Path(f"/proc/{self.pid}/mounts").read_text().splitlines())

    @property
    def mounts(self) -> int:
        """How many there are since it was switched on: it began with those that this host had at that moment."""
        return self._mounts() - self._mounts_at_first

    @property
    def is_on(self) -> bool:
        """Whether the machine has not been switched off."""
        return self._holder.poll() is None

    def command(self, *words: object) -> list[str]:
        """The command that runs `words` on this machine."""
        return ["nsenter", "--target", str(self.pid), *KINDS, f"--wd={self.folder}", *map(str, words)]

    def run(self, *words: object, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
        """What a command on this machine prints; it must succeed."""
        done = self.attempt(*words, env=env, stdin=stdin)
        assert done.returncode == 0, f"{self.name}: {words}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout

    def attempt(
        self, *words: object, env: Mapping[str, str] | None = None, stdin: str = ""
    ) -> "subprocess.CompletedProcess[str]":
        """A command on this machine that may fail."""
        return subprocess.run(
            self.command(*words),
            env=os.environ | dict(env or {}),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
        )

    @contextlib.contextmanager
    def standing_here(self) -> Iterator[None]:
        """For its duration the calling thread, and what it starts, is in this machine's network."""
        with open("/proc/thread-self/ns/net") as home, open(f"/proc/{self.pid}/ns/net") as here:
            _enter_network(here.fileno())
            try:
                yield
            finally:
                _enter_network(home.fileno())

    def pids(self) -> list[int]:
        """Processes on this machine, its first one left out, as the host numbers them."""
        mine, found = os.readlink(f"/proc/{self.pid}/ns/pid"), []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if os.readlink(entry / "ns" / "pid") == mine and int(entry.name) != self.pid:
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        """Switch the machine off: everything on it ends at once."""
        if self.is_on:
            for first in children(self._holder.pid):
                os.kill(first, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._holder.wait(END_S)
        self._holder.kill()
        self._holder.wait()
        if self._holder.stdout is not None:
            self._holder.stdout.close()


def children(pid: int) -> list[int]:
    """Processes that a process has started and that have not ended."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


_libc = ctypes.CDLL(None, use_errno=True)


def _enter_network(descriptor: int) -> None:
    """Move the calling thread into a network namespace (setns, which Python has since 3.12)."""
    if _libc.setns(descriptor, NEW_NETWORK) != 0:
        raise OSError(ctypes.get_errno(), "setns")
