"""Pure: the bodies of the management frontend's requests. The JSON keys are Clipper's."""

from typing import Annotated

from msgspec import Meta, Struct

from lepa.serving import records
from lepa.serving.autoscale import Autoscale
from lepa.serving.batch_sizes import Batching
from lepa.serving.records import Container
from lepa.serving.selection import Observation, PolicyOptions

OBSERVATIONS_MAX = 10_000


class AddApp(Struct):
    name: str
    input_type: str
    default_output: str
    latency_slo_micros: int
    policy: str = "DefaultOutputSelectionPolicy"
    policy_options: PolicyOptions = PolicyOptions()


class SetPolicy(Struct):
    name: str
    policy: str
    policy_options: PolicyOptions = PolicyOptions()


class AddModel(Struct):
    model_name: str
    model_version: str
    input_type: str
    labels: list[str] = []
    container_name: str = ""
    model_data_path: str = ""
    batch_size: int = records.BATCH_SIZE_ADAPTIVE
    endpoint: str = ""


class SetAutoscale(Struct):
    model_name: str
    autoscale: Autoscale | None = None


class SetBatching(Struct):
    model_name: str
    model_version: str = ""
    batching: Batching = Batching()


class Named(Struct):
    name: str


class ModelName(Struct):
    model_name: str


class VersionedModel(Struct):
    model_name: str
    model_version: str


class Links(Struct):
    app_name: str
    model_names: list[str]


class LinkedModels(Struct):
    app_name: str


class Verbose(Struct):
    verbose: bool = False


class ContainerName(Struct):
    model_name: str
    model_version: str
    replica_id: int


class StateOf(Struct):
    app_name: str
    uid: int


class ContainerReport(Struct):
    """What one query frontend has connected."""

    frontend: str
    containers: list[Container]


class ObservationReport(Struct):
    """What feedback has shown one query frontend."""

    observations: Annotated[list[Observation], Meta(max_length=OBSERVATIONS_MAX)]
