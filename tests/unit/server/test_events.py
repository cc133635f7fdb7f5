"""Changes as events."""

from typing import Any

from msgspec.structs import replace
from tests.builders import make_alloc, make_deployment, make_eval, make_job, make_node, make_service

from lepa.model.allocation import DesiredTransition
from lepa.model.deployment import DeploymentState
from lepa.model.node import DrainStrategy, NodeEvent
from lepa.server.events import Wanted, events_of
from lepa.state.reducer import RowChange

ALL = Wanted({"*": ("*",)}, "*")


def kind(table: str, before: Any, after: Any) -> str:
    (event,) = events_of([RowChange(table, "key", before, after, 7)], ALL)
    return event.type


def test_an_event_names_its_object_and_what_else_finds_it() -> None:
    alloc = make_alloc(job=make_job(), deployment_id="d")
    (event,) = events_of([RowChange("allocs", "alloc-1", None, replace(alloc, job=make_job()), 7)], ALL)
    assert (event.topic, event.key, event.namespace, event.filter_keys, event.index) == (
        "Allocation",
        "alloc-1",
        "default",
        ("web", "d"),
        7,
    )
    assert event.payload["Allocation"]["ID"] == "alloc-1"
    assert "Job" not in event.payload["Allocation"]


def test_kinds_are_read_off_the_difference() -> None:
    job, node, alloc = make_job(), make_node(), make_alloc(job=make_job())
    deployment, state = make_deployment(), DeploymentState(promoted=True)
    assert kind("jobs", None, job) == "JobRegistered"
    assert kind("jobs", job, replace(job, stop=True)) == "JobDeregistered"
    assert kind("jobs", job, None) == "JobDeregistered"
    assert kind("evals", None, make_eval()) == "EvaluationUpdated"
    assert kind("allocs", None, alloc) == "PlanResult"
    assert kind("allocs", alloc, replace(alloc, alloc_modify_index=9)) == "PlanResult"
    assert kind("allocs", alloc, replace(alloc, client_status="failed")) == "AllocationUpdated"
    migrates = replace(alloc, desired_transition=DesiredTransition(migrate=True))
    assert kind("allocs", alloc, migrates) == "AllocationUpdateDesiredStatus"
    assert kind("deployments", None, deployment) == "PlanResult"
    assert kind("deployments", deployment, replace(deployment, status="failed")) == "DeploymentStatusUpdate"
    assert kind("deployments", deployment, replace(deployment, task_groups={"web": state})) == "DeploymentPromotion"
    assert kind("deployments", deployment, replace(deployment, modify_time=5)) == "DeploymentAllocHealth"
    assert kind("nodes", None, node) == "NodeRegistration"
    assert kind("nodes", node, None) == "NodeDeregistration"
    assert kind("nodes", node, replace(node, drain_strategy=DrainStrategy())) == "NodeDrain"
    assert kind("nodes", node, replace(node, scheduling_eligibility="ineligible")) == "NodeEligibility"
    assert kind("nodes", node, replace(node, events=(NodeEvent(),))) == "NodeStreamEvent"
    assert kind("nodes", node, replace(node, meta={"a": "b"})) == "NodeRegistration"
    assert kind("services", None, make_service()) == "ServiceRegistration"
    assert kind("services", make_service(), None) == "ServiceDeregistration"


def test_a_new_status_of_a_job_is_told_as_what_brought_it() -> None:
    pending = make_job(status="pending")
    status = RowChange("jobs", "web", pending, replace(pending, status="running"), 7)
    evaluated = RowChange("evals", "e", None, make_eval(status="complete"), 7)
    placed = RowChange("allocs", "a", None, make_alloc(), 7)
    reported = RowChange("allocs", "a", make_alloc(), make_alloc(client_status="failed"), 7)
    kinds = [events_of([*cause, status], ALL)[-1].type for cause in ([evaluated], [evaluated, placed], [reported])]
    assert kinds == ["EvaluationUpdated", "PlanResult", "AllocationUpdated"]


def test_only_what_is_wanted_is_told() -> None:
    changes = [
        RowChange("allocs", "alloc-1", None, make_alloc(job=make_job()), 7),
        RowChange("config", "x", None, 1, 7),
    ]
    assert events_of(changes, Wanted({"Job": ("*",)}, "*")) == ()
    assert events_of(changes, Wanted({"Allocation": ("other",)}, "*")) == ()
    assert len(events_of(changes, Wanted({"Allocation": ("web",)}, "*"))) == 1
    assert events_of(changes, Wanted({"*": ("*",)}, "blue")) == ()
    assert len(events_of(changes, Wanted({"*": ("*",)}, "default"))) == 1


def test_a_job_without_a_payload_has_null_which_go_clients_can_decode() -> None:
    (event,) = events_of([RowChange("jobs", "web", None, make_job(), 7)], ALL)
    assert event.payload["Job"]["Payload"] is None


def test_secrets_of_nodes_stay_secret() -> None:
    (event,) = events_of([RowChange("nodes", "n", None, make_node(secret_id="hush"), 7)], ALL)
    assert event.payload["Node"]["SecretID"] == ""


def test_a_purged_job_says_so() -> None:
    (event,) = events_of([RowChange("jobs", "web", make_job(), None, 7)], ALL)
    assert event.payload["Deleted"] is True
