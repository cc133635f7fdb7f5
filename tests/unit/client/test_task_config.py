"""What a driver is told."""

from pathlib import Path

from tests.builders import make_alloc, make_group, make_job, make_node, make_task

from lepa.client import task_env
from lepa.client.alloc_dir import AllocDir
from lepa.client.task_config import CONTAINER_DIRECTORIES, task_config
from lepa.client.task_env import Place


def test_every_text_is_interpolated_and_paths_are_the_hosts() -> None:
    task = make_task(
        config={"command": "${NOMAD_TASK_DIR}/run", "args": ["${attr.kernel.name}"]}, user="${node.datacenter}"
    )
    group = make_group(tasks=(task,))
    job = make_job(groups=(group,))
    place = Place(make_node(), "global", job, group, task, make_alloc("a", job=job), CONTAINER_DIRECTORIES)
    env = task_env.build(place, {})
    config = task_config(place, AllocDir(Path("/srv"), "a"), "id", env)
    assert config.config == {"command": "/local/run", "args": ["linux"]}
    assert config.user == "dc1"
    assert (config.task_dir, config.secrets_dir) == ("/srv/a/web", "/srv/a/web/secrets")
    assert config.stdout_path == "/srv/a/alloc/logs/web.stdout"
    assert (config.memory_mb, config.cpu_shares) == (128, 100)
    assert config.env["NOMAD_TASK_DIR"] == "/local"
