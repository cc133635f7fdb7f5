"""Pure: what a place that runs a serving cluster must be able to do. Clipper's ContainerManager, with types."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from lepa.serving.addresses import Address

DEFAULT_CLUSTER = "default-cluster"


THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""How many threads the number libraries of a model compute with."""


def thread_limits(threads: int) -> dict[str, str]:
    """Variables that hold a model container to so many threads. Without them OpenBLAS starts one for each processor of
    the machine, and those that wait for each other spin: on processors that are shared all models get slower."""
    return dict.fromkeys(THREADS, str(max(1, threads)))


class StartOptions(Struct, frozen=True):
    """How the parts of a cluster start. cache_size: bytes of the prediction cache of each query frontend."""

    cache_size: int = 32 << 20
    num_frontend_replicas: int = 1


class ContainerManager(Protocol):
    """Where the frontends and the model containers of one cluster run."""

    cluster_name: str

    def start_clipper(self, options: StartOptions) -> None:
        """Start the frontends and be connected. Refused when the cluster runs already."""

    def connect(self) -> None:
        """Find a running cluster. Raises LepaError(not_found) when there is none."""

    def publish_model(self, name: str, version: str, directory: Path) -> str:
        """Put a deployable model where containers can read it; returns the `image` for `deploy_model`."""

    def deploy_model(self, name: str, version: str, input_type: str, image: str, num_replicas: int = 1) -> None:
        """Start that many containers of a model version."""

    def get_num_replicas(self, name: str, version: str) -> int:
        """Containers of a model version that are meant to run."""

    def set_num_replicas(self, name: str, version: str, input_type: str, image: str, num_replicas: int) -> None:
        """Start or stop containers until there are that many."""

    def ensure_autoscaler(self) -> None:
        """Start what lets replicas follow the load, where it does not run."""

    def get_logs(self, logging_dir: Path) -> list[Path]:
        """Write the logs of every part into a directory; returns the files."""

    def trouble(self, name: str, version: str) -> str:
        """Why the containers of a version will not come, in their own last words; "" while they may."""

    def stop_models(self, models: Mapping[str, Sequence[str]]) -> None:
        """Stop all containers of the given versions by model name."""

    def stop_all_model_containers(self) -> None:
        """Stop the containers of every model."""

    def stop_all(self, graceful: bool = True) -> None:
        """Stop everything that belongs to the cluster. Not graceful: kill."""

    def get_admin_addr(self) -> Address:
        """Where the management frontend answers."""

    def get_query_addr(self) -> Address:
        """Where predictions are asked."""

    def get_query_path(self) -> str:
        """What stands before `/{app}/predict` there; "" for nothing."""

    def get_query_addrs(self) -> Sequence[Address]:
        """Every address where they may be asked, in the order in which to try them. Raises LepaError(not_found)."""

    def get_frontend_addrs(self) -> Sequence[Address]:
        """Every query frontend's own address, balancers aside. Raises LepaError(not_found) where there is none."""

    def query_addr_lost(self, address: Address) -> None:
        """Nobody answered at that address: others come first for a while."""

    def get_metric_addr(self) -> Address:
        """Where metrics are read."""
