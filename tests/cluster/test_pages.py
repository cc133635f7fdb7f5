"""The how-to pages about several machines, followed on four of them."""

from pathlib import Path

from tests.cluster.bed import Bed
from tests.cluster.pages import Page, Reader

MACHINES = ("server", "one", "two", "three")


def follow(folder: Path, *pages: str, machines: tuple[str, ...] = MACHINES) -> None:
    """Follow pages one after the other, on the same machines."""
    with Bed(folder) as bed:
        for name in machines:
            bed.machine(name)
        for page in pages:
            reader = Reader(bed, Page(page))
            reader.prepare(*machines)
            reader.follow()
        for name in machines:
            log = bed.machines[name].folder / "background.log"
            assert "Traceback" not in log.read_text(errors="replace")


def test_a_reader_runs_one_server_and_several_nodes(tmp_path: Path) -> None:
    follow(tmp_path, "several-nodes.md")


def test_a_reader_serves_models_on_a_cluster_and_checks_it_by_hand(tmp_path: Path) -> None:
    follow(tmp_path, "clipper-on-nomad.md")


def test_a_reader_joins_two_regions(tmp_path: Path) -> None:
    follow(tmp_path, "regions.md", machines=("eu", "us"))


def test_a_reader_makes_a_cluster_of_three_servers(tmp_path: Path) -> None:
    follow(tmp_path, "cluster.md", machines=("one", "two", "three"))
