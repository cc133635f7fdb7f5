"""A task of an allocation -> what its driver is told, with every text interpolated."""

from msgspec.structs import replace

from lepa.client import task_env
from lepa.client.alloc_dir import AllocDir
from lepa.client.task_env import Directories, Place
from lepa.drivers.protocol import TaskConfig

CONTAINER_DIRECTORIES = Directories("/alloc", "/local", "/secrets")
"""Where a task finds its directories when it has a root of its own."""


def task_config(place: Place, directory: AllocDir, task_id: str, env: dict[str, str]) -> TaskConfig:
    """The driver's configuration, without mounts."""
    task, alloc = place.task, place.alloc
    targets = task_env.references(place, env)
    network = place.group.networks[0] if place.group.networks else None
    status, dirs = alloc.network_status, directory.task(task.name)
    config = TaskConfig(
        id=task_id,
        alloc_id=alloc.id,
        job_id=place.job.id,
        job_name=place.job.name,
        namespace=alloc.namespace,
        group_name=place.group.name,
        task_name=task.name,
        config=task_env.interpolate_all(task.config, targets),
        env=env,
        user=task_env.interpolate(task.user, targets),
        kill_signal=task.kill_signal,
        ports=alloc.allocated_resources.shared.ports,
        alloc_dir=str(directory.shared),
        task_dir=str(dirs.root),
        local_dir=str(dirs.local),
        secrets_dir=str(dirs.secrets),
        stdout_path=str(directory.logs / f"{task.name}.stdout"),
        stderr_path=str(directory.logs / f"{task.name}.stderr"),
        logs=task.log_config,
        network_namespace=place.namespace,
        hostname=task_env.interpolate(network.hostname, targets) if network else "",
        dns=(network.dns if network else None) or (status.dns if status else None),
    )
    resources = alloc.allocated_resources.tasks.get(task.name)
    if resources is None:
        return config
    return replace(
        config, resources=resources, memory_mb=resources.memory.memory_mb, cpu_shares=resources.cpu.cpu_shares
    )
