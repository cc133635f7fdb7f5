"""lepa.serving.container_managers.docker and lepa.serving.container_managers.docker_api: a cluster in real containers.

The image is empty but for links; interpreter, packages and lepa come from this machine's own folders.
"""

import http.client
import io
import json
import sys
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lepa.model.errors import LepaError
from lepa.serving import deployers
from lepa.serving.connection import ClipperConnection
from lepa.serving.container_managers.docker import DockerContainerManager
from lepa.serving.container_managers.docker_api import DockerApi
from lepa.serving.container_managers.docker_files import CLUSTER_LABEL, ContainerResources

SOURCE = Path(__file__).parents[2] / "src"
IMAGE = "lepa-test/serving:1"
CLUSTER = "docker-test"
SLO_MICROS = 3_000_000
FOLDERS = dict.fromkeys(["/usr", sys.prefix, sys.base_prefix, str(SOURCE)])


def volumes(*more: Path) -> list[str]:
    return [f"{folder}:{folder}:ro" for folder in (*FOLDERS, *map(str, more))]


def root() -> bytes:
    """A file system with the links that programs below /usr count on."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("etc", "tmp", "usr", "sbin", "proc", "sys", "dev", "run"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            archive.addfile(entry)
        for name in ("bin", "lib", "lib64"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname = tarfile.SYMTYPE, f"usr/{name}"
            archive.addfile(entry)
    return out.getvalue()


@pytest.fixture(scope="module")
def api(docker_endpoint: str) -> DockerApi:
    made = DockerApi(docker_endpoint)
    connection = made._connection()
    command = json.dumps([sys.executable, "-m", "lepa.serving.model_container"])
    changes = [("changes", f"CMD {command}"), ("changes", f"ENV PYTHONPATH={SOURCE}")]
    query = urlencode([("fromSrc", "-"), ("repo", IMAGE.partition(":")[0]), ("tag", "1"), *changes])
    connection.request("POST", f"/images/create?{query}", root(), {"Content-Type": "application/x-tar"})
    said = connection.getresponse().read()
    assert b'"error"' not in said, said
    connection.close()
    return made


def manager(api: DockerApi, **settings: Any) -> DockerContainerManager:
    options: dict[str, Any] = {"query_port": 0, "management_port": 0, "python": sys.executable, "volumes": volumes()}
    return DockerContainerManager(CLUSTER, IMAGE, endpoint=api.endpoint, **(options | settings))


@pytest.fixture(scope="module")
def cluster(api: DockerApi, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClipperConnection]:
    model = ContainerResources(cpus=1.0, memory_mb=300)
    base = tmp_path_factory.getbasetemp()
    connection = ClipperConnection(manager(api, model=model, volumes=volumes(base)))
    connection.start_clipper(num_frontend_replicas=2)
    try:
        yield connection
    finally:
        connection.stop_all(graceful=False)
        assert isinstance(connection.cm, DockerContainerManager)
        connection.cm.forget()
    assert api.containers({CLUSTER_LABEL: CLUSTER}) == []


def eventually(done: Any, timeout_s: float = 30.0) -> None:
    give_up = time.monotonic() + timeout_s
    while not done():
        assert time.monotonic() < give_up, "it did not happen"
        time.sleep(0.1)


def answers(connection: ClipperConnection, app: str, value: Any, wanted: Any) -> bool:
    return bool(connection.predict(app, value)["output"] == wanted)


@pytest.mark.timeout(180)
def test_a_cluster_in_containers_from_start_to_stop(cluster: ClipperConnection, api: DockerApi, tmp_path: Path) -> None:
    deployers.create_endpoint(
        cluster, "sum", "doubles", lambda rows: rows.sum(axis=1), slo_micros=SLO_MICROS, num_replicas=2
    )
    assert len(cluster.cm.get_frontend_addrs()) == 2
    assert [len(top["models"]) for top in cluster.tops().values()] == [1, 1]
    eventually(lambda: answers(cluster, "sum", [1.0, 2.5], 3.5))
    assert cluster.get_all_model_replicas() == ["sum:1:0", "sum:1:1"]
    (first, _) = api.containers({"ai.clipper.model_container.label": "sum_1"})
    described = api.inspect(first["Id"])
    assert (described["Config"]["User"], described["HostConfig"]["Memory"]) == ("65534:65534", 300 << 20)

    later = ClipperConnection(DockerContainerManager(CLUSTER, endpoint=api.endpoint))
    later.connect()
    later.set_num_replicas("sum", 3)
    later.wait_for_replicas("sum", 1, 3)
    later.set_num_replicas("sum", 1)
    assert later.get_num_replicas("sum") == 1
    with pytest.raises(LepaError, match="already exists"):
        later.start_clipper()

    def broken(rows: Any) -> Any:
        return rows

    deployers.save_model(tmp_path / "broken", "doubles", broken)
    (tmp_path / "broken" / "func.pkl").write_bytes(b"no pickle")
    with pytest.raises(
        LepaError, match=r"model broken:1 did not come up: container .* ended; it said: .*cannot be loaded"
    ):
        cluster.build_and_deploy_model("broken", 1, "doubles", tmp_path / "broken")

    said = {path.name: path.read_text() for path in cluster.get_clipper_logs(tmp_path / "logs")}
    assert "query frontend listens" in said[f"lepa-{CLUSTER}-query-1.log"]
    assert "model loaded name=sum" in said[f"lepa-{CLUSTER}-model-sum-1-0.log"]


@pytest.mark.timeout(180)
def test_any_image_that_speaks_the_rpc_is_a_model(cluster: ClipperConnection, api: DockerApi, tmp_path: Path) -> None:
    """As Clipper's own containers: they know one frontend, by CLIPPER_IP, and their model is in the image."""
    deployers.save_model(tmp_path / "model", "doubles", lambda rows: [len(row) for row in rows])
    for path in (tmp_path, tmp_path / "model", *tmp_path.parents[:3]):
        path.chmod(path.stat().st_mode | 0o055)
    connection = api._connection()
    changes = [f"ENV CLIPPER_MODEL_PATH={tmp_path}/model", f"ENV PYTHONPATH={SOURCE}"]
    changes.append(f"CMD {json.dumps([sys.executable, '-m', 'lepa.serving.model_container'])}")
    query = urlencode([("fromSrc", "-"), ("repo", "lepa-test/own-model"), *(("changes", each) for each in changes)])
    connection.request("POST", f"/images/create?{query}", root(), {"Content-Type": "application/x-tar"})
    assert connection.getresponse().status == http.client.OK
    connection.close()
    cluster.register_application("length", "doubles", "-1", SLO_MICROS)
    cluster.cm.deploy_model("length", "1", "doubles", "lepa-test/own-model", 2)
    cluster.register_model("length", 1, "doubles", "lepa-test/own-model")
    cluster.link_model_to_app("length", "length")
    cluster.wait_for_replicas("length", 1, 1)
    for address in cluster.cm.get_frontend_addrs():
        asked = http.client.HTTPConnection(*address)
        asked.request("POST", "/length/predict", b'{"input": [1, 2, 3]}')
        assert json.loads(asked.getresponse().read())["output"] == 3
        asked.close()


@pytest.mark.timeout(180)
def test_replicas_follow_the_load_to_zero_and_back(cluster: ClipperConnection) -> None:
    deployers.create_endpoint(cluster, "twice", "doubles", lambda rows: 2 * rows[:, 0], slo_micros=30_000_000)
    eventually(lambda: answers(cluster, "twice", [2.0], 4.0))
    cluster.set_autoscale("twice", replicas_min=0, idle_s=1.0, down_after_s=0.0)
    eventually(lambda: cluster.get_num_replicas("twice") == 0)
    assert cluster.predict("twice", [4.0])["output"] == 8.0
    cluster.stop_autoscale("twice")


def test_an_endpoint_that_is_none_and_a_daemon_that_is_away_are_told(tmp_path: Path) -> None:
    with pytest.raises(LepaError, match="is no Docker endpoint"):
        DockerContainerManager(endpoint="/var/run/docker.sock")
    with pytest.raises(LepaError, match="no Docker daemon answers at unix:///"):
        DockerContainerManager(endpoint=f"unix://{tmp_path}/none.sock").connect()
