"""What docs/reference/compatibility.md says of blocks is tried: each is read, and found in the job that comes of it."""

from typing import Any

import pytest
from tests.conformance import nomad_surface

from lepa import jobspec

BODIES = {
    "constraint": 'constraint {\n attribute = "${attr.kernel.name}"\n value = "linux"\n}',
    "affinity": 'affinity {\n attribute = "${meta.a}"\n value = "b"\n weight = 50\n}',
    "spread": 'spread {\n attribute = "${node.datacenter}"\n weight = 50\n}',
    "spread.target": 'spread {\n attribute = "${node.datacenter}"\n target "dc1" {\n percent = 60\n }\n}',
    "meta": 'meta {\n owner = "team"\n}',
    "parameterized": 'parameterized {\n payload = "optional"\n meta_required = ["a"]\n}',
    "periodic": 'periodic {\n crons = ["@daily"]\n prohibit_overlap = true\n}',
    "update": "update {\n max_parallel = 2\n canary = 1\n auto_revert = true\n}",
    "reschedule": 'reschedule {\n attempts = 3\n interval = "1h"\n unlimited = false\n}',
    "migrate": "migrate {\n max_parallel = 2\n}",
    "multiregion": 'multiregion {\n strategy {\n max_parallel = 1\n }\n region "a" {\n count = 1\n }\n}',
    "vault": 'vault {\n role = "r"\n}',
    "consul": 'consul {\n partition = "p"\n}',
    "secret": 'secret "s" {\n provider = "nomad"\n path = "p"\n}',
    "ui": 'ui {\n description = "web"\n}',
    "ui.link": 'ui {\n link {\n label = "docs"\n url = "http://x"\n }\n}',
    "volume": 'volume "data" {\n type = "host"\n source = "d"\n}',
    "restart": 'restart {\n attempts = 3\n mode = "fail"\n}',
    "disconnect": 'disconnect {\n lost_after = "1h"\n replace = false\n}',
    "ephemeral_disk": "ephemeral_disk {\n size = 500\n sticky = true\n}",
    "network": 'network {\n mode = "host"\n}',
    "network.port": 'network {\n port "http" {\n static = 8080\n }\n}',
    "network.dns": 'network {\n dns {\n servers = ["1.1.1.1"]\n }\n}',
    "network.cni": 'network {\n mode = "cni/x"\n cni {\n args = { A = "b" }\n }\n}',
    "service": 'service {\n name = "web"\n provider = "nomad"\n}',
    "scaling": "scaling {\n min = 1\n max = 5\n}",
    "lifecycle": 'lifecycle {\n hook = "prestart"\n sidecar = true\n}',
    "config": 'config {\n command = "/bin/true"\n}',
    "env": 'env {\n A = "b"\n}',
    "resources": "resources {\n cpu = 200\n memory = 64\n}",
    "resources.device": 'resources {\n device "nvidia/gpu" {\n count = 2\n }\n}',
    "resources.numa": 'resources {\n cores = 2\n numa {\n affinity = "prefer"\n }\n}',
    "resources.network": 'resources {\n network {\n port "http" {}\n }\n}',
    "logs": "logs {\n max_files = 3\n}",
    "artifact": 'artifact {\n source = "http://x/y"\n}',
    "template": 'template {\n data = "x"\n destination = "local/x"\n}',
    "template.change_script": (
        'template {\n data = "x"\n destination = "local/x"\n change_mode = "script"\n'
        ' change_script {\n command = "/bin/true"\n }\n}'
    ),
    "template.wait": 'template {\n data = "x"\n destination = "local/x"\n wait {\n min = "1s"\n max = "2s"\n }\n}',
    "dispatch_payload": 'dispatch_payload {\n file = "in"\n}',
    "volume_mount": 'volume_mount {\n volume = "data"\n destination = "/d"\n}',
    "csi_plugin": 'csi_plugin {\n id = "ebs"\n type = "node"\n mount_dir = "/csi"\n}',
    "identity": 'identity {\n name = "x"\n aud = ["y"]\n}',
    "action": 'action "warm" {\n command = "/bin/true"\n}',
    "schedule": 'schedule {\n cron {\n start = "0 9 * * *"\n end = "0 17"\n }\n}',
    "check": 'check {\n type = "tcp"\n interval = "5s"\n timeout = "1s"\n}',
    "check.header": (
        'check {\n type = "http"\n path = "/"\n interval = "5s"\n timeout = "1s"\n header {\n A = ["b"]\n }\n}'
    ),
    "check.check_restart": (
        'check {\n type = "tcp"\n interval = "5s"\n timeout = "1s"\n check_restart {\n limit = 3\n }\n}'
    ),
    "check_restart": "check_restart {\n limit = 3\n}",
    "connect": "connect {\n native = true\n}",
    "connect.sidecar_service": 'connect {\n sidecar_service {\n port = "20000"\n }\n}',
    "connect.sidecar_task": 'connect {\n sidecar_service {}\n sidecar_task {\n driver = "docker"\n }\n}',
    "connect.gateway": "connect {\n gateway {\n mesh {}\n }\n}",
    "canary_meta": 'canary_meta {\n a = "b"\n}',
    "tagged_addresses": 'tagged_addresses {\n lan = "10.0.0.1"\n}',
    "weights": "weights {\n passing = 5\n warning = 1\n}",
}
TASK_SCALING = 'scaling "cpu" {\n enabled = true\n min = 100\n max = 500\n policy {}\n}'
KEYS = {
    "parameterized": "ParameterizedJob",
    "update": "Update",
    "reschedule": "ReschedulePolicy",
    "restart": "RestartPolicy",
    "ephemeral_disk": "EphemeralDisk",
    "volume": "Volumes",
    "affinity": "Affinities",
    "lifecycle": "Lifecycle",
    "csi_plugin": "CSIPluginConfig",
    "logs": "LogConfig",
    "dispatch_payload": "DispatchPayload",
    "volume_mount": "VolumeMounts",
    "dns": "DNS",
    "cni": "CNI",
    "numa": "NUMA",
    "ui": "UI",
    "port": "ReservedPorts",
    "scaling": "Scaling",
    "link": "Links",
    "target": "SpreadTarget",
}
"""Keys of a job that do not follow from a block's name."""


def text_of(block: str) -> str:
    """A job file that holds the block where its path says."""
    scope, _, rest = block.partition(".")
    if block == "job":
        rest = ""
    body = TASK_SCALING if block == "task.scaling" else BODIES.get(rest, "")
    assert not rest or body, block
    if scope == "service":
        body = f'service {{\n name = "web"\n port = "http"\n provider = "consul"\n {body}\n}}'
    at = {
        name: body if scope == name or (name == "group" and scope == "service") else ""
        for name in ("job", "group", "task")
    }
    config = "" if block == "task.config" else 'config {\n command = "/bin/true"\n}'
    return f"""
variable "n" {{
  default = 1
}}
locals {{
  a = "b"
}}
job "j" {{
  type = "{"batch" if rest in ("parameterized", "periodic") else "service"}"
  {at["job"]}
  group "g" {{
    {at["group"]}
    task "t" {{
      driver = "raw_exec"
      {config}
      {at["task"]}
      dynamic "env" {{
        for_each = [var.n]
        content {{
          A = local.a
        }}
      }}
    }}
  }}
}}
"""


def holds(value: Any, key: str) -> bool:
    """Whether a key with something in it stands anywhere."""
    if isinstance(value, dict):
        return any((name == key and item not in (None, [], {})) or holds(item, key) for name, item in value.items())
    return isinstance(value, list) and any(holds(item, key) for item in value)


@pytest.mark.parametrize("block", nomad_surface.BLOCKS.split())
def test_block_is_read(block: str) -> None:
    text = text_of(block if block not in ("variable", "locals", "dynamic", "service") else "job")
    if block == "task.env":
        text = text.replace('dynamic "env"', 'dynamic "meta"')
    parsed = jobspec.parse(text, filename="input.hcl")
    assert parsed.job is not None, "\n".join(each.render() for each in parsed.diagnostics)
    last = block.rpartition(".")[2]
    if block in ("job", "variable", "locals"):
        assert parsed.job["ID"] == "j"
        return
    key = KEYS.get(last, "".join(word.capitalize() for word in last.split("_")))
    plural = key[:-1] + "ies" if key.endswith("y") else f"{key}s"
    names = {
        key,
        plural,
        {"reschedule": "Reschedule", "scaling": "ScalingPolicies"}.get(last, key),
        {"group": "TaskGroups", "task": "Tasks", "dynamic": "Env"}.get(last, key),
    }
    assert any(holds(parsed.job, name) for name in names), (names, parsed.job)
