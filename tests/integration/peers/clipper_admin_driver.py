"""Calls every method of the real clipper_admin 0.4.1 on frontends of lepa.

    python clipper_admin_driver.py LEPA_PYTHON FOLDER

Prints one JSON object: what each step answered. The container manager starts plain processes; the Docker client, which
`build_model` needs, is replaced by one that keeps what would have been copied into the image. PYTHONPATH leads to the
library and what it wants in old versions; lepa's own processes do not get to see it.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time

import docker
from clipper_admin import ClipperConnection, ClipperException, UnconnectedException
from clipper_admin.deployers import python as python_deployer

SLO_MICROS = 500000


class ImageStore:
    """Stands in for the Docker client of `build_model`: an image is the directory that is copied to /model."""

    def __init__(self, folder):
        self.folder = folder
        self.images = self
        self.pushed = []

    def path(self, image):
        return os.path.join(self.folder, image.replace("/", "_").replace(":", "_"))

    def build(self, fileobj, custom_context, tag):
        with tarfile.open(fileobj=fileobj) as context:
            dockerfile = context.extractfile("Dockerfile").read().decode()
            source = dockerfile.split("COPY ")[1].split()[0].strip("/")
            context.extractall(self.path(tag))
        for name in os.listdir(os.path.join(self.path(tag), source)):
            shutil.move(os.path.join(self.path(tag), source, name), os.path.join(self.path(tag), name))
        return None, [{"stream": "built"}]

    def push(self, repository, stream):
        self.pushed.append(repository)
        return [b"pushed"]


class ProcessManager:
    """A container manager that starts processes of lepa."""

    cluster_identifier = "cluster"

    def __init__(self, python, folder, store):
        self.python = python
        self.folder = folder
        self.store = store
        self.processes = []
        self.models = {}

    def start_clipper(self, query_image, mgmt_image, exporter_image, cache_size, *http, **more):
        data = os.path.join(self.folder, "data")
        self.admin = self._frontend("management", "--data", data)["port"]
        ports = self._frontend("frontend", "--rpc-port", "0", "--management", self.get_admin_addr())
        self.query, self.rpc = ports["port"], ports["rpc_port"]
        self.connect()

    def connect(self):
        self.connected = True

    def _frontend(self, module, *arguments):
        ready = os.path.join(self.folder, module + ".json")
        self._start(module, {}, "lepa.serving." + module, "--port", "0", "--ready-file", ready, *arguments)
        for _ in range(600):
            if os.path.exists(ready):
                return json.load(open(ready))
            time.sleep(0.05)
        raise ClipperException(module + " did not start")

    def _start(self, name, environment, *arguments):
        log = os.path.join(self.folder, f"{name}-{len(self.processes)}.log")
        with open(log, "wb") as output:
            process = subprocess.Popen(
                [self.python, "-m", *arguments], env=dict(os.environ, **environment), stdout=output, stderr=output
            )
        self.processes.append(process)
        return process

    def deploy_model(self, name, version, input_type, image, num_replicas=1):
        self.set_num_replicas(name, version, input_type, image, num_replicas)

    def set_num_replicas(self, name, version, input_type, image, num_replicas):
        running = self.models.setdefault((name, str(version)), [])
        environment = {
            "CLIPPER_MODEL_NAME": name,
            "CLIPPER_MODEL_VERSION": str(version),
            "CLIPPER_MODEL_PATH": self.store.path(image),
            "CLIPPER_INPUT_TYPE": input_type,
            "CLIPPER_PORT": str(self.rpc),
        }
        while len(running) < num_replicas:
            running.append(self._start(name, environment, "lepa.serving.model_container"))
        while len(running) > num_replicas:
            self._end(running.pop())

    def get_num_replicas(self, name, version):
        return len(self.models.get((name, str(version)), []))

    def get_logs(self, logging_dir):
        os.makedirs(logging_dir, exist_ok=True)
        logs = [name for name in os.listdir(self.folder) if name.endswith(".log")]
        return [shutil.copy(os.path.join(self.folder, name), logging_dir) for name in logs]

    def stop_models(self, models):
        for name, versions in models.items():
            for version in versions:
                for process in self.models.pop((name, str(version)), []):
                    self._end(process)

    def stop_all_model_containers(self):
        for running in self.models.values():
            for process in running:
                self._end(process)
        self.models = {}

    def stop_all(self, graceful=True):
        for process in self.processes:
            self._end(process)

    def _end(self, process):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(20)

    def get_admin_addr(self):
        return f"127.0.0.1:{self.admin}"

    def get_query_addr(self):
        return f"127.0.0.1:{self.query}"

    def get_metric_addr(self):
        return self.get_query_addr()


class Recorded(ClipperConnection):
    """Remembers which methods were used."""

    used = set()

    def __getattribute__(self, name):
        Recorded.used.add(name)
        return super().__getattribute__(name)


def error_of(call, *arguments):
    try:
        call(*arguments)
    except (ClipperException, UnconnectedException) as error:
        return error.msg
    return None


def predict(manager, app, body):
    import requests

    url = f"http://{manager.get_query_addr()}/{app}/predict"
    return requests.post(url, json=body, timeout=10).json()


def predict_soon(manager, app, body, wanted):
    for _ in range(400):
        found = predict(manager, app, body)
        if found.get("output") == wanted:
            break
        time.sleep(0.05)
    return found


def eventually(look, wanted):
    for _ in range(400):
        found = look()
        if found == wanted:
            break
        time.sleep(0.05)
    return found


def sums(inputs):
    return [str(float(sum(row))) for row in inputs]


def lengths(inputs):
    return [str(float(len(row))) for row in inputs]


def run(python, folder):
    store = ImageStore(os.path.join(folder, "images"))
    docker.from_env = lambda: store
    manager = ProcessManager(python, folder, store)
    connection = Recorded(manager)
    told = {}
    try:
        told["unconnected"] = error_of(connection.get_all_apps)
        connection.start_clipper()
        connection.connect()
        steps(connection, manager, store, folder, told)
    finally:
        connection.stop_all()
    public = {name for name in dir(ClipperConnection) if not name.startswith("_")}
    told["unused"] = sorted(public - Recorded.used)
    return told


def steps(connection, manager, store, folder, told):
    connection.register_application("app", "doubles", "-1.0", SLO_MICROS)
    told["apps"] = connection.get_all_apps()
    told["apps_verbose"] = connection.get_all_apps(verbose=True)
    told["app_info"] = connection.get_app_info("app")
    told["no_app_info"] = connection.get_app_info("nobody")
    told["app_again"] = error_of(connection.register_application, "app", "doubles", "-1.0", SLO_MICROS)
    told["without_model"] = predict(manager, "app", {"input": [1.0, 2.0]})

    python_deployer.deploy_python_closure(
        connection, "m", 1, "doubles", sums, base_image="any", labels=["first"], pkgs_to_install=["six"]
    )
    connection.link_model_to_app("app", "m")
    told["linked"] = connection.get_linked_models("app")
    told["link_again"] = error_of(connection.link_model_to_app, "app", "m")
    told["predicted"] = predict_soon(manager, "app", {"input": [1.0, 2.0]}, 3.0)
    told["batch"] = predict(manager, "app", {"input_batch": [[1.0], [2.0, 5.0]]})
    told["replicas"] = eventually(connection.get_all_model_replicas, ["m:1:0"])
    told["replica_info"] = connection.get_model_replica_info("m", 1, 0)
    told["no_replica_info"] = connection.get_model_replica_info("m", 1, 77)

    folder2 = os.path.join(folder, "second")
    shutil.copytree(store.path("cluster-m:1"), folder2)
    python_deployer.save_python_function("m", lengths)
    image = connection.build_model("m", "2", folder2, "any", container_registry="registry")
    told["image"], told["pushed"] = image, store.pushed
    connection.deploy_model("m", "2", "doubles", image, num_replicas=1)
    told["current"] = connection.get_current_model_version("m")
    told["models"] = connection.get_all_models()
    told["model_info"] = connection.get_model_info("m", 1)
    told["no_model_info"] = connection.get_model_info("m", 9)
    told["model_again"] = error_of(connection.register_model, "m", "2", "doubles")
    connection.set_num_replicas("m", 2)
    told["num_replicas"] = connection.get_num_replicas("m")
    told["replicas_of_2"] = eventually(
        lambda: sorted(name for name in connection.get_all_model_replicas() if name.startswith("m:2")),
        ["m:2:0", "m:2:1"],
    )
    connection.set_model_version("m", "1", num_replicas=1)
    told["back"] = connection.get_current_model_version("m")
    told["bad_version"] = error_of(connection.set_model_version, "m", "9")

    connection.build_and_deploy_model("n", "1", "doubles", folder2, "any")
    connection.register_model("external", "1", "ints")
    told["containerless"] = error_of(connection.set_num_replicas, "external", 2)
    told["incompatible"] = error_of(connection.link_model_to_app, "app", "external")
    connection.unlink_model_from_app("app", "m")
    told["unlinked"] = connection.get_linked_models("app")

    told["tested"] = connection.test_predict_function({"input": [1.0, 2.0]}, lambda rows: ["7"], "doubles")
    told["tested_wrong"] = connection.test_predict_function({"input": [1.0]}, lambda rows: ["7"], "integers")
    told["metrics"] = sorted(connection.inspect_instance())
    told["query_addr"] = connection.get_query_addr() == manager.get_query_addr()
    told["metric_addr"] = connection.get_metric_addr() == manager.get_metric_addr()
    told["logs"] = len(connection.get_clipper_logs(os.path.join(folder, "logs")))

    connection.stop_inactive_model_versions(["m"])
    told["after_inactive"] = sorted(connection.get_all_models())
    connection.stop_versioned_models({"n": ["1"]})
    told["after_versioned"] = sorted(connection.get_all_models())
    connection.stop_models(["m"])
    told["after_models"] = sorted(connection.get_all_models())
    connection.stop_all_model_containers()
    told["after_all"] = connection.get_all_models()
    connection.register_application("second", "ints", "0", SLO_MICROS)
    connection.delete_application("second")
    connection.unregister_application("app")
    told["no_apps"] = connection.get_all_apps()


if __name__ == "__main__":
    del os.environ["PYTHONPATH"]
    print(json.dumps(run(sys.argv[1], sys.argv[2])))
