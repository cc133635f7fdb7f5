"""Pure: what an agent answers without asking its servers, and the right that each of these routes needs.

A route that asks a method of the servers is guarded there. Every other one has its door here, by its verb and path;
the doors themselves are rows of the servers' table of rights. Routes that are open to everybody say so: "".
"""

from collections.abc import Mapping
from typing import Final

OPEN: Final = ""

DOORS: Final[Mapping[str, str]] = {
    "GET agent/self": "Agent.Read",
    "GET agent/members": "Agent.Members",
    "GET agent/health": OPEN,
    "GET agent/servers": "Agent.Read",
    "PUT agent/servers": "Agent.Write",
    "PUT agent/reload": "Agent.Write",
    "PUT agent/join": "Agent.Write",
    "PUT agent/force-leave": "Agent.Write",
    "GET agent/monitor": "Agent.Read",
    "GET agent/monitor/export": "Agent.Read",
    "GET agent/schedulers": "Agent.Read",
    "GET agent/schedulers/config": "Agent.Read",
    "PUT agent/schedulers/config": "Agent.Write",
    "GET agent/pprof/{kind}": "Agent.Write",
    "GET agent/keyring/list": "Agent.Write",
    "PUT agent/keyring/install": "Agent.Write",
    "PUT agent/keyring/use": "Agent.Write",
    "PUT agent/keyring/remove": "Agent.Write",
    "GET metrics": OPEN,
    "GET operator/raft/configuration": "Operator.Read",
    "DELETE operator/raft/peer": "Operator.Write",
    "PUT operator/raft/transfer-leadership": "Operator.Write",
    "GET operator/autopilot/health": "Operator.Read",
    "GET operator/snapshot": "Operator.SnapshotSave",
    "PUT operator/snapshot": "Operator.Management",
    "GET operator/upgrade-check/vault-workload-identity": "Operator.Read",
    "PUT jobs/parse": "Jobs.Parse",
    "GET client/fs/ls/{id}": "Allocation.Files",
    "GET client/fs/stat/{id}": "Allocation.Files",
    "GET client/fs/cat/{id}": "Allocation.Files",
    "GET client/fs/readat/{id}": "Allocation.Files",
    "GET client/fs/stream/{id}": "Allocation.Files",
    "GET client/fs/logs/{id}": "Allocation.Logs",
    "GET client/allocation/{id}/snapshot": OPEN,
    "GET client/allocation/{id}/stats": "Allocation.Read",
    "GET client/allocation/{id}/checks": "Allocation.Read",
    "GET allocation/{id}/checks": "Allocation.Read",
    "PUT client/allocation/{id}/restart": "Allocation.Lifecycle",
    "PUT client/allocation/{id}/signal": "Allocation.Lifecycle",
    "GET client/allocation/{id}/gc": "Allocation.Collect",
    "PUT client/allocation/{id}/gc": "Allocation.Collect",
    "GET client/gc": "Node.Write",
    "PUT client/gc": "Node.Write",
    "GET client/stats": "Node.Read",
    "GET client/metadata": "Node.Read",
    "PUT client/metadata": "Node.Write",
}
"""By verb (POST counts as PUT) and path after /v1/. Three have their doors in their handlers: commands in tasks, whose
token may come in the first message; facts about the host, which a setting opens; jobs in bodies, for several routes.
The data of a disk are given to the node that shows the token which the servers made for it."""


def door_of(verb: str, path: str) -> str:
    """The door of a route; "" when it has none."""
    return DOORS.get(f"{'PUT' if verb == 'POST' else verb} {path}", OPEN)
