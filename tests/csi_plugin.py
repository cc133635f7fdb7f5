"""A CSI plugin whose storage is a directory, as a program: controller and node services over gRPC on $CSI_ENDPOINT.

    python csi_plugin.py STORAGE NODE [LIMIT]

Volumes are directories of STORAGE; attaching writes down the node, staging makes a bind mount, publishing another. It
refuses what a storage would refuse: to publish a volume that is not attached to the node, or staged.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from lepa.client.csi import messages as csi
from lepa.client.csi.messages import message

STORAGE, NODE = Path(sys.argv[1]), sys.argv[2]
LIMIT = int(sys.argv[3]) if len(sys.argv) > 3 else 0
SECRET = os.environ.get("STORAGE_SECRET", "")


class Refused(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def book(name: str) -> Path:
    return STORAGE / f"{name}.json"


def read(name: str) -> dict[str, Any]:
    if not book(name).exists():
        raise Refused(grpc.StatusCode.NOT_FOUND, f"no volume {name}")
    return dict(json.loads(book(name).read_text()))


def write(name: str, facts: dict[str, Any]) -> None:
    book(name).write_text(json.dumps(facts))


def is_mounted(path: str | Path) -> bool:
    """Also for a bind mount of the same file system, which os.path.ismount does not see."""
    return any(line.split()[1] == str(path) for line in Path("/proc/self/mounts").read_text().splitlines())


def note(text: str) -> None:
    with (STORAGE / "calls.log").open("a") as log:
        log.write(f"{NODE} {text}\n")


# Identity


def plugin_info(request: Any) -> Any:
    return message("GetPluginInfoResponse")(name="test.directory", vendor_version="1.2.3")


def plugin_capabilities(request: Any) -> Any:
    found = message("GetPluginCapabilitiesResponse")()
    found.capabilities.add().service.type = csi.CONTROLLER_SERVICE
    return found


def probe(request: Any) -> Any:
    return message("ProbeResponse")(ready=message("BoolValue")(value=True))


# Controller


def controller_capabilities(request: Any) -> Any:
    found = message("GetCapabilitiesResponse")()
    for able in (csi.CREATE_DELETE, csi.PUBLISH, csi.LIST, csi.SNAPSHOT, csi.LIST_SNAPSHOTS, csi.EXPAND):
        found.capabilities.add().rpc.type = able
    return found


def create(request: Any) -> Any:
    if SECRET and request.secrets.get("key") != SECRET:
        raise Refused(grpc.StatusCode.UNAUTHENTICATED, "wrong key")
    name = f"vol-{request.name}"
    if not book(name).exists():
        (STORAGE / name).mkdir()
        source = request.volume_content_source.snapshot.snapshot_id
        if source:
            shutil.copytree(STORAGE / source, STORAGE / name, dirs_exist_ok=True)
        write(name, {"attached": [], "size": request.capacity_range.required_bytes})
    note(f"create {name}")
    made = message("CreateVolumeResponse")()
    made.volume.volume_id, made.volume.capacity_bytes = name, request.capacity_range.required_bytes
    made.volume.volume_context["from"] = "storage"
    return made


def expand(request: Any) -> Any:
    facts, wanted = read(request.volume_id), request.capacity_range.required_bytes
    if request.HasField("volume_capability") != bool(facts["attached"]):
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "told to be used otherwise than it is")
    write(request.volume_id, facts | {"size": wanted})
    note(f"expand {request.volume_id} {wanted}")
    return message("ControllerExpandVolumeResponse")(capacity_bytes=wanted, node_expansion_required=True)


def delete(request: Any) -> Any:
    note(f"delete {request.volume_id}")
    shutil.rmtree(STORAGE / request.volume_id, ignore_errors=True)
    book(request.volume_id).unlink(missing_ok=True)
    return message("Empty")()


def attach(request: Any) -> Any:
    facts = read(request.volume_id)
    facts["attached"] = sorted({*facts["attached"], request.node_id})
    write(request.volume_id, facts)
    note(f"attach {request.volume_id} {request.node_id}")
    return message("ControllerPublishVolumeResponse")(publish_context={"device": str(STORAGE / request.volume_id)})


def detach(request: Any) -> Any:
    facts = read(request.volume_id)
    facts["attached"] = [node for node in facts["attached"] if node != request.node_id]
    write(request.volume_id, facts)
    note(f"detach {request.volume_id} {request.node_id}")
    return message("Empty")()


def validate(request: Any) -> Any:
    read(request.volume_id)
    found = message("ValidateVolumeCapabilitiesResponse")()
    found.confirmed.SetInParent()
    return found


def list_volumes(request: Any) -> Any:
    found = message("ListVolumesResponse")()
    for path in sorted(STORAGE.glob("vol-*.json")):
        entry = found.entries.add()
        entry.volume.volume_id = path.stem
        entry.status.published_node_ids.extend(read(path.stem)["attached"])
    return found


def snapshot(request: Any) -> Any:
    read(request.source_volume_id)
    name = f"snap-{request.name or request.source_volume_id}"
    shutil.copytree(STORAGE / request.source_volume_id, STORAGE / name, dirs_exist_ok=True)
    made = message("CreateSnapshotResponse")()
    made.snapshot.snapshot_id, made.snapshot.source_volume_id = name, request.source_volume_id
    made.snapshot.ready_to_use = True
    return made


def delete_snapshot(request: Any) -> Any:
    shutil.rmtree(STORAGE / request.snapshot_id, ignore_errors=True)
    return message("Empty")()


def list_snapshots(request: Any) -> Any:
    found = message("ListSnapshotsResponse")()
    for path in sorted(STORAGE.glob("snap-*")):
        entry = found.entries.add()
        entry.snapshot.snapshot_id, entry.snapshot.ready_to_use = path.name, True
    return found


# Node


def node_capabilities(request: Any) -> Any:
    found = message("GetCapabilitiesResponse")()
    for able in (csi.STAGE, csi.NODE_EXPAND):
        found.capabilities.add().rpc.type = able
    return found


def node_info(request: Any) -> Any:
    return message("NodeGetInfoResponse")(node_id=f"storage-{NODE}", max_volumes_per_node=LIMIT)


def stage(request: Any) -> Any:
    if f"storage-{NODE}" not in read(request.volume_id)["attached"]:
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"{request.volume_id} is not attached to storage-{NODE}")
    if not is_mounted(request.staging_target_path):
        subprocess.run(["mount", "--bind", request.publish_context["device"], request.staging_target_path], check=True)
    note(f"stage {request.volume_id}")
    return message("Empty")()


def publish(request: Any) -> Any:
    if not is_mounted(request.staging_target_path):
        raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f"{request.volume_id} is not staged")
    target = Path(request.target_path)
    target.mkdir(exist_ok=True)
    if not is_mounted(target):
        subprocess.run(["mount", "--bind", request.staging_target_path, target], check=True)
        if request.readonly:
            subprocess.run(["mount", "-o", "remount,bind,ro", target], check=True)
    note(f"publish {request.volume_id} {'ro' if request.readonly else 'rw'}")
    return message("Empty")()


def node_expand(request: Any) -> Any:
    if not (is_mounted(request.volume_path) and is_mounted(request.staging_target_path)):
        raise Refused(grpc.StatusCode.NOT_FOUND, f"{request.volume_id} is not mounted at {request.volume_path}")
    note(f"node-expand {request.volume_id} {request.capacity_range.required_bytes}")
    return message("NodeExpandVolumeResponse")(capacity_bytes=request.capacity_range.required_bytes)


def unpublish(request: Any) -> Any:
    target = Path(request.target_path)
    while is_mounted(target):
        subprocess.run(["umount", "-l", target], check=True)
    if target.is_dir():
        target.rmdir()
    note(f"unpublish {request.volume_id}")
    return message("Empty")()


def unstage(request: Any) -> Any:
    while is_mounted(request.staging_target_path):
        subprocess.run(["umount", "-l", request.staging_target_path], check=True)
    note(f"unstage {request.volume_id}")
    return message("Empty")()


METHODS = {
    "Identity/GetPluginInfo": (plugin_info, "Empty"),
    "Identity/GetPluginCapabilities": (plugin_capabilities, "Empty"),
    "Identity/Probe": (probe, "Empty"),
    "Controller/ControllerGetCapabilities": (controller_capabilities, "Empty"),
    "Controller/CreateVolume": (create, "CreateVolumeRequest"),
    "Controller/DeleteVolume": (delete, "DeleteVolumeRequest"),
    "Controller/ControllerExpandVolume": (expand, "ControllerExpandVolumeRequest"),
    "Controller/ControllerPublishVolume": (attach, "ControllerPublishVolumeRequest"),
    "Controller/ControllerUnpublishVolume": (detach, "ControllerUnpublishVolumeRequest"),
    "Controller/ValidateVolumeCapabilities": (validate, "ValidateVolumeCapabilitiesRequest"),
    "Controller/ListVolumes": (list_volumes, "ListVolumesRequest"),
    "Controller/CreateSnapshot": (snapshot, "CreateSnapshotRequest"),
    "Controller/DeleteSnapshot": (delete_snapshot, "DeleteSnapshotRequest"),
    "Controller/ListSnapshots": (list_snapshots, "ListSnapshotsRequest"),
    "Node/NodeGetCapabilities": (node_capabilities, "Empty"),
    "Node/NodeGetInfo": (node_info, "Empty"),
    "Node/NodeStageVolume": (stage, "NodeStageVolumeRequest"),
    "Node/NodePublishVolume": (publish, "NodePublishVolumeRequest"),
    "Node/NodeExpandVolume": (node_expand, "NodeExpandVolumeRequest"),
    "Node/NodeUnpublishVolume": (unpublish, "NodeUnpublishVolumeRequest"),
    "Node/NodeUnstageVolume": (unstage, "NodeUnstageVolumeRequest"),
}


class Handlers(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Finds the function that answers a method."""

    def service(self, details: Any) -> Any:
        known = METHODS.get(details.method.removeprefix("/csi.v1."))
        if known is None:
            return None
        function, kind = known

        def answer(request: Any, context: Any) -> Any:
            try:
                return function(request)
            except Refused as refused:
                context.abort(refused.code, str(refused))

        return grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=message(kind).FromString,
            response_serializer=lambda each: each.SerializeToString(),
        )


def main() -> None:
    STORAGE.mkdir(parents=True, exist_ok=True)
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Handlers(),))
    server.add_insecure_port(os.environ["CSI_ENDPOINT"].replace("unix://", "unix:"))
    server.start()
    ended.wait()
    server.stop(1.0).wait()


if __name__ == "__main__":
    main()
