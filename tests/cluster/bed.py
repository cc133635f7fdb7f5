"""A test bed: machines on one host with an agent each, joined by one switch.

    with Bed(folder) as bed:
        server = bed.agent("server", SERVER)
        node = bed.agent("one", node_of(server))
        bed.cut(node, server)             # nothing gets from the node to the server; the other way stays open
        bed.heal()

The switch is a machine too: a bridge that answers as the network's router and leads nowhere. The thread that enters a
bed stands on a machine of its own, the desk: what it connects to, and the programs that it starts, see the bed's
network and no other. Delays and losses are not offered: kernels of test machines often lack netem.

Leaving a bed stops the agents as a person would, switches all machines off, and takes away what no machine can take
with it: the control groups of tasks that still ran. Nothing may be left then, and no agent may have logged a traceback.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.cluster.machines import Machine, check_host, children
from tests.e2e.agents import LEPA, START_S, STOP_S, Agent, eventually

NETWORK = "10.77.0"
ROUTER = f"{NETWORK}.254"
MACHINES_MAX = 32
CARDS = "02:4c:45:50:41"
"""What the hardware addresses of machines begin with: a machine keeps its own when it is switched on again."""
NOBODY = "02:00:00:00:00:00"
"""A hardware address that no machine has: frames to it get lost."""
CGROUPS = Path("/sys/fs/cgroup")
ALLOCATIONS = "**/alloc"
"""Where allocations have their folders, below that of a machine or a bed."""
PORTS = {"http": 4646, "rpc": 4647, "serf": 4648, "dns": 8600}

SERVER: Mapping[str, Any] = {
    "server": {
        "enabled": True,
        "bootstrap_expect": 1,
        "min_heartbeat_ttl": "1s",
        "heartbeat_grace": "4s",
        "failover_heartbeat_ttl": "8s",
    }
}
"""A server without a node, which notices a silent node after five seconds: longer than an agent's restart takes."""


def node_of(server: "ClusterAgent", **settings: Any) -> dict[str, Any]:
    """A node without a server. settings: more of its client block."""
    return {
        "client": {
            "enabled": True,
            "servers": [f"{server.host}:{PORTS['rpc']}"],
            "cpu_total_compute": 2_000,
            "memory_total_mb": 2_000,
            **settings,
        },
        "plugin": {"raw_exec": {"config": {"enabled": True}}},
    }


class ClusterAgent(Agent):
    """The agent of one machine, on the usual ports. Its tasks outlive it, but not the machine."""

    def __init__(self, machine: Machine, settings: Mapping[str, Any]) -> None:
        self.machine = machine
        super().__init__(machine.folder / "agent", ports=PORTS, host=machine.address)
        self.configure({"bind_addr": "0.0.0.0", **settings})
        self.log_path.touch()

    @property
    def name(self) -> str:
        """The machine's name, which is also the node's."""
        return self.machine.name

    @property
    def pid(self) -> int:
        """The agent's process, as the host numbers it."""
        assert self.process is not None
        (pid,) = children(self.process.pid)
        return pid

    def spawn(self) -> "subprocess.Popen[bytes]":
        command = self.machine.command(LEPA, "agent", "-config", self.config, "-data-dir", self.data)
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=self.environment())
        return self.process

    def start(self) -> None:
        """Start, and return once the agent is well."""
        self.spawn()
        self.wait_until_well()

    def wait_until_well(self) -> None:
        """Wait until a server of its own leads, and the servers know its node."""

        def well() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, f"the agent of {self.name} ended:\n{self.log()}"
            with contextlib.suppress(OSError):
                return self.request("GET", "/v1/agent/health").status == 200
            return False

        eventually(well, START_S)

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        os.kill(self.pid, how)
        code = self.process.wait(STOP_S)
        self.process = None
        return code

    def node_id(self) -> str:
        """The id of this machine's node."""
        return str(self.get("/v1/agent/self")["stats"]["client"]["node_id"])

    def lepa(self, *words: object, stdin: str = "") -> str:
        """What a command of lepa on this machine prints; it must succeed."""
        return self.machine.run(LEPA, *words, env={"LEPA_ADDR": self.address}, stdin=stdin)


class Bed:
    """Machines, their agents and the cables between them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        self.agents: dict[str, ClusterAgent] = {}
        self._cuts: set[tuple[str, str]] = set()
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> "Bed":
        check_host()
        with self._stack:
            self._switch = Machine("switch", self.folder / "switch")
            self._stack.callback(self._switch.end)
            self._switch.run("ip", "link", "add", "bridge", "type", "bridge")
            self._switch.run("ip", "address", "add", f"{ROUTER}/24", "dev", "bridge")
            self._switch.run("ip", "link", "set", "bridge", "up")
            self.desk = self.machine("desk")
            self._stack.enter_context(self.desk.standing_here())
            self._stack = self._stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._stop_agents()
        finally:
            self._stack.close()
            left = self._sweep()
        if left:
            raise AssertionError(f"left behind: {left}")
        for agent in self.agents.values():
            if "Traceback" in agent.log():
                raise AssertionError(f"{agent.name}:\n{agent.log()}")

    # Machines

    def machine(self, name: str) -> Machine:
        """A new machine with a cable to the switch."""
        number = len(self.machines) + 1
        assert number <= MACHINES_MAX, f"a bed has at most {MACHINES_MAX} machines"
        made = self.machines[name] = Machine(name, self.folder / name, f"{NETWORK}.{number}")
        self._stack.callback(made.end)
        self._lay_cable(made)
        return made

    def _lay_cable(self, machine: Machine) -> None:
        port, card = _port(machine), f"{CARDS}:{int(machine.address.rpartition('.')[2]):02x}"
        cable = ("type", "veth", "peer", "name", "eth0", "address", card)
        ends = ("netns", self._switch.pid, *cable, "netns", machine.pid)
        subprocess.run(["ip", "link", "add", port, *map(str, ends)], check=True, timeout=10)
        self._switch.run("ip", "link", "set", port, "master", "bridge", "up")
        machine.run("ip", "address", "add", f"{machine.address}/24", "dev", "eth0")
        machine.run("ip", "link", "set", "eth0", "up")
        machine.run("ip", "route", "add", "default", "via", ROUTER)

    def agent(self, name: str, settings: Mapping[str, Any], *, start: bool = True) -> ClusterAgent:
        """A new machine and its agent."""
        made = ClusterAgent(self.machine(name), settings)
        self.agents[name] = made
        if start:
            made.start()
        return made

    # Faults

    def cut(self, source: ClusterAgent, target: ClusterAgent) -> None:
        """From now on what `source` sends to `target` gets lost. What `target` sends arrives."""
        source.machine.run(*_neighbour("replace", target), "lladdr", NOBODY, "nud", "permanent")
        self._cuts.add((source.name, target.name))

    def isolate(self, agent: ClusterAgent, *others: ClusterAgent) -> None:
        """Cut an agent off from others (from all others when none is named), both ways."""
        for other in others or self.agents.values():
            if other is not agent:
                self.cut(agent, other)
                self.cut(other, agent)

    def heal(self) -> None:
        """Everything that is sent arrives again."""
        for source, target in self._cuts:
            self.agents[source].machine.run(*_neighbour("delete", self.agents[target]))
        self._cuts.clear()

    def power_off(self, agent: ClusterAgent) -> None:
        """Switch a machine off: nothing on it says goodbye. Its disk is kept."""
        self._switch.run("ip", "link", "delete", _port(agent.machine))
        agent.machine.end()
        assert agent.process is not None
        agent.process.wait(STOP_S)
        agent.process = None
        eventually(lambda: _remove_groups(_groups(agent.machine.folder)))

    def boot(self, agent: ClusterAgent, *, wait: bool = True) -> None:
        """Switch a machine on again, and start its agent. wait: until that is well."""
        agent.machine.boot()
        self._lay_cable(agent.machine)
        agent.spawn()
        if wait:
            agent.wait_until_well()

    def unplug(self, agent: ClusterAgent) -> None:
        """Pull a machine's cable."""
        self._switch.run("ip", "link", "set", _port(agent.machine), "down")

    def plug(self, agent: ClusterAgent) -> None:
        """Put the cable back."""
        self._switch.run("ip", "link", "set", _port(agent.machine), "up")

    # End

    def _stop_agents(self) -> None:
        """Nodes first: they tell their servers what they did last."""
        codes = {}
        for agent in reversed(self.agents.values()):
            if agent.process is not None:
                codes[agent.name] = agent.stop() if agent.process.poll() is None else agent.process.returncode
        if any(codes.values()):
            raise AssertionError(f"agents ended badly: {codes}")

    def _sweep(self) -> list[str]:
        """Remove the control groups of tasks that still ran; what else there is of the agents."""
        eventually(lambda: _remove_groups(_groups(self.folder)))
        return [left for agent in self.agents.values() for left in agent.leftovers()]


def _port(machine: Machine) -> str:
    return f"port{machine.address.rpartition('.')[2]}"


def _neighbour(verb: str, target: ClusterAgent) -> tuple[str, ...]:
    return ("ip", "neighbour", verb, target.host, "dev", "eth0")


def _groups(folder: Path) -> list[Path]:
    """Control groups of everything that was placed on the machines whose folders are below this one."""
    placed = [entry.name for allocations in folder.glob(ALLOCATIONS) for entry in allocations.iterdir()]
    groups = [*CGROUPS.glob("lepa/*"), *CGROUPS.glob("*/lepa/*")]
    return [group for group in groups if any(alloc_id in group.name for alloc_id in placed)]


def _remove_groups(groups: list[Path]) -> bool:
    """Whether all could be removed: one is busy until its last process is gone."""
    for group in groups:
        for directory, _, _ in os.walk(group, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(directory)
    return not any(group.exists() for group in groups)


def wait_until(condition: Callable[[], object], within_s: float = 20.0, every_s: float = 0.02) -> None:
    """Return when a condition holds; fails when it does not in time."""
    eventually(condition, within_s, every_s)
