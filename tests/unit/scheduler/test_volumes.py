"""Volumes of allocations: which nodes have them, and who may have them beside others."""

from typing import Any

from tests.builders import make_alloc, make_eval, make_group, make_job, make_node
from tests.fake_view import FakeView

from lepa.model.job import Job, VolumeRequest
from lepa.model.node import ClientHostVolumeConfig, Node
from lepa.model.volume import (
    CSIClaim,
    CSIInfo,
    CSINodeInfo,
    CSITopology,
    CSIVolume,
    CSIVolumeCapability,
    TaskGroupHostVolumeClaim,
)
from lepa.scheduler.feasible import failed_check, group_checks
from lepa.scheduler.outcome import Outcome
from lepa.scheduler.plan_check import check_plan
from lepa.scheduler.volumes import bind

SINGLE = "single-node-single-writer"
CSI_WRITER = CSIVolumeCapability("file-system", "single-node-writer")


def host(name: str = "data", **fields: Any) -> ClientHostVolumeConfig:
    return ClientHostVolumeConfig(name=name, path="/x", **({"id": f"id-{name}", "namespace": "default"} | fields))


def node(node_id: str, *volumes: ClientHostVolumeConfig, **fields: Any) -> Node:
    return make_node(node_id, host_volumes={volume.name: volume for volume in volumes}, **fields)


def job(count: int = 1, **request: Any) -> Job:
    given = {"name": "d", "type": "host", "source": "data"}
    return make_job(groups=(make_group(count=count, volumes={"d": VolumeRequest(**(given | request))}),))


def csi_node(node_id: str, *, healthy: bool = True, limit: int = 0, zone: str = "") -> Node:
    place = CSITopology({"zone": zone}) if zone else None
    info = CSIInfo(plugin_id="p", healthy=healthy, node_info=CSINodeInfo(max_volumes=limit, accessible_topology=place))
    return make_node(node_id, csi_node_plugins={"p": info})


def csi_job(count: int = 1, mode: str = "single-node-writer", source: str = "v", **request: Any) -> Job:
    given = {"type": "csi", "source": source, "access_mode": mode, "attachment_mode": "file-system"}
    return job(count, **(given | request))


def csi(volume_id: str = "v", **fields: Any) -> CSIVolume:
    shared = CSIVolumeCapability("file-system", "multi-node-multi-writer")
    given = {"id": volume_id, "namespace": "default", "plugin_id": "p", "requested_capabilities": (CSI_WRITER, shared)}
    return CSIVolume(**(given | fields))


def run(view: FakeView) -> Outcome:
    """What a look at the one job of a view comes to; nothing is committed."""
    (versions,) = view._jobs.values()
    return view.evaluate(make_eval(job=versions[-1]), apply=False)


def placed(view: FakeView) -> list[str]:
    return sorted(alloc.node_id for alloc in run(view).plan.updates)


def reason(view: FakeView) -> dict[str, int]:
    (metric,) = run(view).evaluation.failed_tg_allocs.values()
    return metric.constraint_filtered | metric.dimension_exhausted


class TestHostVolumes:
    def test_a_job_goes_where_its_volume_is(self) -> None:
        view = FakeView(node("a"), node("b", host()), job=job())
        assert placed(view) == ["b"]

    def test_a_volume_of_another_namespace_or_mode_does_not_count(self) -> None:
        wanted = job(access_mode=SINGLE)
        for volume in (host(namespace="other"), host(access_modes=("single-node-writer",))):
            assert failed_check(node("a", volume), group_checks(wanted, wanted.task_groups[0]))
        fitting = node("a", host(access_modes=(SINGLE,)))
        assert not failed_check(fitting, group_checks(wanted, wanted.task_groups[0]))

    def test_each_allocation_of_per_alloc_goes_to_its_own(self) -> None:
        nodes = [node("a", host("data[1]")), node("b", host("data[0]")), node("c", host("data[2]"))]
        view = FakeView(*nodes, job=job(3, per_alloc=True))
        assert {alloc.name[-2]: alloc.node_id for alloc in run(view).plan.updates} == {"0": "b", "1": "a", "2": "c"}

    def test_a_single_writer_is_alone(self) -> None:
        view = FakeView(node("a", host(access_modes=(SINGLE,))), job=job(2, access_mode=SINGLE))
        outcome = run(view)
        assert len(outcome.plan.updates) == 1
        (metric,) = outcome.evaluation.failed_tg_allocs.values()
        assert metric.dimension_exhausted == {"volume data has a writer already": 1}

    def test_two_plans_for_one_writer_are_not_both_taken(self) -> None:
        view = FakeView(node("a", host(access_modes=(SINGLE,))), job=job(access_mode=SINGLE))
        first, second = run(view).plan, run(view).plan
        view.commit(first)
        assert check_plan(second, view).rejected_nodes == ("a",)

    def test_readers_share_it(self) -> None:
        view = FakeView(node("a", host()), job=job(3, read_only=True, access_mode="single-node-multi-writer"))
        assert placed(view) == ["a", "a", "a"]

    def test_a_sticky_instance_returns_to_its_volume(self) -> None:
        wanted = job(sticky=True)
        view = FakeView(node("a", host(id="first")), node("b", host(id="second")), job=wanted)
        view.claims = [claim("second", "gone")]
        assert placed(view) == ["b"]

    def test_two_sticky_instances_do_not_take_one_volume(self) -> None:
        view = FakeView(node("a", host(id="first")), node("b", host(id="second")), job=job(2, sticky=True))
        view.claims = [claim("second", "gone"), claim("first", "gone-too")]
        assert placed(view) == ["a", "b"]


def claim(volume_id: str, alloc_id: str) -> TaskGroupHostVolumeClaim:
    wanted = job()
    return TaskGroupHostVolumeClaim(
        id=volume_id,
        namespace=wanted.namespace,
        job_id=wanted.id,
        task_group_name=wanted.task_groups[0].name,
        alloc_id=alloc_id,
        volume_id=volume_id,
        volume_name="data",
    )


class TestCsiVolumes:
    def view(self, *nodes: Node, job: Job, **volumes: CSIVolume) -> FakeView:
        view = FakeView(*nodes, job=job)
        view.volumes = {("default", name): volume for name, volume in (volumes or {"v": csi()}).items()}
        return view

    def test_a_job_goes_where_the_plugin_works(self) -> None:
        nodes = make_node("a"), csi_node("b", healthy=False), csi_node("c")
        assert placed(self.view(*nodes, job=csi_job())) == ["c"]

    def test_the_reasons_are_told(self) -> None:
        view = self.view(make_node("a"), csi_node("b", healthy=False), job=csi_job())
        assert reason(view) == {"CSI plugin p is missing from client": 1, "CSI plugin p is unhealthy on client": 1}
        assert reason(self.view(csi_node("a"), job=csi_job(source="x"))) == {"missing CSI volume(s) x": 1}

    def test_topologies_must_fit(self) -> None:
        volume = csi(topologies=(CSITopology({"zone": "b"}),))
        view = self.view(csi_node("a", zone="a"), csi_node("b", zone="b"), job=csi_job(), v=volume)
        assert placed(view) == ["b"]

    def test_one_writer_holds_it(self) -> None:
        view = self.view(csi_node("a"), job=csi_job())
        holder = make_alloc("other", node_id="a", client_status="running", job_id="other")
        view.put_alloc(holder)
        view.held = [CSIClaim("default", "v", holder.id, "a", "write", "single-node-writer")]
        assert reason(view) == {"CSI volume v has exhausted its available writer claims": 1}
        view.put_alloc(holder, desired_status="stop")
        assert placed(view) == ["a"]

    def test_in_one_plan_too(self) -> None:
        outcome = run(self.view(csi_node("a"), csi_node("b"), job=csi_job(2)))
        assert len(outcome.plan.updates) == 1

    def test_many_writers_share_what_allows_it(self) -> None:
        view = self.view(csi_node("a"), csi_node("b"), job=csi_job(4, "multi-node-multi-writer"))
        assert len(placed(view)) == 4

    def test_a_node_takes_no_more_volumes_than_its_plugin(self) -> None:
        volumes = {f"v[{number}]": csi(f"v[{number}]") for number in range(3)}
        view = self.view(csi_node("a", limit=2), job=csi_job(3, per_alloc=True), **volumes)
        outcome = run(view)
        assert len(outcome.plan.updates) == 2
        (metric,) = outcome.evaluation.failed_tg_allocs.values()
        assert metric.dimension_exhausted == {"CSI plugin p has the maximum number of volumes on client a": 1}


def test_a_group_without_volumes_is_left_as_it_is() -> None:
    plain = make_job()
    assert bind(FakeView(), plain, plain.task_groups[0], "x[0]") is plain.task_groups[0]
